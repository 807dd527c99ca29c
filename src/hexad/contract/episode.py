"""One attempt at one task: the unit that carries identity, reward and provenance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hexad.contract.ending import Ending
from hexad.contract.faults import FaultRecord
from hexad.contract.provenance import Provenance
from hexad.contract.refusal import Refusal
from hexad.contract.reward import Gate, Levels, Reward
from hexad.contract.segment import Segment, SpanKind
from hexad.contract.task import Split
from hexad.contract.verdict import Verdict

SCHEMA_VERSION = 5
"""Version of the stored form of segments and episodes. 2 added the supports of sampled tokens, 3
refusals, process signals, gates and the seconds of waiting for approval, 4 the task's stratum, 5
repeated prefixes."""


GATE = "gate"
"""The component that a gate pays; recipes may not give it a weight."""


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
    waited_seconds: float = 0.0
    """Waiting for somebody to approve a call: not the policy's time, and in no time limit."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """What an episode repeats: the first ``turns`` turns of the episode ``of``, of ``group``.

    Sampled there and paid for there, these tokens are context here: their loss weight is 0, and
    costs and times of this episode are without them.
    """

    of: str
    group: str
    turns: int


@dataclass(frozen=True, slots=True)
class Episode:
    """Identity is carried, never inferred: ``group_id`` names the group, ``member`` the place.

    ``initial_state`` is the environment's digest of the state before the first action; it is equal
    in all members of a group. ``segments`` are in order. ``rewards`` are raw components; they are
    empty when the episode was not scored. ``verdict`` is ``None`` until a verifier has judged.
    ``environment`` is the environment's name. ``faults`` keeps every fault, also those that a
    retry overcame; ``attempt`` is the number of the attempt that is stored (0 is the first).
    ``states`` are the environment's digests of the state that each assistant turn began in, the
    first one included; empty where the environment names none. ``refusals`` are calls that were
    not executed because they may not be, ``signals`` what process signals said of the states, and
    a ``gate`` is the reward of the whole episode in place of its components. ``stratum`` is the
    kind of task by which results are broken down, "" where the environment names none. A
    ``prefix`` says that it begins as another episode did, whose turns it repeats.
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
    refusals: tuple[Refusal, ...] = ()
    signals: tuple[Levels, ...] = ()
    gate: Gate | None = None
    stratum: str = ""
    prefix: Prefix | None = None

    @property
    def faulted(self) -> bool:
        """Whether the episode ended in a fault: no reward, no loss, counted."""
        return self.ending.faulted

    @property
    def scored(self) -> bool:
        """Whether it ended without a fault and a verifier judged it."""
        return not self.faulted and self.verdict is not None and self.verdict.scored

    @property
    def correct(self) -> bool:
        """Whether it was judged correct and no gate took its reward: what may be imitated."""
        right = self.scored and self.verdict is not None and self.verdict.success
        return right and self.gate is None

    def score(self, weights: Mapping[str, float]) -> float:
        """Sum of what is paid, each component times its weight (1 where none is named).

        NaN where the episode is not scored or has no component.
        """
        if not self.scored or not self.paid:
            return math.nan
        return math.fsum(weights.get(r.component, 1.0) * r.value for r in self.paid)

    @property
    def paid(self) -> tuple[Reward, ...]:
        """What counts: the components, or the gate's reward alone, at the end."""
        return self.rewards if self.gate is None else (Reward(GATE, self.gate.reward),)

    @property
    def calls(self) -> tuple[tuple[int, int], ...]:
        """Segment and span index of every tool call that was written, executed or not, in order."""
        return tuple(
            (row, number)
            for row, segment in enumerate(self.segments)
            for number, span in enumerate(segment.spans)
            if span.kind is SpanKind.TOOL_CALL
        )

    @property
    def violations(self) -> int:
        """Number of calls that the policy may not make, and tried to."""
        return sum(refusal.violation for refusal in self.refusals)

    @property
    def action_count(self) -> int:
        """Number of tokens the actor sampled, over all segments, those of a prefix included."""
        return sum(segment.action_count for segment in self.segments)

    @property
    def repeated(self) -> int:
        """Number of its first turns that were sampled in another episode."""
        return 0 if self.prefix is None else self.prefix.turns

    @property
    def own_count(self) -> int:
        """Number of tokens the actor sampled in this episode: each counts in one episode only."""
        if self.prefix is None:
            return self.action_count
        return sum(int((s.action & (s.turn >= self.repeated)).sum()) for s in self.segments)

    @property
    def tree(self) -> str:
        """The group of the attempt that it is, or that it repeats the beginning of."""
        return self.group_id if self.prefix is None else self.prefix.group
