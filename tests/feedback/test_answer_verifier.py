import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import episode
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.faults import VerifierFault
from hexad.contract.messages import Message, Role, ToolCall
from hexad.contract.task import Split, Task
from hexad.contract.verdict import VerdictStatus
from hexad.environments.calculator import CalculatorFamily
from hexad.environments.calculator_hard import HardCalculatorFamily
from hexad.environments.expression import Expression, Grammar
from hexad.feedback.verifiers import (
    AnswerVerifier,
    RecomputingVerifier,
    left_to_right,
    with_precedence,
)

TASK = Task("calculator:3+4*2", Split.TRAIN, {"expression": "3+4*2", "answer": 14})
ANSWERED = episode(ending=Ending.of(EndingKind.TERMINAL, "answered"))
VERIFIERS = [AnswerVerifier(), RecomputingVerifier(precedence=False)]


def said(content, *, calls=()):
    question = Message(Role.USER, "3+4*2")
    return (question, Message(Role.ASSISTANT, content, tool_calls=calls))


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("content", ["14", " 14", "14\n", "\t14 \r\n"])
def test_the_right_integer_is_correct(verifier, content):
    verdict = verifier.verify(TASK, ANSWERED, said(content))
    assert verdict.status is VerdictStatus.CORRECT
    assert verdict.score == 1.0 and verdict.success and verdict.scored


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("content", ["15", "-14", "0", "999999999999999999"])
def test_another_integer_is_wrong(verifier, content):
    verdict = verifier.verify(TASK, ANSWERED, said(content))
    assert verdict.status is VerdictStatus.WRONG and verdict.score == 0.0


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize(
    "content",
    [
        "", "   ", "14.0", "14.", "+14", "014", "-0", "1_4", "0x0e", "1e1", "14 14", "14\n15",
        "14,", "=14", "14=14", "NaN", "inf", "None", "true", "fourteen", "١٤", "１４", "²", "1 4",
        "\u00a014", "14\u200b", "\u202814", "14\x00", "1" * 19, "9" * 10**6, "14" + " " * 10 + "!",
        "<answer>14</answer>", "\ud800",
    ],
)  # fmt: skip
def test_anything_but_one_canonical_integer_is_invalid(verifier, content):
    verdict = verifier.verify(TASK, ANSWERED, said(content))
    assert verdict.status is VerdictStatus.INVALID
    assert verdict.score == 0.0 and verdict.scored and not verdict.success
    evidence = json.loads(verdict.evidence)
    assert evidence["problem"] == "not an integer"
    assert len(verdict.evidence) < 200 and verdict.evidence.isascii()


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_no_answer_is_wrong_and_says_so(verifier):
    call = ToolCall("calculate", {"a": 3, "op": "+", "b": 4})
    cut = episode(ending=Ending.of(EndingKind.TRUNCATED_TURNS))
    cases = [
        (ANSWERED, said("14", calls=(call,))),
        (ANSWERED, (*said("", calls=(call,)), Message(Role.TOOL, "14"))),
        (ANSWERED, ()),
        (cut, said("14")),
    ]
    for judged, transcript in cases:
        verdict = verifier.verify(TASK, judged, transcript)
        assert verdict.status is VerdictStatus.WRONG and verdict.score == 0.0
        assert json.loads(verdict.evidence)["problem"] == "no answer"


def test_only_the_last_message_counts():
    transcript = (Message(Role.USER, "q"), Message(Role.ASSISTANT, "14"), *said("15"))
    assert not AnswerVerifier().verify(TASK, ANSWERED, transcript).success


@given(st.text())
def test_any_text_gets_a_scored_verdict_and_only_the_integer_is_right(content):
    verdict = AnswerVerifier().verify(TASK, ANSWERED, said(content))
    assert verdict.scored
    assert verdict.success == (content.strip(" \t\r\n") == "14")


@pytest.mark.parametrize("stored", [None, "14", 14.0, True])
def test_a_task_without_an_integer_answer_is_the_verifiers_fault(stored):
    with pytest.raises(VerifierFault):
        AnswerVerifier().verify(Task("t", Split.TRAIN, {"answer": stored}), ANSWERED, said("14"))


def test_the_verifiers_are_independent_so_a_wrong_stored_answer_shows():
    spoiled = Task("t", Split.TRAIN, {"expression": "3+4*2", "answer": 11})
    training, evaluation = VERIFIERS
    assert training.verify(spoiled, ANSWERED, said("11")).success
    assert not evaluation.verify(spoiled, ANSWERED, said("11")).success
    assert evaluation.verify(spoiled, ANSWERED, said("14")).success
    assert RecomputingVerifier(precedence=True).verify(spoiled, ANSWERED, said("11")).success


@pytest.mark.parametrize(
    ("family", "precedence"), [(CalculatorFamily, False), (HardCalculatorFamily, True)]
)
def test_both_verifiers_agree_on_every_generated_task(family, precedence):
    recomputing = RecomputingVerifier(precedence=precedence)
    for split in Split:
        for task in family().tasks(split, 100):
            answer = said(str(task.data["answer"]))
            assert recomputing.verify(task, ANSWERED, answer).success
            assert AnswerVerifier().verify(task, ANSWERED, answer).success


@given(
    st.builds(Grammar, st.integers(0, 3), st.integers(3, 99), st.just("+-*/"), st.booleans()),
    st.integers(1, 6),
    st.randoms(use_true_random=False),
)
def test_two_evaluators_agree(grammar, count, rng):
    drawn = grammar.draw(count, rng)
    if drawn is None:
        return
    value = Expression.parse(drawn.text).solve(precedence=grammar.precedence)[-1].result
    evaluate = with_precedence if grammar.precedence else left_to_right
    assert evaluate(drawn.text) == value


@pytest.mark.parametrize(
    "text", ["", "1+", "1/0", "a+1", "1.5+1", "(1", "__import__('os')", "1**9"]
)
def test_unreadable_expressions_are_the_verifiers_fault(text):
    task = Task("t", Split.TRAIN, {"expression": text})
    for precedence in (False, True):
        with pytest.raises(VerifierFault):
            RecomputingVerifier(precedence=precedence).verify(task, ANSWERED, said("1"))
    with pytest.raises(VerifierFault, match="no integer value"):
        half = Task("t", Split.TRAIN, {"expression": "1/2"})
        RecomputingVerifier(precedence=True).verify(half, ANSWERED, said("1"))
