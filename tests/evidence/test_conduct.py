"""What a study runs, repeats, resumes, chooses and leaves out; the runs themselves are made up."""

import json

import pytest
from compare_world import BATCHES, ended, evaluated, made, outcomes, recipe_file

from hexad import run, study
from hexad.contract.faults import UserError
from hexad.evidence import journal
from hexad.evidence.compare import compare
from hexad.evidence.compare_view import headlines, markdown, sheets
from hexad.recipe.load import load
from hexad.recipe.study import plan

STUDY = """
name: made
recipe: made.yaml
arms:
  fast: {set: {update.optimizer.lr: 1e-3}}
budget: {episodes: 16}
seeds: [1, 2]
margin: 0.05
points: 2
"""
TUNED = STUDY + "tuning: {seed: 9, trials: [{update.minibatches: 1}, {update.minibatches: 2}]}\n"


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A study file beside its recipe; runs take no time and their words are kept in ``calls``."""
    recipe_file(tmp_path)
    world = World(tmp_path)
    monkeypatch.setattr(study, "apart", world.train)
    monkeypatch.setattr(run, "evaluate", world.evaluate)
    return world


class World:
    def __init__(self, folder):
        self.folder, self.calls, self.hidden, self.codes = folder, [], [], {}
        self.selection, self.short, self.begun = [], set(), True

    def train(self, words, *, quiet):
        *_, file, _, target = [w for w in words if w != "--resume"]
        recipe, path = load(file), self.folder.joinpath(target)
        name = path.relative_to(self.folder / "out").as_posix()
        self.calls.append(name + (" again" if "--resume" in words else ""))
        code = self.codes.pop(name, 0)
        if code in (0, 130) or (code == 2 and self.begun):
            if not path.exists():
                made(path, recipe, None)
        if code == 0:
            success = [1, 0] if recipe.update.minibatches == 1 else [1, 1]
            evaluated(path, "selection", BATCHES, outcomes(*success))
            if name in self.short:
                file = path / journal.EVALUATIONS
                rows = [row for row in journal.rows(file) if row["step"] < BATCHES]
                file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            ended(path)
        elif path.exists():
            ended(path, "")
        return code, 2**20 * (1 + len(self.calls))

    def evaluate(self, folder, split, *, attempts=1, tasks=None):
        if split == "selection":
            self.selection.append((folder.name, tasks))
            evaluated(folder, "selection", BATCHES, outcomes(1, 1))
            return
        self.hidden.append(folder.name)
        found = outcomes(1, 1, 0, attempts=attempts)
        evaluated(folder, str(split), 4, found, attempts=attempts, temperature=1.0, verifier="v")

    def conduct(self, text=STUDY, interrupted=lambda: False):
        file = self.folder / "study.yaml"
        file.write_text(text)
        planned, folder = plan(file), self.folder / "out"
        self.changes = study.claim(planned, folder)
        told = []
        conduct = study.Conduct(planned, folder, told.append, True, interrupted)
        return planned, conduct()


def test_every_arm_meets_every_seed_once_and_hidden_once(world):
    planned, sides = world.conduct()
    assert world.calls == ["base-1", "fast-1", "base-2", "fast-2"]
    assert world.hidden == ["base-1", "fast-1", "base-2", "fast-2"]
    found = compare(sides, study.ask(planned, world.changes))
    assert found["hidden_uses"] == 4 and found["budget"] == {"key": "episodes", "size": 16}
    assert found["arms"][0]["peak_memory"] == 4 * 2**20 and found["arms"][1]["failed"] == 0
    states = {row["item"]: row["state"] for row in found["manifest"]}
    assert states["hardware"] == states["failed runs"] == "fixed"
    assert found["notes"] == ["fewer than 3 seeds, so no verdict: base, fast"]


def test_what_ended_is_not_repeated(world):
    world.conduct()
    world.calls.clear(), world.hidden.clear()
    world.conduct()
    assert world.calls == [] and world.hidden == []


def test_more_seeds_are_added_and_told(world):
    world.conduct()
    world.calls.clear()
    planned, sides = world.conduct(STUDY.replace("[1, 2]", "[1, 2, 3]"))
    assert world.calls == ["base-3", "fast-3"]
    notes = compare(sides, study.ask(planned, world.changes))["notes"]
    assert notes == ["changed after the study began: seeds.2"]


def test_an_interrupted_run_is_resumed_and_asks_nothing_of_hidden_before(world):
    world.codes = {"fast-1": 130}
    assert world.conduct()[1] is None
    assert world.calls == ["base-1", "fast-1"] and world.hidden == []
    world.calls.clear()
    assert world.conduct()[1] is not None
    assert world.calls == ["fast-1 again", "base-2", "fast-2"]


def test_a_request_to_stop_is_heard_between_runs(world):
    assert world.conduct(interrupted=lambda: len(world.calls) == 1)[1] is None
    assert world.calls == ["base-1"]


def test_a_failed_run_is_counted_left_out_and_tried_again(world):
    world.codes = {"fast-1": 1}
    planned, sides = world.conduct()
    assert [run.seed for run in sides[1].runs] == [2] and sides[1].failed == 1
    found = compare(sides, study.ask(planned, []))
    assert found["contrasts"][0]["seeds"] == [2]
    world.calls.clear()
    assert len(world.conduct()[1][1].runs) == 2 and world.calls == ["fast-1"]
    assert [row["code"] for row in journal.rows(world.folder / "out" / study.JOBS)][1] == 1


def test_an_arm_without_a_finished_run_is_told_and_the_others_are_compared(world):
    three = STUDY.replace("arms:", "arms:\n  slow: {set: {update.optimizer.lr: 1e-5}}")
    world.codes = {"fast-1": 137, "fast-2": 137}
    planned, sides = world.conduct(three)
    found = compare(sides, study.ask(planned, []))
    assert [arm["name"] for arm in found["arms"]] == ["base", "slow"]
    assert found["absent"] == [{"name": "fast", "failed": 2}]
    slow, fast = found["contrasts"]
    assert slow["seeds"] == [1, 2] and "difference" in slow
    assert (fast["seeds"], fast["verdict"]) == ([], "not enough data")
    assert "fast has no finished run (2 failed attempts): it is left out" in found["notes"]
    assert "fast: not enough data: no finished run" in headlines(found)
    assert markdown(found) and all("fast" not in s.columns for s in sheets(found))


def test_a_base_without_a_finished_run_leaves_the_arms_to_be_shown(world):
    world.codes = {"base-1": 1, "base-2": 1}
    planned, sides = world.conduct()
    found = compare(sides, study.ask(planned, []))
    assert [arm["name"] for arm in found["arms"]] == ["fast"]
    assert found["contrasts"][0]["verdict"] == "not enough data"
    assert "fast: not enough data: base has no finished run" in headlines(found)
    assert not any(sheet.title.startswith("What differs") for sheet in sheets(found))


def test_no_finished_run_at_all_is_nothing_to_compare(world):
    world.codes = {f"{arm}-{seed}": 1 for arm in ("base", "fast") for seed in (1, 2)}
    planned, sides = world.conduct()
    with pytest.raises(UserError, match=r"nothing to compare: base \(0 runs\)"):
        compare(sides, study.ask(planned, []))


def test_a_study_whose_first_run_is_refused_stops_at_once(world):
    world.codes = {"base-1": 2}
    world.begun = False
    with pytest.raises(UserError, match="base-1 cannot be trained"):
        world.conduct()
    assert world.calls == ["base-1"]


def test_a_run_that_is_refused_later_leaves_the_others_alone(world):
    world.codes, world.begun = {"fast-1": 2}, False
    planned, sides = world.conduct()
    assert world.calls == ["base-1", "fast-1", "base-2", "fast-2"]
    assert [run.seed for run in sides[1].runs] == [2] and sides[1].failed == 1
    assert study.refused(planned, world.folder / "out") == ["fast-1"]
    world.conduct()
    assert study.refused(planned, world.folder / "out") == []


def test_a_first_run_that_is_refused_after_it_began_does_not_stop_the_study(world):
    world.codes = {"base-1": 2}  # its folder holds a checkpoint
    planned, _ = world.conduct()
    assert len(world.calls) == 4 and study.refused(planned, world.folder / "out") == ["base-1"]


def test_an_arm_of_which_no_trial_was_scored_leaves_the_others_alone(world):
    world.codes = {"tuning/fast-1": 1, "tuning/fast-2": 1}
    _, sides = world.conduct(TUNED)
    assert [(side.name, len(side.runs), side.failed) for side in sides] == [
        ("base", 2, 0),
        ("fast", 0, 2),
    ]


def test_selection_is_measured_at_the_end_also_where_no_share_was_crossed_there(world):
    """A run that ends just short of its budget is chosen, and shown, by what it came to."""
    world.short = {"tuning/base-1", "tuning/base-2", "base-1"}
    world.conduct(TUNED)
    names = [name for name, _ in world.selection]
    assert names == ["base-1", "base-2", "base-1"] and world.selection[0][1] == 200


def test_a_changed_arm_does_not_pass_for_the_one_that_was_run(world):
    world.conduct()
    with pytest.raises(UserError, match=r"has changed since fast-1 was run: update\.optimizer\.lr"):
        world.conduct(STUDY.replace("1e-3", "1e-2"))


def test_tuning_chooses_on_selection_and_never_sees_hidden(world):
    planned, sides = world.conduct(TUNED)
    trials = [f"tuning/{name}-{i}" for name in ("base", "fast") for i in (1, 2)]
    assert world.calls[:4] == trials and len(world.calls) == 8
    assert not any(name.startswith("tuning") for name in world.hidden)
    assert [side.chosen for side in sides] == [{"update.minibatches": 2}] * 2
    for job in ("base-1", "fast-2"):
        kept = load(world.folder / "out" / job / "recipe.yaml")
        assert kept.update.minibatches == 2 and kept.run.seed in (1, 2)
    found = compare(sides, study.ask(planned, []))
    assert [arm["trials"] for arm in found["arms"]] == [2, 2]
    assert found["arms"][1]["axes"] == {"update": ["update.optimizer.lr"]}


def test_of_equal_trials_that_ended_the_first_is_chosen(world):
    equal = TUNED.replace("1}, {", "1}, {update.epochs: 2, update.minibatches: 1}, {")
    world.codes = {"tuning/base-3": 1}
    assert world.conduct(equal)[1][0].chosen == {"update.minibatches": 1}
