"""What runs and profiles have measured, and what it says against what was stated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hexad.advice.questions import Agreement

SIGNAL = 0.2
"""Share of groups with a contrast below which comparing attempts teaches little (metrics table)."""
SOLVED = 0.8
"""Share of groups that are all right above which tasks are too easy, whatever the method."""
FAULTED = 0.05
"""Share of episodes that may end in a fault (metrics table)."""
NO_SUCCESS = 0.01
"""Success below which there is practically no reward to learn from."""
BELIEVED = 0.2
"""Explained variance from which on a critic counts as learned; at or below 0 it is worthless."""
GAIN = 1.2
"""Speed-up in accepted episodes a second from which on asynchrony is worth its staleness."""
STALE = 0.15
"""Largest share of consumed episodes that may be stale in the forecast."""
NEARLY = 0.95
"""The smallest lag that reaches this share of the best speed-up is taken."""
TAIL = 3.0
"""Ratio of p99 to p50 of an episode's seconds from which on durations are heavy-tailed."""
IDLE = 0.5
"""Share of the time that a synchronous learner works below which it counts as idle."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Verdicts of ``count`` groups of at least two attempts; ``source`` says where from.

    ``contrast``: with something to compare. ``right`` and ``wrong``: all members alike.
    """

    source: str
    count: int
    contrast: int
    right: int
    wrong: int

    @property
    def state(self) -> Literal["contrast", "solved", "flat"]:
        """``flat``: too few groups have a contrast, and not because they are all right."""
        if self.contrast / self.count >= SIGNAL:
            return "contrast"
        return "solved" if self.right / self.count >= SOLVED else "flat"

    @property
    def text(self) -> str:
        """The counts in words."""
        return (
            f"{self.contrast} of {self.count} groups have a contrast, {self.right} are all right, "
            f"{self.wrong} all wrong"
        )


@dataclass(frozen=True, slots=True)
class Lag:
    """The forecast of one lag limit: ``speedup`` over synchronous, share of ``stale`` episodes."""

    max_lag: int
    speedup: float
    stale: float


@dataclass(frozen=True, slots=True)
class BarrierProfile:
    """``tail``: p99 / p50 of an episode's seconds; ``learner_use``: of synchronous training.

    ``batch``: groups x attempts of the forecast.
    """

    source: str
    lags: tuple[Lag, ...]
    tail: float | None = None
    learner_use: float | None = None
    batch: str = ""

    @property
    def best(self) -> Lag | None:
        """The smallest lag limit that gains almost as much as any; ``None`` where none pays."""
        paying = [lag for lag in self.lags if lag.speedup >= GAIN and lag.stale <= STALE]
        if not paying:
            return None
        top = max(lag.speedup for lag in paying)
        return min(
            (lag for lag in paying if lag.speedup >= NEARLY * top), key=lambda lag: lag.max_lag
        )

    @property
    def text(self) -> str:
        """What the profile forecasts."""
        if best := self.best:
            return (
                f"max_lag {best.max_lag} accepts {best.speedup:.2f} times as many episodes a second"
                f" as synchronous training, {best.stale:.1%} stale{self._sizes}"
            )
        top = max((lag.speedup for lag in self.lags), default=1.0)
        few = f"with few stale episodes (at most {top:.2f})"
        return f"no lag limit gains {GAIN:g} times {few}{self._sizes}"

    @property
    def _sizes(self) -> str:
        return f", in batches of {self.batch}" if self.batch else ""


@dataclass(frozen=True, slots=True)
class Number:
    """One measured number and where it is from."""

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Qualified:
    """One comparison of the verifier with an independent judgement; it accepted the ``probes``."""

    agreement: Agreement
    source: str
    probes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that is known by measurement; ``None``, or empty, is not measured."""

    groups: Groups | None = None
    explained_variance: Number | None = None
    success: Number | None = None
    faulted: Number | None = None
    profile: BarrierProfile | None = None
    qualified: tuple[Qualified, ...] = ()
    unused: tuple[str, ...] = ()
    """What was there and is not of this task, policy or verifier: where, and why."""
