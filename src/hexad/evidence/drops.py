"""What the gates of asynchronous training cost: every drop by reason, lag, age and length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEPT = "trained"
"""The row of what was trained on, beside the reasons of what was not."""


class Drops:
    """Cumulative counts of episodes that left training, and of those that entered it, by reason.

    Under each reason: ``episodes``, ``tokens``, and counts by ``lag`` (versions), ``length``
    (sampled tokens) and ``age`` (seconds since the episode was finished) in buckets of doubling
    width, so that a bias against long episodes shows.
    """

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def add(self, reason: str, tokens: int, lag: int | None, age: float | None) -> None:
        """Count one episode of ``tokens`` sampled tokens."""
        row = self.rows.setdefault(
            reason, {"episodes": 0, "tokens": 0, "lag": {}, "length": {}, "age": {}}
        )
        row["episodes"] += 1
        row["tokens"] += tokens
        for key, value in (("lag", lag), ("length", tokens), ("age", age)):
            if value is not None:
                name = bucket(value)
                row[key][name] = row[key].get(name, 0) + 1

    def state(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return _copied(self.rows)

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Drops:
        """The counts that ``state`` was taken of."""
        made = cls()
        made.rows = _copied(state)
        return made


def bucket(value: float) -> str:
    """``0``, ``1``, ``2-3``, ``4-7``, ``8-15`` ...: whole numbers by powers of two.

    >>> [bucket(x) for x in (0, 0.5, 1, 3, 4, 20)]
    ['0', '0', '1', '2-3', '4-7', '16-31']
    """
    whole = int(value)
    if whole < 2:
        return str(max(whole, 0))
    low = 1 << (whole.bit_length() - 1)
    return f"{low}-{2 * low - 1}"


def _copied(rows: Mapping[str, Any]) -> dict[str, Any]:
    return {
        reason: {k: dict(v) if isinstance(v, Mapping) else v for k, v in row.items()}
        for reason, row in rows.items()
    }
