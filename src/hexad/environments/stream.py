"""Endless or finite streams of expressions, one for each split, disjoint by construction."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import accumulate

from hexad.contract.digest import digest
from hexad.contract.faults import UserError
from hexad.contract.task import Split
from hexad.environments.expression import Expression, Grammar

SHARES = {Split.TRAIN: 0.7, Split.SELECTION: 0.1, Split.HIDDEN: 0.1, Split.GATE: 0.1}
"""Share of all expressions that belongs to each split."""

_FRUITLESS = 20_000
"""Draws in a row without a new expression after which a length counts as used up."""


def split_of(text: str) -> Split:
    """The one split that the expression ``text`` belongs to, by its SHA-256."""
    u = int(digest(text.encode())[:13], 16) / 16**13
    for split, bound in zip(SHARES, accumulate(SHARES.values()), strict=True):
        if u < bound:
            return split
    return Split.GATE


class ExpressionStream:
    """Expressions number 0, 1, 2, ... of ``split``; equal arguments, equal stream.

    ``weights`` maps a number of operations to its share. Within the stream no expression repeats
    until all of its length are used up; then training starts that length again, and any other split
    goes on without it.
    """

    def __init__(
        self, grammar: Grammar, split: Split, weights: Mapping[int, float], seed: int
    ) -> None:
        self._grammar, self._split = grammar, split
        self._weights = {count: w for count, w in sorted(weights.items()) if w > 0}
        self._rng = random.Random(int(digest([split.value, seed]), 16))
        self._seen: dict[int, set[str]] = {count: set() for count in self._weights}
        self._found: list[Expression] = []

    def take(self, offset: int, count: int) -> Sequence[Expression]:
        """Expressions ``offset`` to ``offset + count``. Raises ``UserError`` when used up."""
        while len(self._found) < offset + count:
            self._found.append(self._next())
        return self._found[offset : offset + count]

    def _next(self) -> Expression:
        while self._weights:
            length = self._length()
            found = self._fresh(length)
            if found is not None:
                return found
            if self._split is Split.TRAIN and self._seen[length]:
                self._seen[length].clear()
            else:
                del self._weights[length]
        raise UserError(
            f"the {self._split.value} split holds only {len(self._found)} tasks",
            where=f"task.{self._split.value}.count",
            fix="lower the count, or allow more operations or a wider range of numbers",
        )

    def _length(self) -> int:
        point = self._rng.random() * sum(self._weights.values())
        bounds = accumulate(self._weights.values())
        return next(
            (n for n, bound in zip(self._weights, bounds, strict=True) if point < bound),
            next(reversed(self._weights)),
        )

    def _fresh(self, length: int) -> Expression | None:
        seen = self._seen[length]
        for _ in range(_FRUITLESS):
            drawn = self._grammar.draw(length, self._rng)
            if drawn is None or drawn.text in seen or split_of(drawn.text) is not self._split:
                continue
            seen.add(drawn.text)
            return drawn
        return None
