"""``hexad verify``, ``rescore`` and ``gate`` on a real, tiny run."""

import contextlib
import io
import json
import shutil
from dataclasses import replace

import pytest

from hexad.cli import main as entry
from hexad.cli.gate import held
from hexad.contract.store import Store
from hexad.recipe.gate import GateFile

RECIPE = """
method: grpo
task: {limits: {turns: 2, turn_tokens: 8, context_tokens: 160}}
data: {groups: 2, group_size: 2}
budget: {episodes: 12}
update: {minibatches: 1}
run: {evaluation: {every: null, final: none}, checkpoints: {every: 1}}
system: {engine_rows: 16, threads: 1}
"""


def hexad(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        with pytest.raises(SystemExit) as caught:
            entry.main([*(str(word) for word in words), "--json"])
    return caught.value.code, json.loads(out.getvalue().splitlines()[-1]), err.getvalue()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "r.yaml").write_text(RECIPE)
    code, _, err = hexad("train", folder / "r.yaml", "--run", folder / "run")
    assert code == 0, err
    return folder / "run"


@pytest.fixture
def tampered(run, tmp_path):
    """Copy the run with its last step's episodes changed by a function."""

    def change(edit):
        shutil.copytree(run, tmp_path / "run")
        store = Store(tmp_path / "run" / "episodes")
        last = store.last_step
        episodes = [edit(episode) for episode in store.read([last])]
        store.truncate(last - 1)
        store.append(last, episodes)
        return tmp_path / "run"

    return change


def test_an_honest_run_reproduces_to_the_bound(run):
    code, found, err = hexad("verify", run, "--episodes", 6)
    assert (code, found["reproduced"], found["episodes"]) == (0, True, 4), (found, err)
    assert found["logprob"]["episodes"] == 4 and 0 <= found["logprob"]["largest"] <= 5e-6
    assert found["executed"] and found["verifier"]["same"]


def test_what_was_tampered_with_is_named(tampered):
    from dataclasses import replace

    from hexad.contract.ending import Ending, EndingKind
    from hexad.contract.reward import Reward
    from hexad.contract.verdict import Verdict, VerdictStatus

    def lie(episode):
        if episode.member == 0:
            return replace(
                episode,
                verdict=Verdict(VerdictStatus.CORRECT, 1.0),
                rewards=(Reward("task", 1.0),),
                ending=Ending.of(EndingKind.BUDGET_TERMINAL),
            )
        (segment,) = episode.segments
        moved = segment.logprob.copy()
        moved[segment.action] += 1e-3
        return replace(episode, segments=(replace(segment, logprob=moved),))

    code, found, _ = hexad("verify", tampered(lie), "--episodes", 64)
    assert code == 1 and not found["reproduced"]
    said = [text for row in found["differs"] for text in row["differs"]]
    assert any("the verdict was correct" in text for text in said)
    assert any("it ended as budget_terminal" in text for text in said)
    assert any("a log-prob differs by 0.001" in text for text in said)


def test_without_a_log_prob_or_an_episode_nothing_is_proved(run, tampered, tmp_path):
    from hexad.contract.episode import Actor

    shutil.copytree(run, tmp_path / "copy")
    for path in sorted((tmp_path / "copy" / "checkpoints").iterdir())[:-1]:
        shutil.rmtree(path)
    code, found, err = hexad("verify", tmp_path / "copy")
    assert (code, found["reproduced"], found["differs"]) == (1, None, []), err
    assert found["checked"] == {
        "log-probs": 0,
        "states, tool results and endings": 4,
        "rewards, process signals and gates": 4,
    }
    assert any("log-probs of 4 of 4 episodes: no checkpoint" in t for t in found["not_checked"])
    experts = tampered(lambda episode: replace(episode, actor=Actor.EXPERT))
    code, found, _ = hexad("verify", experts)
    assert (code, found["reproduced"], found["episodes"]) == (1, None, 0)
    assert "anything" in found["not_checked"][0]


def test_signals_gates_and_a_verdict_that_was_none_are_compared(tampered):
    from hexad.contract.reward import Gate, Levels

    edits = (
        {"signals": (Levels("remaining", (0.0, 1.0)),)},
        {"gate": Gate(1.0, "effort")},
        {"verdict": None, "rewards": ()},
    )
    count = iter(range(len(edits) + 1))

    def edit(episode):
        number = next(count)
        return replace(episode, **edits[number]) if number < len(edits) else episode

    code, found, _ = hexad("verify", tampered(edit), "--episodes", 64)
    said = [text for row in found["differs"] for text in row["differs"]]
    assert code == 1 and len(said) == 3, said
    for start in ("the process signals said", "the gate was Gate(", "the verdict was none"):
        assert any(text.startswith(start) for text in said), (start, said)


def test_where_nothing_is_executed_again_the_feedback_own_rewards_are_compared(
    run, tampered, monkeypatch
):
    from hexad.contract.reward import Reward

    monkeypatch.setattr("hexad.evidence.reproduce.uncontained", lambda family: ["calculate"])
    code, found, err = hexad("verify", run, "--episodes", 6)
    assert (code, found["reproduced"], found["executed"]) == (0, True, False), err
    assert any(text.startswith("states, tool results") for text in found["not_checked"])

    def edit(episode):
        if episode.member == 0:  # what an environment gave stands first
            return replace(episode, rewards=(Reward("bonus", 1.0), *episode.rewards))
        return replace(episode, rewards=(Reward("task", 0.25),))

    code, found, _ = hexad("verify", tampered(edit), "--episodes", 64)
    assert code == 1 and len(found["differs"]) == 2
    assert all(row["differs"][0].startswith("the rewards were") for row in found["differs"])
    assert any(text.startswith("2 rewards that the env") for text in found["not_checked"])


def test_rescoring_shows_what_changes_and_overwrites_nothing(run):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    code, same, err = hexad("rescore", run)
    assert code == 0, err
    assert same["agreement"] in (1.0, None) and same["episodes"] == 12
    assert all(row["before"] == row["now"] for row in same["changes"])
    assert list(same["digests"]["before"]) == [same["digests"]["now"]]
    code, other, _ = hexad("rescore", run, "--verifier", "left_to_right")
    assert code == 0 and other["digests"]["now"] != same["digests"]["now"]
    _, again, _ = hexad("rescore", run)
    assert again["written"] != same["written"]
    rows = [json.loads(line) for line in open(same["written"])]
    assert len(rows) == 12 and {"episode_id", "before", "now", "score"} <= set(rows[0])
    assert all(path.read_bytes() == bytes_ for path, bytes_ in before.items())


def test_rescoring_gives_a_verifier_its_options_and_refuses_those_that_it_does_not_take(run):
    near = ("--verifier", "numeric", "--option", "absolute=1e9")
    code, far, err = hexad("rescore", run, "--verifier", "numeric")
    code, all_near, err = hexad("rescore", run, *near, "--option", "relative=0.5")
    assert code == 0 and far["digests"]["now"] != all_near["digests"]["now"], err
    for words, what, where in (
        ((*near, "--option", "nearr=1"), "unexpected keyword argument 'nearr'", "feedback.options"),
        ((*near, "--option", "relative=x"), "relative is 'x'", "feedback.options.relative"),
        (("--option", "near=1"), "unexpected keyword argument 'near'", "feedback.options"),
        ((*near, "--option", "relative"), "written key=value", "--option"),
        ((*near, "--option", "relative=[1"), "not valid YAML", "--option"),
    ):
        code, refused, _ = hexad("rescore", run, *words)
        assert code == 2 and what in refused["error"]["what"], refused
        assert refused["error"]["where"].startswith(where)


def test_the_audit_finds_what_was_paid_for_nothing(tampered):
    from dataclasses import replace

    from hexad.contract.reward import Reward
    from hexad.contract.verdict import Verdict, VerdictStatus
    from hexad.evidence.summary import render, summarize

    def pay(episode):
        if episode.member:
            return episode
        paid = (Reward("task", 1.0),)
        return replace(episode, verdict=Verdict(VerdictStatus.CORRECT, 1.0), rewards=paid)

    folder = tampered(pay)
    code, found, err = hexad("audit", folder)
    assert code == 0, err
    assert sum(found["cells"].values()) + found["unscored"] == 12
    assert found["cells"]["high-miss"] == len(found["episodes"]["high-miss"]) == 2
    assert found["paid_for_nothing"] == 2 / (2 + found["cells"]["high-hit"])
    assert found["interval"][0] < found["paid_for_nothing"]
    (stage,) = summarize(folder)["stages"]
    assert stage["audit"]["cells"] == found["cells"] and render(summarize(folder))
    code, refused, _ = hexad("audit", folder, "--cell", "middle")
    assert code == 2 and "no cell" in refused["error"]["what"]


def test_one_verifier_on_both_sides_is_no_independent_outcome(run, tmp_path, monkeypatch):
    code, found, err = hexad("audit", run)
    assert code == 0 and found["independent"], err
    monkeypatch.setattr("hexad.environments.calculator.CalculatorFamily.evaluation_verifier", None)
    code, refused, _ = hexad("audit", run)
    assert code == 2 and "no independent outcome" in refused["error"]["what"]
    shutil.copytree(run, tmp_path / "copy")
    path = tmp_path / "copy" / "recipe.yaml"
    asked = "process: {remaining: {signal: remaining_operations, paid: increment}}"
    assert "  process: {}" in path.read_text()
    path.write_text(path.read_text().replace("process: {}", asked))
    code, found, err = hexad("audit", tmp_path / "copy", "--process", "remaining")
    assert code == 0 and not found["independent"], (found, err)
    _, found, _ = hexad("diagnose", run)
    (stage,) = found["stages"]
    assert "quadrants" not in stage["facts"]
    assert any(text.startswith("quadrants: one verifier") for text in stage["not_checked"])


def test_a_gate_answers_with_its_exit_code(run, tmp_path):
    file = tmp_path / "gate.yaml"
    file.write_text("tasks: 4\nunscored: 0\np95: {turns: 9}\n")
    code, found, err = hexad("gate", run, file)
    assert (code, found["passed"]) == (0, True), err
    file.write_text("tasks: 4\nsuccess: 0.9\n")
    code, found, _ = hexad("gate", run, file)
    assert (code, found["passed"]) == (1, False)
    assert found["demands"][0]["measured"] < 0.9 and not found["demands"][0]["met"]
    for text, said in (("p95: {}\n", "asks nothing"), ("succes: 0.5\n", "did you mean success")):
        file.write_text(text)
        code, found, _ = hexad("gate", run, file)
        assert code == 2 and said in str(found["error"]), found


def test_demands_are_of_the_lower_bound_and_what_was_not_measured_is_not_met():
    row = {"success": 0.95, "low": 0.89, "verdicts": {"invalid": 1}, "endings": {}, "unscored": 2}
    row["endings"] = {"invalid_action": 1}
    asked = GateFile(success=0.9, invalid=2, unscored=1, p95={"tool_calls": 3})
    met = {demand["demand"]: demand["met"] for demand in held(asked, row)}
    assert met == {
        "success, lower bound": False,
        "invalid": True,
        "unscored": False,
        "tool_calls, p95": False,
    }
    assert held(GateFile(success=0.89, unscored=2), row)[0]["met"]


def test_a_run_is_diagnosed_and_what_was_not_checked_is_said(run, tampered):
    code, found, err = hexad("diagnose", run)
    (stage,) = found["stages"]
    assert code == 0, err
    keys = [finding["key"] for finding in stage["findings"]]
    assert "engine-mismatch" not in keys and "observations-count" not in keys
    assert stage["facts"]["batches"] == 3 and stage["facts"]["episodes"] == 12
    assert sum(row["episodes"] for row in stage["facts"]["endings"].values()) == 12
    cells = stage["facts"]["quadrants"]
    assert sum(cells[name] for name in ("high-hit", "high-miss", "low-hit", "low-miss")) == 12
    assert "trends: fewer than 30 batches with a training success" in stage["not_checked"]

    def spoil(episode):
        segment = episode.segments[0]
        weight = segment.weight.copy()
        weight[~segment.action] = 1.0
        return replace(episode, segments=(replace(segment, weight=weight),))

    _, spoiled, _ = hexad("diagnose", tampered(spoil))
    first = spoiled["stages"][0]["findings"][0]
    assert first["key"] == "observations-count" and first["axis"] == "action"
    assert first["tries"] and first["source"]
