"""What may never be called, what somebody has to approve, and scripted policies that try it."""

import asyncio
import threading
import time

import pytest

from hexad.contract.ending import EndingKind
from hexad.contract.faults import EnvironmentFault
from hexad.contract.messages import AssistantTurn, ToolCall
from hexad.contract.refusal import RefusalReason
from hexad.contract.task import Split, Task
from hexad.environments import rehearsal
from hexad.environments.permission import Approval, Forbidden, Guard, answers
from hexad.environments.registry import family
from hexad.environments.replay import replay
from hexad.environments.task_card import TaskCard

TASK = Task("t", Split.TRAIN, {"expression": "3+4*2", "answer": 14})
TIMES = ToolCall("calculate", {"a": 7, "op": "*", "b": 2})
PLUS = ToolCall("calculate", {"a": 3, "op": "+", "b": 4})
NEVER = Guard((Forbidden("calculate", {"op": "*"}),))


def review(guard, *calls, **turn):
    return asyncio.run(guard.review(TASK, 3, AssistantTurn("", calls, **turn)))


def test_a_forbidden_call_is_named_and_the_others_pass():
    assert review(NEVER, PLUS).refusals == ()
    (refusal,) = review(NEVER, PLUS, TIMES).refusals
    assert (refusal.turn, refusal.call, refusal.tool) == (3, 1, "calculate")
    assert refusal.reason is RefusalReason.FORBIDDEN and refusal.violation
    told = [m.content for m in answers(AssistantTurn("", (PLUS, TIMES)), [refusal])]
    assert told == [
        "error: not executed: another call of the turn was refused",
        "error: not executed: calculate(op=*) is forbidden",
    ]


@pytest.mark.parametrize("value", ["*", " * "])
def test_another_spelling_is_the_same_argument(value):
    spelled = ToolCall("calculate", {"a": 7, "op": value, "b": 2})
    assert len(review(NEVER, spelled).refusals) == 1
    number = Guard((Forbidden("calculate", {"a": 7}),))
    assert len(review(number, ToolCall("calculate", {"a": "7"})).refusals) == 1
    assert review(number, ToolCall("calculate", {"b": 7})).refusals == ()


def test_what_the_environment_will_not_execute_is_no_violation():
    broken = ToolCall("calculate", {"op": "*"}, "not valid JSON")
    assert review(NEVER, broken).refusals == ()
    assert review(NEVER, TIMES, complete=False).refusals == ()


def test_a_rule_says_why():
    guard = Guard(rule=lambda task, call: "too large" if call.arguments["a"] > 5 else None)
    assert review(guard, PLUS).refusals == ()
    assert review(guard, TIMES).refusals[0].detail == "too large"
    with pytest.raises(EnvironmentFault, match=r"task\.guard\.rule raised ZeroDivisionError"):
        review(Guard(rule=lambda task, call: 1 / 0), PLUS)


def asking(approver, seconds=5.0):
    return Guard(approval=Approval(frozenset({"calculate"}), approver, seconds))


def yes(application):
    return True


class No:
    def __call__(self, application):
        return False


@pytest.mark.parametrize(
    ("said", "reason"), [(True, None), (False, "denied"), (None, "denied"), (1, "denied")]
)
def test_only_true_approves(said, reason):
    asked = []
    guard = asking(lambda application: (asked.append(application), said)[1])
    found = review(guard, PLUS)
    assert [r.reason for r in found.refusals] == ([] if reason is None else [reason])
    assert asked[0].call is PLUS and asked[0].task is TASK and asked[0].turn == 3


def test_silence_is_a_no_that_is_nobodys_violation():
    release = threading.Event()
    started = time.monotonic()
    found = review(asking(lambda application: release.wait(30), seconds=0.2), PLUS)
    release.set()
    assert time.monotonic() - started < 5
    (refusal,) = found.refusals
    assert refusal.reason is RefusalReason.UNANSWERED and not refusal.violation
    assert 0.15 < found.waited < 5


def test_an_approver_that_raises_is_a_fault_and_nothing_is_approved():
    def gone(application):
        raise TimeoutError("no connection")

    with pytest.raises(EnvironmentFault, match="approval raised TimeoutError"):
        review(asking(gone), PLUS)


def test_nobody_is_asked_about_a_turn_that_is_forbidden():
    asked = []
    guard = Guard(NEVER.forbidden, approval=asking(asked.append).approval)
    assert [r.reason for r in review(guard, PLUS, TIMES).refusals] == ["forbidden"]
    assert asked == []


def test_the_digest_is_of_every_rule():
    other = Guard((Forbidden("calculate", {"op": "+"}),))
    approved = [asking(yes), asking(No()), asking(yes, 9.0), Guard(rule=yes)]
    digests = [g.digest for g in (Guard(), NEVER, other, *approved)]
    assert len(set(digests)) == len(digests)


def test_a_refused_turn_is_answered_alike_when_it_is_played_again():
    calculator = family("calculator")
    turns = [AssistantTurn("", (PLUS,)), AssistantTurn("", (TIMES,)), AssistantTurn("14")]
    refusals = asyncio.run(NEVER.review(TASK, 1, turns[1])).refusals
    again, _ = replay(calculator, TASK, 0, turns, refusals=refusals)
    assert again.messages[-1].content == "error: not executed: calculate(op=*) is forbidden"
    assert again.states[1] == again.states[2] != again.states[3]


# -- scripted policies ----------------------------------------------------------------------------


def rehearse(guard=None, calculator=None):
    found = rehearsal.rehearse(calculator or family("calculator"), TASK, guard, 4)
    return found["card"], {row["script"]: row for row in found["scripts"]}


def test_the_calculator_keeps_its_card():
    card, rows = rehearse(NEVER)
    assert card["endings"] == ["terminal"] and card["budget"] == ""
    assert all(row["kept"] for row in rows.values())
    assert rows["the expert"]["turns"] == 3 and rows["the expert"]["refused"] == ["forbidden"]
    assert rows["answers nothing"]["ending"] == "terminal"
    assert rows["never stops"] | {"turns": 4, "ending": None} == rows["never stops"]
    assert rows["calls calculate(op=*)"]["refused"] == ["forbidden"]


def test_an_ending_that_the_card_does_not_name_is_told():
    calculator = family("calculator")
    calculator.task_card = TaskCard((EndingKind.INVALID_ACTION,))
    _, rows = rehearse(calculator=calculator)
    assert not rows["the expert"]["kept"] and rows["never stops"]["kept"]


def test_nobody_is_asked_in_a_rehearsal():
    asked = []
    _, rows = rehearse(asking(asked.append))
    assert rows["calls calculate unapproved"]["refused"] == ["denied"] and asked == []
