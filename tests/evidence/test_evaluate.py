from dataclasses import replace
from types import SimpleNamespace

import pytest

from hexad.contract.events import EpisodeDone, Evaluated, Timed
from hexad.contract.faults import FaultRecord
from hexad.contract.task import Split, Task
from hexad.environments.protocol import stratum_of
from hexad.evidence import evaluate as module
from hexad.evidence import journal
from hexad.evidence.evaluate import Question, evaluate
from hexad.evidence.exam import tabulate


class Family:
    name = "calculator"
    stratum = "operations"

    def tasks(self, split, count):
        return [Task(f"t{i}", split, {"operations": 1 + i % 2}) for i in range(count)]


@pytest.fixture
def world():
    feedback = SimpleNamespace(digest="verifier-digest")
    sampling = SimpleNamespace(temperature=1.0)
    return SimpleNamespace(family=Family(), feedback=feedback, sampling=sampling, prices=None)


@pytest.fixture
def played(monkeypatch, episode):
    """Replace the rollout: episode ``i`` gets the verdict ``statuses[i]``; plans are kept."""
    seen = []

    def install(*statuses):
        def collect(plans, world, *, rows, done):
            seen.append(plans)
            episodes = [
                replace(
                    episode(plan.episode_id, status=status, ending=_ending(status)),
                    task_id=plan.task.task_id,
                    stratum=stratum_of(world.family, plan.task),
                )
                for plan, status in zip(plans, statuses, strict=True)
            ]
            for each in episodes:
                done(each)
            return episodes

        monkeypatch.setattr(module, "collect", collect)
        return seen

    return install


def _ending(status):
    return "environment_error" if status == "environment_failure" else "terminal"


STATUSES = ("correct", "wrong", "environment_failure", "verifier_error")


def test_success_is_out_of_scored_and_the_rest_is_listed(world, played, tmp_path):
    played(*STATUSES)
    result = evaluate(Question(Split.SELECTION, 4, 7, 0), world, folder=tmp_path)
    assert result.success == 0.5 and result.rate.scored == 2 and result.episodes == 4
    (row,) = journal.rows(tmp_path / journal.EVALUATIONS)
    assert (row["step"], row["split"], row["unscored"]) == (7, "selection", 2)
    assert row["verdicts"] == dict.fromkeys(STATUSES, 1)
    assert row["endings"] == {"terminal": 3, "environment_error": 1}
    assert row["low"] < 0.5 < row["high"] and row["verifier"] == "verifier-digest"


def test_success_is_broken_down_by_the_familys_strata(world, played, tmp_path):
    played(*STATUSES)
    result = evaluate(Question(Split.SELECTION, 4, 0, 0), world, folder=tmp_path)
    assert {k: (r.correct, r.scored) for k, r in result.strata.items()} == {
        "operations 1": (1, 1),
        "operations 2": (0, 1),
    }


def test_a_rate_of_nothing_is_absent(world, played, tmp_path):
    played("verifier_error")
    result = evaluate(Question(Split.SELECTION, 1, 0, 0), world, folder=tmp_path)
    assert result.success is None
    (row,) = journal.rows(tmp_path / journal.EVALUATIONS)
    assert not {"success", "low", "high"} & set(row) and row["scored"] == 0


def test_every_hidden_use_is_counted_even_one_that_did_not_end(
    world, played, tmp_path, monkeypatch
):
    played("correct")
    question = Question(Split.HIDDEN, 1, 0, 0)
    evaluate(question, world, folder=tmp_path)
    evaluate(replace(question, split=Split.SELECTION), world, folder=tmp_path)

    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "collect", killed)
    with pytest.raises(KeyboardInterrupt):
        evaluate(question, world, folder=tmp_path)
    played("correct")
    evaluate(question, world, folder=tmp_path)
    assert journal.hidden_uses(tmp_path) == 3
    shown = [row["time"]["hidden_uses"] for row in journal.rows(tmp_path / journal.EVALUATIONS)]
    assert shown == [1, 1, 3]


def test_episodes_reach_the_books_as_auxiliary_and_seconds_as_evaluation(world, played, tmp_path):
    played("correct", "wrong")
    events = []
    evaluate(Question(Split.SELECTION, 2, 5, 0), world, folder=tmp_path, sink=events.append)
    done = [event for event in events if isinstance(event, EpisodeDone)]
    assert [event.purpose for event in done] == ["evaluation"] * 2
    (timed,) = [event for event in events if isinstance(event, Timed)]
    assert timed.phase == "evaluation" and timed.seconds >= 0
    assert events[-1] == Evaluated(5, "selection", 2, 2, 0.5, events[-1].low, events[-1].high)


def test_two_versions_are_compared_on_equal_luck(world, played, tmp_path):
    seen = played("correct", "wrong")
    for version in (1, 2):
        evaluate(Question(Split.SELECTION, 2, version, 3), world, folder=tmp_path)
    first, second = ([plan.key() for plan in plans] for plans in seen)
    assert first == second and len(set(first)) == 2


def test_without_a_verifier_there_is_no_evaluation(world, tmp_path):
    world.feedback = None
    with pytest.raises(ValueError, match="verifier"):
        evaluate(Question(Split.SELECTION, 1, 0, 0), world, folder=tmp_path)


def test_costs_are_of_episodes_that_did_not_fault(episode):
    fault = FaultRecord("tool", "ToolFault", "gone", 0)
    whole = episode("a", tokens=8, tool_calls=2)
    broken = replace(
        episode("b", tokens=99, status="environment_failure", ending="environment_error"),
        faults=(fault,),
    )
    result = tabulate("selection", 0, [whole, broken])
    assert (
        result.tokens["mean"] == 8
        and result.tool_calls["mean"] == 2
        and result.faults == {"tool": 1}
    )
    assert result.strata == {}
