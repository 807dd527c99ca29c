"""Streams of expressions, one for each split, disjoint by construction."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from itertools import accumulate

from hexad.contract.digest import digest
from hexad.contract.faults import UserError
from hexad.contract.task import Split
from hexad.environments.expression import Expression, Grammar

SHARES = {Split.TRAIN: 0.35, Split.SELECTION: 0.2, Split.HIDDEN: 0.3, Split.GATE: 0.15}
"""Share of all expressions that belongs to each split: there are only 243 of one operation on 1..9,
so the evaluations need large shares to be made of different tasks."""

_BOUNDS = tuple(zip(SHARES, accumulate(SHARES.values()), strict=True))
_FRUITLESS = 20_000
"""Draws in a row without a new expression after which a length counts as used up."""


def split_of(text: str) -> Split:
    """The one split that the expression ``text`` belongs to, by its SHA-256."""
    u = int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48
    return next((split for split, bound in _BOUNDS if u < bound), Split.GATE)


class _Deck:
    """The expressions of one length that belong to one split, each dealt once a round."""

    def __init__(self, grammar: Grammar, length: int, split: Split, rng: random.Random) -> None:
        self._grammar, self._length, self._split, self._rng = grammar, length, split, rng
        self._known: dict[str, Expression] = {}
        self._round: list[Expression] | None = None

    def deal(self) -> Expression | None:
        """The next expression of this round, or ``None`` at the round's end.

        The first round draws until nothing new turns up; later ones shuffle what it found.
        """
        if self._round is not None:
            return self._round.pop() if self._round else None
        for _ in range(_FRUITLESS):
            drawn = self._grammar.draw(self._length, self._rng)
            if drawn is None:
                continue
            text = drawn.text
            if text not in self._known and split_of(text) is self._split:
                self._known[text] = drawn
                return drawn
        return None

    def shuffle(self) -> bool:
        """Start another round; false when there is nothing to deal."""
        self._round = list(self._known.values())
        for last in range(len(self._round) - 1, 0, -1):
            at = int(self._rng.random() * (last + 1))
            self._round[last], self._round[at] = self._round[at], self._round[last]
        return bool(self._round)


class ExpressionStream:
    """Expressions number 0, 1, 2, ... of ``split``; equal arguments, equal stream.

    ``weights`` maps a number of operations to its share. No expression repeats until all of its
    length are used up; then training starts that length again, and any other split goes on without
    it.
    """

    def __init__(
        self, grammar: Grammar, split: Split, weights: Mapping[int, float], seed: int
    ) -> None:
        self._split = split
        self._weights = {length: w for length, w in sorted(weights.items()) if w > 0}
        self._rng = random.Random(int(digest([split.value, seed]), 16))
        self._decks = {n: _Deck(grammar, n, split, self._rng) for n in self._weights}
        self._found: list[Expression] = []

    def take(self, offset: int, count: int) -> Sequence[Expression]:
        """Expressions ``offset`` to ``offset + count``. Raises ``UserError`` when used up."""
        while len(self._found) < offset + count:
            self._found.append(self._next())
        return self._found[offset : offset + count]

    def _next(self) -> Expression:
        while self._weights:
            length = self._pick()
            dealt = self._decks[length].deal()
            if dealt is not None:
                return dealt
            if self._split is not Split.TRAIN or not self._decks[length].shuffle():
                del self._weights[length]
        raise UserError(
            f"the {self._split.value} split holds only {len(self._found)} tasks",
            where=f"task.{self._split.value}.count",
            fix="lower the count, or allow more operations or a wider range of numbers",
        )

    def _pick(self) -> int:
        """A length by its share."""
        point = self._rng.random() * sum(self._weights.values())
        bounds = accumulate(self._weights.values())
        lengths = zip(self._weights, bounds, strict=True)
        return next((n for n, bound in lengths if point < bound), max(self._weights))
