"""An expert that goes on from any state, and what it calls wrong."""

from typing import ClassVar

import pytest

from hexad.contract.messages import AssistantTurn, Message, Role, ToolCall
from hexad.contract.task import Split, Task
from hexad.environments.advice import Advising, is_right, wrong_turns
from hexad.environments.registry import family
from hexad.environments.wrap import disturb
from toyworld import ToyFamily

CALCULATOR = family("calculator")
TASK = Task("calculator:3+4*2", Split.TRAIN, {"expression": "3+4*2", "answer": 14})
QUESTION = Message(Role.USER, "3+4*2")


def call(a, op, b, **changes):
    return AssistantTurn("", (ToolCall("calculate", {"a": a, "op": op, "b": b}, **changes),))


def after(*turns):
    said = [QUESTION]
    for turn in turns:
        said += [turn.message(), *(Message(Role.TOOL, "7", c.name) for c in turn.tool_calls)]
    return said


SUM, PRODUCT, VALUE = call(3, "+", 4), call(7, "*", 2), AssistantTurn("14")
SUM_BACK, PRODUCT_BACK = call(4, "+", 3), call(2, "*", 7)


def test_the_next_call_either_way_round_or_the_value():
    first = (SUM, SUM_BACK, VALUE)
    assert CALCULATOR.advice(TASK, after()) == first
    assert CALCULATOR.advice(TASK, after(call(3, "-", 4), call(7, "*", 2))) == first
    assert CALCULATOR.advice(TASK, after(SUM)) == (PRODUCT, PRODUCT_BACK, VALUE)
    assert CALCULATOR.advice(TASK, after(call(3, "+", 5), SUM_BACK))[0] == PRODUCT
    assert CALCULATOR.advice(TASK, after(SUM, PRODUCT)) == (VALUE,)
    minus = Task("t", Split.TRAIN, {"expression": "3-4", "answer": -1})
    assert CALCULATOR.advice(minus, after()) == (call(3, "-", 4), AssistantTurn("-1"))


@pytest.mark.parametrize("name", ["calculator", "calculator-hard"])
def test_whoever_follows_the_advice_gives_the_demonstration(name):
    made = family(name)
    for task in made.tasks(Split.TRAIN, 20):
        shown, done = made.demonstration(task).turns, []
        for _ in shown:
            done.append(made.advice(task, after(*done))[0])
        assert tuple(done) == shown


def test_what_is_right():
    advised = (SUM, VALUE)
    assert is_right(SUM, advised) and is_right(AssistantTurn(" 14\n"), advised)
    wrong = [SUM_BACK, AssistantTurn("15"), AssistantTurn("hm", SUM.tool_calls)]
    wrong += [AssistantTurn("", SUM.tool_calls * 2), call(3, "+", 4, error="cut off")]
    assert not any(is_right(turn, advised) for turn in wrong)
    assert not is_right(SUM, ())


def test_the_wrong_turns_of_a_transcript():
    said = after(call(3, "-", 4), SUM, SUM, PRODUCT, AssistantTurn("14"))
    places = [place for place, message in enumerate(said) if message.role is Role.ASSISTANT]
    flags = [True, False, True, False, False]  # a call that was made already is wrong, too
    assert wrong_turns(CALCULATOR, TASK, said) == list(zip(places, flags, strict=True))


def test_advice_is_an_ability_that_disturbances_keep():
    class Nothing:
        config: ClassVar = {"nothing": True}

    assert isinstance(CALCULATOR, Advising) and not isinstance(ToyFamily(), Advising)
    disturbed = disturb(CALCULATOR, [Nothing()])
    assert isinstance(disturbed, Advising)
    assert disturbed.advice(TASK, after(SUM)) == CALCULATOR.advice(TASK, after(SUM))
    assert not isinstance(disturb(ToyFamily(), [Nothing()]), Advising)
