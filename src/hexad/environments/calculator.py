"""``calculator``: an expression evaluated strictly left to right, one operation a call."""

from __future__ import annotations

from hexad.environments.arithmetic import ArithmeticFamily
from hexad.environments.expression import BOUND, Operation
from hexad.environments.tools import Effect, ToolError, tool


def operate(a: int, op: str, b: int, operators: str) -> int:
    """The value of one operation. Raises ``ToolError`` for what the policy cannot have."""
    if op not in tuple(operators):
        raise ToolError(f"op must be one of {' '.join(operators)}")
    if max(abs(a), abs(b)) > BOUND:
        raise ToolError(f"numbers must be within {BOUND}")
    try:
        result = Operation(a, op, b).result
    except ArithmeticError as error:
        raise ToolError(str(error)) from error
    if abs(result) > BOUND:
        raise ToolError(f"the result is beyond {BOUND}")
    return result


@tool(effect=Effect.READ_ONLY, isolated=False)
def calculate(a: int, op: str, b: int) -> int:
    """Do one operation: + - *"""
    return operate(a, op, b, "+-*")


class CalculatorFamily(ArithmeticFamily):
    """1-3 operations from + - * on integers 1..20, without precedence: ``3+4*2`` is 14."""

    name = "calculator"
    version = "1"
    evaluation_verifier = "left_to_right"
    precedence = False
    tool = calculate
