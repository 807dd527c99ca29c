"""``calculator``: an expression evaluated strictly left to right, one operation a call."""

from __future__ import annotations

from hexad.environments.arithmetic import ArithmeticFamily, operate
from hexad.environments.tools import Effect, tool


@tool(effect=Effect.READ_ONLY, isolated=False)
def calculate(a: int, op: str, b: int) -> int:
    """Do one operation: + - *"""
    return operate(a, op, b, "+-*")


class CalculatorFamily(ArithmeticFamily):
    """1-3 operations from + - * on integers 1..9, without precedence: ``3+4*2`` is 14."""

    name = "calculator"
    version = "1"
    evaluation_verifier = "left_to_right"
    precedence = False
    tool = calculate
