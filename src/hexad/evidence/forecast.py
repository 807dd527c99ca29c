"""What a simulation is asked, and what it answers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hexad.evidence.barrier import Profile


@dataclass(frozen=True, slots=True)
class Machine:
    """``workers`` play up to ``rows`` episodes each and need a core to decode; so does the learner.

    All of them share ``cores``. A worker decodes on one core at a time.
    """

    cores: int
    workers: int
    rows: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """``batches`` batches of ``groups`` groups of ``group_size`` episodes.

    ``max_lag`` 0 starts a batch when the one before is trained: synchronous. ``ticks``: all live
    episodes sample their next turn together, as Hexad's synchronous source does, so that every turn
    waits for the slowest answer.
    """

    groups: int
    group_size: int
    max_lag: int = 0
    ticks: bool = False
    batches: int = 16

    @property
    def warmup(self) -> int:
        """Batches before the steady state, which rates leave out: the first ones meet no queue."""
        return self.max_lag + 1 if self.max_lag else 0


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a simulated run came to. Every episode ``planned`` is in exactly one account.

    ``batch_seconds``, ``accepted_per_second`` (trained episodes), ``learner_use`` and
    ``rollout_use`` (share of the time that the learner works, and that a worker decodes) are those
    after the warm-up. ``lags`` counts the episodes that were trained then by lag: the learner's
    version less the version that sampled their first token.
    """

    batch_seconds: float
    accepted_per_second: float
    learner_use: float
    rollout_use: float
    lags: dict[int, int]
    planned: int
    trained: int
    stale: int
    pending: int

    @property
    def stale_share(self) -> float:
        """Of the episodes that were consumed."""
        consumed = self.trained + self.stale
        return self.stale / consumed if consumed else 0.0

    def row(self) -> dict[str, Any]:
        """JSON."""
        return {**asdict(self), "stale_share": self.stale_share}


def floor_seconds(profile: Profile, machine: Machine, schedule: Schedule) -> float:
    """Seconds a batch that no schedule can beat on ``machine``.

    The largest of: all work spread over all cores, the learner by itself, and all waiting divided
    by the episodes that may be in flight. Decoding is counted at its cheapest, in full company.
    """
    paths = profile.paths
    episodes = schedule.groups * schedule.group_size
    flight = min(machine.workers * machine.rows, (schedule.max_lag + 1) * episodes)
    company = max(1.0, flight / machine.workers)
    cheapest = profile.step(company) / company
    decode = episodes * sum(path.tokens for path in paths) / len(paths) * cheapest
    waits = episodes * sum(path.waits for path in paths) / len(paths)
    cores = min(machine.cores, machine.workers + profile.learner_cores)
    learner = profile.learner_seconds * profile.learner_cores
    return max((decode + learner) / cores, profile.learner_seconds, waits / flight)
