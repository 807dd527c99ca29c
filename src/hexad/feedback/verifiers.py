"""The built-in verifiers: one reads the stored answer, the others work it out again."""

from __future__ import annotations

import ast
import operator
import re
import sys
from collections.abc import Callable
from fractions import Fraction

from hexad.contract.digest import code_digest
from hexad.contract.episode import Episode
from hexad.contract.faults import VerifierFault
from hexad.contract.messages import Message
from hexad.contract.task import Task
from hexad.contract.verdict import Verdict
from hexad.feedback import answer as answer_module
from hexad.feedback.answer import final_answer, judge_answer
from hexad.feedback.cards import Card

_OPERATIONS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_FORM = "the last message is one integer in its canonical spelling"
_BLIND = "how the answer was reached: tools may be unused, or the answer a guess"
_NODES = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


class AnswerVerifier:
    """Compares the final answer with the task's stored ``answer``: the verifier for training."""

    version = "1"
    card = Card(
        "answer",
        checks=f"{_FORM}, equal to the answer that the task stores",
        blind=f"{_BLIND}; whether the stored answer is right",
    )

    @property
    def digest(self) -> str:
        """Digest of version and source."""
        return code_digest("answer", self.version, {}, type(self), answer_module)

    def verify(self, task: Task, episode: Episode, transcript: tuple[Message, ...]) -> Verdict:
        """The verdict. Raises ``VerifierFault`` for a task without an integer answer."""
        expected = task.data.get("answer")
        if isinstance(expected, bool) or not isinstance(expected, int):
            raise VerifierFault(f"task {task.task_id} stores no integer answer")
        return judge_answer(final_answer(episode, transcript), expected)


class RecomputingVerifier:
    """Works the answer out again from the task's ``expression``: the verifier for evaluation.

    It trusts neither the stored answer nor the environment's own arithmetic.
    """

    version = "1"

    def __init__(self, *, precedence: bool) -> None:
        self._precedence = precedence
        self.card = Card(
            "precedence" if precedence else "left_to_right",
            checks=f"{_FORM}, equal to the task's expression, worked out again from its text",
            blind=_BLIND,
        )

    @property
    def digest(self) -> str:
        """Digest of version, the rule of evaluation, and source."""
        config = {"precedence": self._precedence}
        module = sys.modules[__name__]
        return code_digest("recompute", self.version, config, module, answer_module)

    def verify(self, task: Task, episode: Episode, transcript: tuple[Message, ...]) -> Verdict:
        """The verdict. Raises ``VerifierFault`` for a task without a readable expression."""
        text = task.data.get("expression")
        if not isinstance(text, str):
            raise VerifierFault(f"task {task.task_id} has no expression")
        value = with_precedence(text) if self._precedence else left_to_right(text)
        if value.denominator != 1:
            raise VerifierFault(f"{text} has no integer value")
        return judge_answer(final_answer(episode, transcript), int(value))


def left_to_right(text: str) -> Fraction:
    """The value of ``text`` without precedence. Raises ``VerifierFault`` if it has none."""
    tokens = re.split(r"([-+*/])", text)
    try:
        value = Fraction(int(tokens[0]))
        for op, number in zip(tokens[1::2], tokens[2::2], strict=True):
            value = _OPERATIONS[op](value, Fraction(int(number)))
    except (ValueError, ZeroDivisionError) as error:
        raise VerifierFault(f"{text!r} has no value: {error}") from error
    return value


def with_precedence(text: str) -> Fraction:
    """The value of ``text`` by Python's own grammar. Raises ``VerifierFault`` if it has none."""
    try:
        return _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ZeroDivisionError) as error:
        raise VerifierFault(f"{text!r} has no value: {error}") from error


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _NODES:
        return _OPERATIONS[_NODES[type(node.op)]](_value(node.left), _value(node.right))
    raise VerifierFault(f"{ast.dump(node)[:80]} is not arithmetic")


def answer(family: object) -> AnswerVerifier:
    """Factory of ``answer``."""
    return AnswerVerifier()


def recompute_left_to_right(family: object) -> RecomputingVerifier:
    """Factory of ``left_to_right``."""
    return RecomputingVerifier(precedence=False)


def recompute_with_precedence(family: object) -> RecomputingVerifier:
    """Factory of ``precedence``."""
    return RecomputingVerifier(precedence=True)
