"""Mergeable statistics. Every logged number is reduced from sums and counts, never from means."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

BINS_PER_OCTAVE = 4
"""Resolution of the log-histogram: a quantile is off by at most 2 ** (1 / 8) - 1 = 9 %."""
_ZERO_BIN = 1 << 20
_SMALLEST = -60 * BINS_PER_OCTAVE
_BITS = 22
"""Enough for an index counted from the smallest."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Count, sum, sum of squares, extrema and a log-histogram of finite numbers.

    ``bins`` holds sorted ``((sign, index), count)`` pairs. Non-finite inputs are counted in
    ``missing`` and enter nothing else. Merging is associative up to floating-point rounding.
    """

    count: int = 0
    sum: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    missing: int = 0
    bins: tuple[tuple[tuple[int, int], int], ...] = ()

    @classmethod
    def of(cls, values: npt.ArrayLike) -> Tally:
        """Tally of an array of numbers of any shape."""
        raw = np.asarray(values, dtype=np.float64)
        flat = raw.reshape(-1)
        good = flat[np.isfinite(flat)]
        missing = int(flat.size - good.size)
        if good.size == 0:
            return cls(missing=missing)
        return cls(
            count=int(good.size),
            sum=float(good.sum()),
            squares=float(np.square(good).sum()),
            low=float(good.min()),
            high=float(good.max()),
            missing=missing,
            bins=_histogram(good),
        )

    def __add__(self, other: Tally) -> Tally:
        bins: dict[tuple[int, int], int] = dict(self.bins)
        for key, count in other.bins:
            bins[key] = bins.get(key, 0) + count
        return Tally(
            self.count + other.count,
            self.sum + other.sum,
            self.squares + other.squares,
            min(self.low, other.low),
            max(self.high, other.high),
            self.missing + other.missing,
            tuple(sorted(bins.items())),
        )

    @property
    def mean(self) -> float | None:
        """Mean, or ``None`` when nothing was counted."""
        return self.sum / self.count if self.count else None

    @property
    def std(self) -> float | None:
        """Population standard deviation, or ``None`` when nothing was counted."""
        if not self.count:
            return None
        mean = self.sum / self.count
        return math.sqrt(max(self.squares / self.count - mean * mean, 0.0))

    def quantile(self, q: float) -> float | None:
        """Value at quantile ``q`` in [0, 1], to the bin's resolution, inside [low, high]."""
        if not self.count:
            return None
        rank, seen = q * (self.count - 1), 0
        ordered = sorted(self.bins, key=lambda item: _center(item[0]))
        for key, count in ordered:
            seen += count
            if seen > rank:
                return min(max(_center(key), self.low), self.high)
        return self.high

    def summary(self) -> dict[str, float | int]:
        """The numbers a log line shows; absent when nothing was counted."""
        if self.mean is None or self.std is None:
            return {"count": 0, "missing": self.missing}
        shown = {f"p{int(q * 100)}": self.quantile(q) for q in (0.5, 0.95, 0.99)}
        quantiles = {name: value for name, value in shown.items() if value is not None}
        return {
            "count": self.count,
            "missing": self.missing,
            "mean": self.mean,
            "std": self.std,
            "min": self.low,
            "max": self.high,
            **quantiles,
        }


def _center(key: tuple[int, int]) -> float:
    sign, index = key
    return 0.0 if sign == 0 else float(sign * 2.0 ** ((index + 0.5) / BINS_PER_OCTAVE))


def _histogram(values: npt.NDArray[np.float64]) -> tuple[tuple[tuple[int, int], int], ...]:
    magnitude = np.abs(values)
    with np.errstate(divide="ignore"):
        index = np.floor(np.log2(magnitude) * BINS_PER_OCTAVE)
    zero = index < _SMALLEST
    sign = np.where(zero, 0, np.sign(values)).astype(np.int64)
    index = np.where(zero, _ZERO_BIN, index).astype(np.int64)
    # One integer a (sign, index), in their order: pairs of columns sort ten times as slowly.
    packed, counts = np.unique((sign << _BITS) + (index - _SMALLEST), return_counts=True)
    signs = packed >> _BITS
    bins = packed - (signs << _BITS) + _SMALLEST
    rows = zip(signs.tolist(), bins.tolist(), counts.tolist(), strict=True)
    return tuple(((s, i), c) for s, i, c in rows)
