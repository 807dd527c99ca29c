"""A verifier of the user's in its own process: what crosses, what stops, what it cannot see."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from builders import episode
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.faults import UserError, VerifierFault
from hexad.contract.messages import Message, Role, ToolCall
from hexad.contract.task import Split, Task
from hexad.contract.verdict import Verdict, VerdictStatus
from hexad.environments.process import WorkerProcess
from hexad.environments.registry import Origin
from hexad.feedback.cards import Card
from hexad.feedback.isolated import IsolatedVerifier
from hexad.feedback.judge import Feedback, judge, require_verdict
from hexad.feedback.mapping import BinaryMapping
from hexad.feedback.registry import evaluation_verifier, verifier
from hexad.feedback.verifiers import AnswerVerifier
from hexad.feedback.wire import pack_origin, pack_request, unpack_origin, unpack_request

sys.path.append(str(Path(__file__).parents[1] / "run"))

ORIGIN = Origin("calculator", {"operations": {1: 0.5, 2: float("inf") - float("inf")}}, {}, 2)
GOOD = Origin("calculator", {"operations": {1: 1.0}}, {}, 2)
TASK = Task("t", Split.TRAIN, {"answer": 14, "by": {3: [1, None]}})
TRANSCRIPT = (
    Message(Role.USER, "8+6"),
    Message(Role.ASSISTANT, "", tool_calls=(ToolCall("add", {"a": 8}, None, "raw"),)),
    Message(Role.TOOL, "14", name="add"),
)


def ended():
    return episode(ending=Ending.of(EndingKind.TERMINAL), verdict=None, rewards=())


@pytest.fixture
def make():
    made = []

    def build(name):
        made.append(verifier(f"bad_parts:{name}", GOOD.make(), GOOD))
        return made[-1]

    yield build
    for one in made:
        one.close()
        assert one.live_workers == 0


def test_only_named_user_code_gets_processes():
    family = GOOD.make()
    assert isinstance(verifier(None, family, GOOD), AnswerVerifier)
    assert isinstance(verifier("bad_parts:Wrong", family, GOOD), IsolatedVerifier)
    assert not isinstance(verifier("bad_parts:Wrong", family), IsolatedVerifier)
    assert not isinstance(evaluation_verifier(family, None, GOOD), IsolatedVerifier)
    with pytest.raises(UserError, match="time limit"):
        verifier("bad_parts:Impatient", family, GOOD)


def test_everything_crosses_as_it_is():
    shown = episode()
    line = json.dumps(pack_request(TASK, shown, TRANSCRIPT))
    task, back, transcript = unpack_request(line)
    assert task == TASK and transcript == TRANSCRIPT and back.segments == shown.segments
    assert back.costs == shown.costs and back.provenance == shown.provenance
    name, own, origin = unpack_origin(pack_origin(ORIGIN, "a:b", {"near": 0.5, 1: None}))
    assert (
        name == "a:b"
        and own == {"near": 0.5, 1: None}
        and list(origin.options["operations"]) == [1, 2]
    )


def test_a_verdict_comes_back_and_prints_do_not(make):
    isolated = make("Echo")
    verdict = isolated.verify(TASK, ended(), TRANSCRIPT)
    assert verdict.status is VerdictStatus.WRONG and verdict.score == 0.25
    assert "'answer': 14" in verdict.evidence and "8+6" in verdict.evidence
    assert isolated.live_workers == 1 and isolated.digest == "bad_parts"


def test_a_time_limit_may_follow_from_the_task(make):
    isolated, long = make("TimedByTask"), Task("t", Split.TRAIN, {"seconds": 0.5})
    for verdict in (judge(isolated, long, ended(), TRANSCRIPT) for _ in range(2)):
        assert json.loads(verdict.evidence) == {"limit": "seconds", "allowed": 0.5}
    junk = judge(isolated, Task("t", Split.TRAIN, {"seconds": "long"}), ended(), TRANSCRIPT)
    assert junk.status is VerdictStatus.VERIFIER_ERROR and "is 'long'" in junk.evidence


@pytest.mark.parametrize("name", ["Hangs", "Spins"])
def test_a_hang_is_stopped_counted_and_the_next_one_gets_a_fresh_process(make, monkeypatch, name):
    isolated, limits, call = make(name), [], WorkerProcess.call

    def noted(worker, arguments, seconds):
        limits.append(seconds)
        return call(worker, arguments, seconds)

    monkeypatch.setattr(WorkerProcess, "call", noted)
    for _ in range(2):
        started = time.monotonic()
        verdict = judge(isolated, TASK, ended(), TRANSCRIPT)
        assert verdict.status is VerdictStatus.TIMEOUT and verdict.score == 0.0
        assert json.loads(verdict.evidence) == {"limit": "seconds", "allowed": 0.5}
        assert isolated.live_workers == 0 and time.monotonic() - started < 60
    assert limits == [0.5, 0.5]


def test_memory_beyond_the_limit_is_the_policys_doing_where_a_limit_is_declared(make):
    isolated = make("Hoards")
    for _ in range(2):
        verdict = judge(isolated, TASK, ended(), TRANSCRIPT)
        assert verdict.status is VerdictStatus.TIMEOUT
        assert json.loads(verdict.evidence) == {"limit": "MB", "allowed": 64}
    free = judge(make("Free"), TASK, ended(), TRANSCRIPT)
    assert free.status is VerdictStatus.VERIFIER_ERROR and "MemoryError" in free.evidence


def test_options_reach_the_verifier_in_its_process():
    made = verifier("bad_parts:Optioned", GOOD.make(), GOOD, {"near": 0.25})
    try:
        assert made.verify(TASK, ended(), TRANSCRIPT).score == 0.25
    finally:
        made.close()
    with pytest.raises(UserError, match=r"unexpected keyword argument 'far'") as caught:
        verifier("bad_parts:Optioned", GOOD.make(), GOOD, {"far": 1})
    assert caught.value.where == "feedback.options"


def test_the_card_of_the_verifier_is_shown_from_outside(make):
    assert make("Carded").card == Card("carded", "nothing", "everything")
    assert make("Echo").card is None
    with pytest.raises(UserError, match="card of BadlyCarded is a str"):
        make("BadlyCarded")


@pytest.mark.parametrize(
    ("name", "said"), [("Raises", "KeyError: 'boo'"), ("Exits", "crashed"), ("Junk", "a dict")]
)
def test_other_failures_are_told(make, name, said):
    with pytest.raises(VerifierFault, match=said):
        make(name).verify(TASK, ended(), TRANSCRIPT)


def test_the_process_sees_a_short_list_of_variables(make, monkeypatch):
    monkeypatch.setenv("HEXAD_TEST_SECRET", "key")
    monkeypatch.setenv("HEXAD_TEST_SEEN", "declared")
    evidence = make("Environ").verify(TASK, ended(), TRANSCRIPT).evidence
    assert "HEXAD_TEST_SECRET" not in evidence and "'HEXAD_TEST_SEEN': 'declared'" in evidence
    assert "PATH" in evidence and "HEXAD_TEST_SECRET" in os.environ


def test_feedback_closes_its_processes(make):
    isolated = make("Echo")
    feedback = Feedback(isolated, BinaryMapping())
    assert feedback.apply(TASK, ended(), TRANSCRIPT).rewards[0].value == 0.0
    feedback.close()
    assert isolated.live_workers == 0
    closed = feedback.apply(TASK, ended(), TRANSCRIPT)
    assert closed.verdict.status is VerdictStatus.VERIFIER_ERROR and "closed" in (
        closed.verdict.evidence
    )


@pytest.mark.parametrize(
    "junk",
    [
        Verdict("great", 1.0),
        Verdict(VerdictStatus.CORRECT, "1"),
        Verdict(VerdictStatus.CORRECT, True),
        Verdict(VerdictStatus.CORRECT, float("nan")),
        Verdict(VerdictStatus.CORRECT, 1.0, {"a": 1}),
        Verdict(VerdictStatus.CORRECT, 1.0, "\ud800"),
        Verdict(VerdictStatus.VERIFIER_ERROR, 0.0),
    ],
)
def test_a_verdict_that_cannot_be_stored_is_junk(junk):
    with pytest.raises(VerifierFault):
        require_verdict(junk)
