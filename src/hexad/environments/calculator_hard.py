"""``calculator-hard``: the usual precedence, exact division, and longer expressions."""

from __future__ import annotations

from pydantic import Field

from hexad.environments.arithmetic import ArithmeticFamily, ArithmeticOptions, operate
from hexad.environments.expression import BOUND
from hexad.environments.tools import Effect, tool


@tool(effect=Effect.READ_ONLY, isolated=False)
def calculate(a: int, op: str, b: int) -> int:
    """Do one operation: + - * /"""
    return operate(a, op, b, "+-*/")


class HardOptions(ArithmeticOptions):
    """The options of the calculator with other defaults."""

    operations: dict[int, float] = Field(default={1: 0.1, 2: 0.2, 3: 0.2, 4: 0.2, 5: 0.15, 6: 0.15})
    """Share of the expressions with so many operations; shares need not add up to 1."""
    high: int = Field(default=20, le=BOUND)
    """Largest operand."""
    operators: tuple[str, ...] = ("+", "-", "*", "/")
    """Operators, all equally likely: a list, or a text such as "+-"."""


class HardCalculatorFamily(ArithmeticFamily):
    """1-6 operations; products and quotients first. Every quotient is an integer."""

    name = "calculator-hard"
    version = "1"
    evaluation_verifier = "precedence"
    precedence = True
    options = HardOptions
    tool = calculate
