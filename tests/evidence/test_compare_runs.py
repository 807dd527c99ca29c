import json
import random
import shutil

import pytest
from compare_world import arm, made, outcomes, recipe_file

from hexad.contract.faults import UserError
from hexad.evidence import journal
from hexad.evidence.compare import Ask, common_budget, compare
from hexad.evidence.compare_view import headlines, markdown, render, sheets
from hexad.evidence.ran import Ran, grouped, side
from hexad.evidence.verdict import BETTER, OPEN, SAME, UNLIKE, WORSE
from hexad.recipe.load import load

ASK = Ask("made", "success", 0.05, "hidden", ("episodes", 16.0), points=2)


def tasks(rate, seed, n=60):
    """``rate`` of ``n`` tasks solved; the easiest ones, but for some luck of the seed."""
    rng = random.Random(seed)
    return outcomes(*(int(rng.random() < 0.02 or i < rate * n) for i in range(n)))


RATES = {"a": 0.5, "b": 0.8, "c": 0.2, "d": 0.5}


@pytest.fixture(scope="module")
def cast(tmp_path_factory):
    """Run folders of four arms with four seeds each, a learning rate of its own each."""
    folder = tmp_path_factory.mktemp("cast")
    return {
        name: arm(
            folder / name,
            [tasks(rate, seed) for seed in range(4)],
            f"update.optimizer.lr={(i + 1) * 1e-4}",
        )
        for i, (name, rate) in enumerate(RATES.items())
    }


@pytest.fixture
def arms(cast):
    def pick(names, seeds=3):
        return [sided(name, cast[name][:seeds]) for name in names]

    return pick


def sided(name, folders):
    return side(name, [Ran(folder, "hidden") for folder in folders])


def changed(sides, folder, change):
    """Copies of ``sides`` whose evaluation rows went through ``change``."""
    copies = []
    for each in sides:
        folders = [shutil.copytree(r.folder, folder / each.name / r.folder.name) for r in each.runs]
        for path in (run / journal.EVALUATIONS for run in folders):
            rows = [change(row) for row in journal.rows(path)]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        copies.append(sided(each.name, folders))
    return copies


def test_better_worse_and_no_difference(arms):
    sides = arms("abcd")
    found = {row["arm"]: row for row in compare(sides, ASK)["contrasts"]}
    assert {name: row["verdict"] for name, row in found.items()} == {
        "b": BETTER,
        "c": WORSE,
        "d": SAME,
    }
    assert found["b"]["difference"] == pytest.approx(0.3, abs=0.03)
    assert found["b"]["low"] > 0.1 and found["b"]["improvement"] == pytest.approx(0.65, abs=0.03)
    assert found["d"]["difference"] == 0.0 and found["d"]["improvement"] == 0.5
    assert all(row["tasks"] == 60 and row["seeds"] == [1, 2, 3] for row in found.values())


def test_the_order_of_arms_changes_no_verdict_and_swapped_arms_mirror(arms):
    a, b, c = arms("abc")
    first = {row["arm"]: row for row in compare([a, b, c], ASK)["contrasts"]}
    second = {row["arm"]: row for row in compare([a, c, b], ASK)["contrasts"]}
    assert first == second
    there = compare([a, b], ASK)["contrasts"][0]
    back = compare([b, a], ASK)["contrasts"][0]
    assert back["difference"] == pytest.approx(-there["difference"])
    assert (back["low"], back["high"]) == pytest.approx((-there["high"], -there["low"]))
    assert back["different"] == pytest.approx(there["different"])
    assert back["improvement"] == pytest.approx(1 - there["improvement"])
    assert (there["verdict"], back["verdict"]) == (BETTER, WORSE)


def test_the_order_of_tasks_in_a_row_is_nothing(tmp_path, arms):
    def backwards(row):
        return row | {"outcomes": dict(reversed(row["outcomes"].items()))}

    a, b = arms("ab")
    (again,) = changed([b], tmp_path, backwards)
    assert compare([a, again], ASK)["contrasts"] == compare([a, b], ASK)["contrasts"]


def test_holm_is_over_all_arms(arms):
    a, b, c = arms("abc")
    alone = compare([a, b], ASK)["contrasts"][0]
    both = compare([a, b, c], ASK)["contrasts"][0]
    assert alone["different_holm"] == alone["different"] == both["different"]
    assert both["different_holm"] >= both["different"]
    assert compare([a, b, c], ASK)["contrasts"][1]["different_holm"] > 0


def test_two_seeds_are_never_enough(arms):
    found = compare(arms("cb", 2), ASK)
    (row,) = found["contrasts"]
    assert row["verdict"] == OPEN
    assert any("fewer than 3 seeds" in note for note in found["notes"])


def test_one_seed_says_how_far_but_nothing_of_variance(arms):
    (row,) = compare(arms("cb", 1), ASK)["contrasts"]
    assert row["difference"] > 0.5 and row["verdict"] == OPEN and row["seeds_needed"] is None


def test_only_shared_seeds_are_paired(arms):
    a, b = arms("ab", 4)
    fewer = side("b", b.runs[1:])
    found = compare([a, fewer], ASK)
    assert found["contrasts"][0]["seeds"] == [2, 3, 4]
    assert any("unlike seeds" in note for note in found["notes"])
    apart = compare([side("a", a.runs[:1]), fewer], ASK)["contrasts"][0]
    assert apart["verdict"] == OPEN and "difference" not in apart


def test_tasks_that_a_run_did_not_score_leave_both_arms(tmp_path):
    full, holed = outcomes(1, 1, 0, 0), outcomes(1, 1, 0, 0)
    holed["t000"] = [0, 0]
    folders = [arm(tmp_path / n, [o] * 3) for n, o in (("a", full), ("b", holed))]
    sides = [side(n, [Ran(f, "hidden") for f in fs]) for n, fs in zip("ab", folders, strict=True)]
    (row,) = compare(sides, ASK)["contrasts"]
    assert row["tasks"] == 3 and row["difference"] == 0.0


def test_runs_without_outcomes_are_compared_by_seeds_and_say_so(tmp_path, arms):
    def bare(row):
        return {key: value for key, value in row.items() if key != "outcomes"}

    sides = changed(arms("ab"), tmp_path, bare)
    found = compare(sides, ASK)
    assert found["contrasts"][0]["tasks"] is None
    assert found["contrasts"][0]["difference"] == pytest.approx(0.3, abs=0.03)
    assert any("not kept" in note for note in found["notes"])
    with pytest.raises(UserError, match="attempts"):
        compare(sides, Ask("made", "pass@2", 0.05, "hidden", ("episodes", 16.0)))


def test_passes_of_several_attempts(tmp_path):
    sides = [
        side(name, [Ran(f, "hidden") for f in arm(tmp_path / name, [found] * 3, attempts=2)])
        for name, found in (
            ("a", outcomes(2, 1, 1, 0, attempts=2)),
            ("b", outcomes(2, 2, 0, 0, attempts=2)),
        )
    ]
    a, b = compare(sides, ASK)["arms"]
    assert a["passes"] == {"pass@1": 0.5, "pass^1": 0.5, "pass@2": 0.75, "pass^2": 0.25}
    assert b["passes"] == {"pass@1": 0.5, "pass^1": 0.5, "pass@2": 0.5, "pass^2": 0.5}
    steady = Ask("made", "pass^2", 0.05, "hidden", ("episodes", 16.0))
    found = compare(sides, steady)
    assert found["arms"][1]["value"] == 0.5 and found["contrasts"][0]["difference"] == 0.25
    manifest = {row["item"]: row for row in found["manifest"]}
    assert manifest["pass@k"]["state"] == "fixed"


def test_what_was_spent_and_filtered_is_the_books(arms):
    found = compare(arms("ab"), ASK)
    spent = found["arms"][0]["spent"]
    assert (spent["episodes"], spent["rollout_tokens"], spent["train_tokens"]) == (16, 64, 64)
    assert spent["seconds"] == pytest.approx(2.0) and found["arms"][0]["updates"] == 8
    rates = found["arms"][0]["rates"]
    assert rates == {"dropped_tokens": 0, "groups_without_signal": 0.5, "faulted_episodes": 0}
    assert found["hidden_uses"] == 6


def test_the_curve_meets_at_equal_shares(arms):
    curve = compare(arms("ab"), ASK)["curve"]
    mine = [(r["share"], r["success"], r["spent"]) for r in curve if r["arm"] == "a"]
    assert mine == [(0.0, 0.5, 0.0), (0.5, 1 / 3, 8.0), (1.0, 1.0, 16.0)]


def test_seconds_are_a_budget_to_meet_at(arms):
    ask = Ask("made", "success", 0.05, "hidden", ("seconds", 2.0), points=2)
    curve = compare(arms("ab"), ask)["curve"]
    assert [r["spent"] for r in curve if r["arm"] == "a"] == [0.0, 1.0, 2.0]


def test_a_budget_that_was_missed_is_not_matched(arms):
    sides = arms("ab")
    short = Ask("made", "success", 0.05, "hidden", ("episodes", 20.0))
    found = compare(sides, short)
    assert any("a spent 80%" in note for note in found["notes"])
    states = {row["item"]: row["state"] for row in found["manifest"]}
    assert states["matched budget"] == "different"
    fine = {row["item"]: row["state"] for row in compare(sides, ASK)["manifest"]}
    assert fine["matched budget"] == "fixed"


def test_the_manifest_says_fixed_different_and_unknown(arms):
    found = compare(arms("ab"), ASK)
    rows = {row["item"]: row for row in found["manifest"]}
    assert rows["optimiser"]["state"] == "different" and "lr" in rows["optimiser"]["detail"]
    assert rows["reduction"]["state"] == rows["evaluation and repeats"]["state"] == "fixed"
    for item in ("start checkpoint", "hardware", "peak memory", "hyper-parameter search", "safety"):
        assert rows[item]["state"] == "unknown"


def test_another_verifier_of_the_evaluation_is_seen(tmp_path):
    a = arm(tmp_path / "a", [outcomes(1, 0)])
    b = [
        made(
            tmp_path / "other",
            load(recipe_file(tmp_path), ["run.seed=1"]),
            outcomes(1, 0),
        )
    ]
    path = b[0] / journal.EVALUATIONS
    path.write_text(path.read_text().replace('"verifier":"v"', '"verifier":"w"'))
    sides = [side(n, [Ran(f, "hidden") for f in fs]) for n, fs in (("a", a), ("b", b))]
    rows = {row["item"]: row for row in compare(sides, ASK)["manifest"]}
    assert rows["evaluation and repeats"]["state"] == "different"


def test_arms_that_differ_in_more_than_one_axis_are_flagged(tmp_path):
    base = arm(tmp_path / "grpo", [outcomes(1, 0)] * 3)
    one = arm(tmp_path / "lr", [outcomes(1, 0)] * 3, "update.optimizer.lr=1e-3")
    many = arm(tmp_path / "rloo", [outcomes(1, 0)] * 3, "action.length=8", method="rloo")
    sides = grouped([*base, *one, *many], "hidden")
    assert [each.name for each in sides] == ["grpo", "lr", "rloo"]
    found = compare(sides, ASK)
    assert found["arms"][1]["axes"] == {"update": ["update.optimizer.lr"]}
    assert set(found["arms"][2]["axes"]) == {"action", "credit", "update"}
    (sheet,) = [s for s in sheets(found) if s.title.startswith("What differs")]
    assert [row[-1][:13] for row in sheet.rows] == ["", "more than one"]
    assert common_budget(sides) == ("episodes", 16.0)


def test_runs_of_one_recipe_are_one_arm_whatever_their_seed_and_speed(tmp_path):
    runs = arm(tmp_path / "a", [outcomes(1, 0)] * 2)
    other = load(runs[0] / "recipe.yaml", ["run.seed=9", "system.threads=1", "name=else"])
    runs.append(made(tmp_path / "third", other, outcomes(1, 0)))
    (only,) = grouped(runs, "hidden")
    assert [run.seed for run in only.runs] == [1, 2, 9]
    with pytest.raises(UserError, match="nothing to compare"):
        compare([only], ASK)
    with pytest.raises(UserError, match="seed 1"):
        grouped([*runs, runs[0]], "hidden")


def test_a_run_that_was_not_evaluated_at_its_end_is_refused(tmp_path):
    a = arm(tmp_path / "a", [outcomes(1, 0)])
    b = arm(tmp_path / "b", [None], "update.optimizer.lr=1e-3")
    with pytest.raises(UserError, match="not evaluated on hidden"):
        compare(grouped([*a, *b], "hidden"), ASK)


def test_markdown_and_terminal_hold_the_same_tables(arms):
    found = compare(arms("ab"), ASK)
    text = markdown(found)
    for sheet in sheets(found):
        assert f"## {sheet.title}" in text
        assert all("| " + row[0].replace("|", "\\|") in text for row in sheet.rows)
    assert headlines(found)[2].startswith("b: better: +")
    assert len(render(found).renderables) == len(headlines(found)) + len(sheets(found)) + len(
        found["notes"]
    )
    json.dumps(found, allow_nan=False)


# -- what may be compared ------------------------------------------------------------------------

GUARD = 'task.guard={"forbidden": [{"tool": "calculate"}]}'
LIMITS = "task.limits.turns=2"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (GUARD, "task.guard.forbidden.0.tool"),
        (LIMITS, "task.limits.turns"),
        ("policy.sampling.temperature=0.5", "policy.sampling.temperature"),
        ("task.hidden={count: 400, options: {operations: {1: 1.0}}}", "task.hidden.options"),
        ('task.chaos={"crash": 0.1, "splits": ["hidden"]}', "task.chaos.crash"),
        ("feedback.timeout=unscored", "feedback.timeout"),
    ],
)
def test_no_verdict_where_an_evaluation_may_do_something_else(tmp_path, setting, said):
    base = sided("a", arm(tmp_path / "a", [tasks(0.8, seed) for seed in range(3)]))
    other = sided("b", arm(tmp_path / "b", [tasks(0.2, seed) for seed in range(3)], setting))
    found = compare([base, other], ASK)
    (row,) = found["contrasts"]
    assert row["verdict"] == UNLIKE and any(key.startswith(said[:20]) for key in row["unlike"])
    assert row["difference"] < -0.5 and row["seeds_needed"] is None
    manifest = {line["item"]: line for line in found["manifest"]}
    assert manifest["evaluation and repeats"]["state"] == "different"
    assert manifest["evaluation and repeats"]["detail"].count(said.split(".")[1]) >= 1
    (note,) = [note for note in found["notes"] if "other conditions" in note]
    assert note.startswith("b was evaluated under other conditions (") and said[:20] in note
    assert "unlike: " in headlines(found)[2] and markdown(found)


@pytest.mark.parametrize(
    "setting",
    [
        "task.train.options={operations: {1: 1.0}}",
        'feedback.costs={"turn": 0.1}',
        'task.latency={"kind": "constant", "mean": 0.1}',
        "task.hidden.count=300",
        "data.retries=0",
    ],
)
def test_what_only_training_meets_is_no_condition_of_an_evaluation(tmp_path, setting):
    base = sided("a", arm(tmp_path / "a", [tasks(0.8, seed) for seed in range(3)]))
    other = sided("b", arm(tmp_path / "b", [tasks(0.2, seed) for seed in range(3)], setting))
    (row,) = compare([base, other], ASK)["contrasts"]
    assert (row["verdict"], row["unlike"]) == (WORSE, [])


def test_what_was_recorded_counts_as_well_and_what_was_not_is_no_difference(tmp_path, arms):
    def other(key, value):
        return lambda row: row | {key: value}

    a, b = arms("ac")
    for key in ("temperature", "verifier"):
        (changed_,) = changed([b], tmp_path / key, other(key, "other"))
        assert compare([a, changed_], ASK)["contrasts"][0]["unlike"] == [key]
    (silent,) = changed([b], tmp_path / "none", other("temperature", None))
    assert compare([a, silent], ASK)["contrasts"][0]["verdict"] == WORSE


def test_an_arm_that_cannot_be_compared_is_no_test_that_holm_counts(tmp_path, arms):
    a, b = arms("ab")
    alone = compare([a, b], ASK)["contrasts"][0]
    lenient = sided("c", arm(tmp_path / "c", [tasks(0.2, s) for s in range(3)], LIMITS))
    beside = compare([a, b, lenient], ASK)["contrasts"]
    assert beside[0] == alone and "different_holm" not in beside[1]


# -- budgets, rates, aggregates ------------------------------------------------------------------


def test_the_end_of_a_curve_may_miss_the_budget_as_far_as_counts_as_matched(cast):
    run = Ran(cast["a"][0], "hidden")  # selection after 0, 8 and 16 episodes
    assert run.at("episodes", 8.0)[1] == 8.0 and run.at("episodes", 9.0)[1] == 16.0
    assert run.at("episodes", 16.8, end=True)[1] == 16.0
    assert run.at("episodes", 16.8) is None and run.at("episodes", 17.0, end=True) is None
    ask = Ask("made", "success", 0.05, "hidden", ("episodes", 16.8), points=2)
    sides = [sided(name, cast[name][:3]) for name in "ab"]
    found = compare(sides, ask)
    assert [(row["share"], row["spent"]) for row in found["curve"][-2:]] == [(1.0, 16.0)] * 2
    (sheet,) = [s for s in sheets(found) if s.title.startswith("Success on selection")]
    assert sheet.rows[1][1].endswith("(16 = 95%)") and sheet.rows[2][1].endswith("(16 = 95%)")


def test_only_online_groups_can_lack_a_signal(tmp_path):
    online = Ran(arm(tmp_path / "a", [outcomes(1, 0)])[0], "hidden")
    assert online.rates["groups_without_signal"] == 0.5
    settings = ("data.group_size=1",)
    stored = Ran(arm(tmp_path / "b", [outcomes(1, 0)], *settings, method="sft")[0], "hidden")
    assert "groups_without_signal" not in stored.rates and stored.rates["faulted_episodes"] == 0.0


def test_one_seed_is_said_to_be_one(arms):
    (sheet, *_) = sheets(compare(arms("cb", 1), ASK))
    assert sheet.rows[0][-1] == "unknown: one seed tells no variance"


def test_iqm_and_improvement_are_over_runs_and_tasks(tmp_path):
    """algorithms.md 10, by hand. Two runs of four tasks with 10 attempts each.

    a: 0 .1 .4 .5 | .6 .7 .9 1, whose middle four are .4 .5 .6 .7: .55, where run means give .525.
    b: 0 .1 .4 .5 twice. At every task one run of a ties with both of b and one wins: 3 / 4.
    """
    first, second = (0, 1, 4, 5), (6, 7, 9, 10)

    def made_of(name, *runs):
        folders = arm(tmp_path / name, [outcomes(*run, attempts=10) for run in runs], attempts=10)
        return side(name, [Ran(folder, "hidden") for folder in folders])

    a = made_of("a", first, second)
    b = made_of("b", first, first)
    c = made_of("c", first[::-1], first[::-1])
    found = compare([b, a], ASK)
    assert [each["iqm"] for each in found["arms"]] == pytest.approx([0.25, 0.55])
    assert found["contrasts"][0]["improvement"] == pytest.approx(0.75)
    # Tasks of c: .5 .4 .1 0. Wins of a: (0, .6), (.1, .7), (.4, .9), (.5, 1) give 1 1 2 2 of 2.
    assert compare([c, a], ASK)["contrasts"][0]["improvement"] == pytest.approx(0.75)
    # Runs of equal means: each task decides, .5 by the means.
    assert compare([c, b], ASK)["contrasts"][0]["improvement"] == pytest.approx(0.5)
    d = made_of("d", (1, 2, 5, 0), (1, 2, 5, 0))  # mean .2 < .25, better at three of four tasks
    assert compare([b, d], ASK)["contrasts"][0]["improvement"] == pytest.approx(0.75)
