import json
import math

import numpy as np
import pytest

from builders import episode
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.faults import (
    ContractViolation,
    EngineFault,
    FaultRateExceeded,
    UserError,
    VerifierFault,
)
from hexad.contract.messages import Message, Role
from hexad.contract.reward import Reward
from hexad.contract.task import Split, Task
from hexad.contract.verdict import UNSCORED, Verdict, VerdictStatus
from hexad.feedback.judge import Feedback, judge
from hexad.feedback.mapping import BinaryMapping, mapping
from hexad.rollout.rates import check_unscored_rate

TASK = Task("t", Split.TRAIN, {"answer": 14})
TRANSCRIPT = (Message(Role.ASSISTANT, "14"),)
RIGHT = Verdict(VerdictStatus.CORRECT, 1.0)


class Scripted:
    """A verifier that returns or raises what it was given, and counts."""

    digest = "scripted"

    def __init__(self, outcome):
        self.outcome, self.calls = outcome, 0

    def verify(self, task, judged, transcript):
        self.calls += 1
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


def ended(kind, **changes):
    return episode(ending=Ending.of(kind, "why"), verdict=None, rewards=(), **changes)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (EndingKind.ENVIRONMENT_ERROR, VerdictStatus.ENVIRONMENT_FAILURE),
        (EndingKind.INFRASTRUCTURE_ERROR, VerdictStatus.INFRASTRUCTURE_ERROR),
    ],
)
def test_a_faulted_episode_is_never_shown_to_the_verifier(kind, status):
    verifier = Scripted(RIGHT)
    judged = Feedback(verifier, BinaryMapping()).apply(TASK, ended(kind), TRANSCRIPT)
    assert verifier.calls == 0
    assert judged.verdict.status is status and judged.verdict.score is None
    assert json.loads(judged.verdict.evidence) == {"reason": "why"}
    assert judged.rewards == () and not judged.scored


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ValueError("bad"), "ValueError"),
        (RecursionError("deep"), "RecursionError"),
        (VerifierFault("mine"), "VerifierFault"),
    ],
)
def test_a_verifier_that_raises_is_unscored_and_keeps_the_type(raised, kind):
    verdict = judge(Scripted(raised), TASK, ended(EndingKind.TERMINAL), TRANSCRIPT)
    assert verdict.status is VerdictStatus.VERIFIER_ERROR and verdict.score is None
    assert json.loads(verdict.evidence) == {"type": kind, "message": str(raised)}


def test_evidence_can_always_be_stored():
    verdict = judge(
        Scripted(ValueError("\ud800" + "x" * 10**6)), TASK, ended(EndingKind.TERMINAL), TRANSCRIPT
    )
    assert verdict.evidence.encode() and len(verdict.evidence) < 1000


@pytest.mark.parametrize("raised", [ContractViolation("bug"), UserError("u"), EngineFault("e")])
def test_what_is_not_the_verifiers_failure_passes_through(raised):
    with pytest.raises(type(raised)):
        judge(Scripted(raised), TASK, ended(EndingKind.TERMINAL), TRANSCRIPT)


@pytest.mark.parametrize(
    "junk",
    [
        None,
        1.0,
        True,
        Verdict(VerdictStatus.CORRECT, None),
        Verdict(VerdictStatus.CORRECT, float("nan")),
        Verdict(VerdictStatus.WRONG, -0.1),
        Verdict(VerdictStatus.CORRECT, 1.5),
        Verdict(VerdictStatus.VERIFIER_ERROR, 0.0),
    ],
)
def test_a_junk_verdict_is_a_verifier_error(junk):
    verdict = judge(Scripted(junk), TASK, ended(EndingKind.TERMINAL), TRANSCRIPT)
    assert verdict.status is VerdictStatus.VERIFIER_ERROR and not verdict.scored


@pytest.mark.parametrize("kind", [EndingKind.USER_CANCEL, EndingKind.PAUSED])
def test_a_censored_episode_has_no_verdict_and_no_reward(kind):
    verifier = Scripted(RIGHT)
    judged = Feedback(verifier, BinaryMapping()).apply(TASK, ended(kind), TRANSCRIPT)
    assert (judged.verdict, judged.rewards, verifier.calls) == (None, (), 0)


@pytest.mark.parametrize("status", list(VerdictStatus))
def test_binary_mapping_covers_every_status(status):
    scored = status not in UNSCORED
    verdict = Verdict(status, 0.5 if scored else None)
    rewards = BinaryMapping().rewards(verdict, ended(EndingKind.TERMINAL))
    expected = (Reward("task", 1.0 if status is VerdictStatus.CORRECT else 0.0),)
    assert rewards == (expected if scored else ())


def test_truncated_episodes_are_scored_and_environment_rewards_are_kept():
    given = (Reward("progress", 0.25),)
    cut = episode(ending=Ending.of(EndingKind.TRUNCATED_TURNS), verdict=None, rewards=given)
    wrong = Scripted(Verdict(VerdictStatus.WRONG, 0.0))
    judged = Feedback(wrong, BinaryMapping()).apply(TASK, cut, TRANSCRIPT)
    assert judged.rewards == (*given, Reward("task", 0.0)) and judged.scored
    failing = Feedback(Scripted(ValueError()), BinaryMapping()).apply(TASK, cut, TRANSCRIPT)
    assert failing.rewards == () and not failing.scored


def test_group_of_success_failure_crash_and_grader_timeout():
    """Field case O16.1: two of four are scored, success is one half of them."""
    feedback = [Scripted(RIGHT), Scripted(Verdict(VerdictStatus.WRONG, 0.0)), Scripted(RIGHT)]
    feedback.append(Scripted(TimeoutError("grader")))
    kinds = [EndingKind.TERMINAL] * 4
    kinds[2] = EndingKind.ENVIRONMENT_ERROR
    group = [
        Feedback(verifier, BinaryMapping()).apply(TASK, ended(kind, member=i), TRANSCRIPT)
        for i, (verifier, kind) in enumerate(zip(feedback, kinds, strict=True))
    ]
    assert [e.scored for e in group] == [True, True, False, False]
    values = np.array([e.score({}) for e in group if e.scored])
    assert (values - values.mean()).tolist() == [0.5, -0.5]
    assert [e.verdict.success for e in group if e.scored].count(True) / 2 == 0.5
    assert all(math.isnan(unscored.score({})) for unscored in group[2:])


def test_score_is_the_weighted_sum_and_missing_is_not_zero():
    rewards = (Reward("task", 1.0), Reward("format", 0.5), Reward("task", 0.25))
    made = episode(rewards=rewards)
    assert made.score({}) == 1.75
    assert made.score({"task": 2.0, "format": -1.0}) == 2.0
    assert made.score({"task": 0.0, "other": 9.0}) == 0.5
    assert math.isnan(episode(rewards=()).score({}))
    assert math.isnan(episode(verdict=None, rewards=rewards).score({}))


@pytest.mark.parametrize(
    ("means", "score", "rewards"), [("wrong", 0.0, (Reward("task", 0.0),)), ("unscored", None, ())]
)
def test_a_timeout_counts_as_the_recipe_says(means, score, rewards):
    late = Verdict(VerdictStatus.TIMEOUT, 0.0, "{}")
    feedback = Feedback(Scripted(late), BinaryMapping(), means)
    judged = feedback.apply(TASK, ended(EndingKind.TERMINAL), TRANSCRIPT)
    assert judged.verdict.status is VerdictStatus.TIMEOUT and judged.verdict.score == score
    assert judged.rewards == rewards and judged.scored is (means == "wrong")
    failed = Feedback(Scripted(ValueError()), BinaryMapping(), means)
    assert not failed.apply(TASK, ended(EndingKind.TERMINAL), TRANSCRIPT).scored


def test_unscored_timeouts_stop_the_run_beyond_its_limit():
    late = Scripted(Verdict(VerdictStatus.TIMEOUT, 0.0))
    group = [
        Feedback(late, BinaryMapping(), "unscored").apply(TASK, ended(EndingKind.TERMINAL), ())
    ]
    with pytest.raises(FaultRateExceeded, match="timeout x 1"):
        check_unscored_rate(group, 0.5)


def test_feedback_digest_changes_with_verifier_mapping_and_timeout():
    class Other(BinaryMapping):
        version = "binary/2"

    one = Feedback(Scripted(RIGHT), BinaryMapping())
    assert one.digest == Feedback(Scripted(RIGHT), BinaryMapping()).digest
    assert one.digest != Feedback(Scripted(RIGHT), Other()).digest
    assert one.digest != Feedback(Scripted(RIGHT), BinaryMapping(), "unscored").digest
    changed = Scripted(RIGHT)
    changed.digest = "other"
    assert one.digest != Feedback(changed, BinaryMapping()).digest


def test_mappings_resolve_by_name():
    assert mapping("binary").version == "binary/1"
    assert mapping("hexad.feedback.mapping:BinaryMapping").version == "binary/1"
    with pytest.raises(UserError, match="did you mean binary"):
        mapping("binery")
    with pytest.raises(UserError, match="makes a dict"):
        mapping("hexad.feedback.mapping:MAPPINGS")
