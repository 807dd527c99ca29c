"""One attempt at one task: the unit that carries identity, reward and provenance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hexad.contract.ending import Ending
from hexad.contract.faults import FaultRecord
from hexad.contract.provenance import Provenance
from hexad.contract.reward import Reward
from hexad.contract.segment import Segment
from hexad.contract.task import Split
from hexad.contract.verdict import Verdict

SCHEMA_VERSION = 2
"""Version of the stored form of segments and episodes. 2 added the supports of sampled tokens."""


class Actor(StrEnum):
    """Who chose the action tokens."""

    POLICY = "policy"
    EXPERT = "expert"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Costs:
    """What the episode consumed, all attempts of faulted tries included in ``lost_tokens``."""

    sampled_tokens: int = 0
    observation_tokens: int = 0
    tool_calls: int = 0
    turns: int = 0
    lost_tokens: int = 0
    """Tokens sampled by attempts that faulted and were retried."""


@dataclass(frozen=True, slots=True)
class Times:
    """Wall-clock facts; they never enter training and are excluded from bit-exact comparison."""

    started: float = 0.0
    """Unix time of the start, seconds."""
    seconds: float = 0.0
    """From start to end."""
    engine_seconds: float = 0.0
    tool_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Episode:
    """Identity is carried, never inferred: ``group_id`` names the group, ``member`` the place.

    ``initial_state`` is the environment's digest of the state before the first action; it is equal
    in all members of a group. ``segments`` are in order. ``rewards`` are raw components; they are
    empty when the episode was not scored. ``verdict`` is ``None`` until a verifier has judged.
    ``environment`` is the environment's name. ``faults`` keeps every fault, also those that a
    retry overcame; ``attempt`` is the number of the attempt that is stored (0 is the first).
    ``states`` are the environment's digests of the state that each assistant turn began in, the
    first one included; empty where the environment names none.
    """

    episode_id: str
    task_id: str
    group_id: str
    member: int
    split: Split
    environment: str
    initial_state: str
    seed: int
    segments: tuple[Segment, ...]
    ending: Ending
    provenance: Provenance
    actor: Actor = Actor.POLICY
    rewards: tuple[Reward, ...] = ()
    verdict: Verdict | None = None
    attempt: int = 0
    faults: tuple[FaultRecord, ...] = ()
    costs: Costs = Costs()
    times: Times = Times()
    states: tuple[str, ...] = ()

    @property
    def faulted(self) -> bool:
        """Whether the episode ended in a fault: no reward, no loss, counted."""
        return self.ending.faulted

    @property
    def scored(self) -> bool:
        """Whether it ended without a fault and a verifier judged it."""
        return not self.faulted and self.verdict is not None and self.verdict.scored

    def score(self, weights: Mapping[str, float]) -> float:
        """Sum of the raw components, each times its weight (1 where none is named).

        NaN where the episode is not scored or has no component.
        """
        if not self.scored or not self.rewards:
            return math.nan
        return math.fsum(weights.get(r.component, 1.0) * r.value for r in self.rewards)

    @property
    def action_count(self) -> int:
        """Number of tokens the actor sampled, over all segments."""
        return sum(segment.action_count for segment in self.segments)
