"""Arithmetic expressions over integers: drawing, writing, reading and solving them."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

BOUND = 10**9
"""Largest absolute value of any number in an episode."""

_TIGHT = "*/"
_TOKEN = re.compile(r"\d+|[-+*/]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Operation:
    """One application of ``op`` to two integers."""

    a: int
    op: str
    b: int

    @property
    def result(self) -> int:
        """The value. Raises ``ArithmeticError`` where the quotient is not an integer."""
        if self.op == "+":
            return self.a + self.b
        if self.op == "-":
            return self.a - self.b
        if self.op == "*":
            return self.a * self.b
        if self.b == 0:
            raise ArithmeticError("division by zero")
        quotient, rest = divmod(self.a, self.b)
        if rest:
            raise ArithmeticError(f"{self.a}/{self.b} is not an integer")
        return quotient


@dataclass(frozen=True, slots=True)
class Expression:
    """``numbers[0] operators[0] numbers[1] ...``: one number more than operators, none negative."""

    numbers: tuple[int, ...]
    operators: tuple[str, ...]

    @property
    def text(self) -> str:
        """The canonical text, without spaces: equal expressions, equal text."""
        rest = (f"{op}{n}" for op, n in zip(self.operators, self.numbers[1:], strict=True))
        return f"{self.numbers[0]}{''.join(rest)}"

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Read canonical text. Raises ``ValueError`` for anything else."""
        tokens = _TOKEN.findall(text)
        if len(tokens) % 2 == 0 or not all(t.isdigit() for t in tokens[::2]):
            raise ValueError(f"not an expression: {text!r}")
        found = cls(tuple(int(t) for t in tokens[::2]), tuple(tokens[1::2]))
        if found.text != text:
            raise ValueError(f"not a canonical expression: {text!r}")
        return found

    def solve(self, *, precedence: bool) -> tuple[Operation, ...]:
        """The operations in the order of evaluation; the last result is the value.

        Left to right, or with ``precedence`` products and quotients first. Raises
        ``ArithmeticError`` for an inexact quotient.
        """
        numbers, operators = list(self.numbers), list(self.operators)
        done: list[Operation] = []
        while operators:
            tight = (i for i, op in enumerate(operators) if precedence and op in _TIGHT)
            at = next(tight, 0)
            done.append(Operation(numbers[at], operators.pop(at), numbers.pop(at + 1)))
            numbers[at] = done[-1].result
        return tuple(done)


@dataclass(frozen=True, slots=True)
class Grammar:
    """What expressions are drawn from: integers ``low`` to ``high`` and ``operators``."""

    low: int
    high: int
    operators: Sequence[str]
    precedence: bool

    def draw(self, count: int, rng: random.Random) -> Expression | None:
        """An expression of ``count`` operations; ``None`` when the draw leaves the bound.

        Operands are uniform; a divisor is uniform among the integers in range that divide what
        stands before it, so every quotient is exact.
        """
        numbers, operators = [self._number(rng)], []
        left = numbers[0]
        for _ in range(count):
            op = self.operators[int(rng.random() * len(self.operators))]
            number = self._number(rng) if op != "/" else self._divisor(left, rng)
            if number is None:
                return None
            loose = self.precedence and op not in _TIGHT
            left = number if loose else Operation(left, op, number).result
            numbers.append(number)
            operators.append(op)
        drawn = Expression(tuple(numbers), tuple(operators))
        return drawn if self.high ** (count + 1) <= BOUND or self._within(drawn) else None

    def _within(self, drawn: Expression) -> bool:
        return all(abs(o.result) <= BOUND for o in drawn.solve(precedence=self.precedence))

    def _number(self, rng: random.Random) -> int:
        return self.low + int(rng.random() * (self.high - self.low + 1))

    def _divisor(self, value: int, rng: random.Random) -> int | None:
        divisors = [n for n in range(max(self.low, 1), self.high + 1) if value % n == 0]
        return divisors[int(rng.random() * len(divisors))] if divisors else None
