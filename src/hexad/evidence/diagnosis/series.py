"""One column over the batches of a run: its trend, and since when it is what it is now."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

WINDOW = 10
"""Batches that a smoothed value is the mean of."""
START = 5
"""Batches that say where a run began; the first third may hold the change already."""


@dataclass(frozen=True, slots=True)
class Series:
    """``values[i]`` float64 of the batch that was sampled at version ``steps[i]``."""

    steps: tuple[int, ...]
    values: npt.NDArray[np.float64]

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], *keys: str) -> Series:
        """The first of ``keys`` that a row has, where it has one that is finite."""
        found: list[tuple[int, float]] = []
        for row in rows:
            value = next((row[key] for key in keys if row.get(key) is not None), None)
            if value is not None and math.isfinite(value):
                found.append((int(row["step"]), float(value)))
        return cls(tuple(step for step, _ in found), np.array([value for _, value in found]))

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def enough(self) -> bool:
        """Whether there are batches enough to speak of a trend."""
        return len(self) >= 3 * WINDOW

    @property
    def early(self) -> float:
        """Mean of the first third."""
        return float(self._third(0).mean())

    @property
    def late(self) -> float:
        """Mean of the last third."""
        return float(self._third(2).mean())

    @property
    def recent(self) -> float:
        """Mean of the last ``WINDOW`` batches."""
        return float(self.values[-WINDOW:].mean())

    @property
    def first(self) -> Series:
        """The first ``START`` batches."""
        return Series(self.steps[:START], self.values[:START])

    @property
    def last(self) -> Series:
        """The last ``WINDOW`` batches."""
        return Series(self.steps[-WINDOW:], self.values[-WINDOW:])

    @property
    def start(self) -> float:
        """Mean of the first ``START`` batches."""
        return float(self.first.values.mean())

    @property
    def change(self) -> float:
        """Last third less first third."""
        return self.late - self.early

    @property
    def z(self) -> float:
        """:attr:`change` by its standard error, batches taken as independent (Welch)."""
        size = len(self) // 3
        first = Series(self.steps[:size], self._third(0))
        return -first.differs(Series(self.steps[-size:], self._third(2)))

    def differs(self, other: Series) -> float:
        """This mean less that of ``other``, by its standard error, batches taken as independent."""
        change = float(self.values.mean() - other.values.mean())
        error = math.sqrt(sum(s.values.var(ddof=1) / len(s) for s in (self, other)))
        if error == 0.0:
            return 0.0 if change == 0.0 else math.copysign(math.inf, change)
        return change / error

    @property
    def smooth(self) -> Series:
        """The mean over ``WINDOW`` batches, by the last of them."""
        if len(self) < WINDOW:
            return Series((), np.array([]))
        mean = np.convolve(self.values, np.full(WINDOW, 1 / WINDOW), "valid")
        return Series(self.steps[WINDOW - 1 :], mean)

    def since(self, holds: Callable[[float], bool]) -> int | None:
        """Step from which on every smoothed value ``holds``; ``None`` if the last does not."""
        smooth = self.smooth
        found: int | None = None
        for step, value in zip(reversed(smooth.steps), reversed(smooth.values), strict=True):
            if not holds(float(value)):
                break
            found = step
        return found

    def before(self, step: int) -> Series:
        """The batches before version ``step``."""
        count = sum(1 for each in self.steps if each < step)
        return Series(self.steps[:count], self.values[:count])

    def after(self, step: int) -> Series:
        """The batches from version ``step`` on."""
        count = sum(1 for each in self.steps if each < step)
        return Series(self.steps[count:], self.values[count:])

    def _third(self, number: int) -> npt.NDArray[np.float64]:
        size = len(self) // 3
        start = len(self) - size if number == 2 else number * size
        return self.values[start : start + size]
