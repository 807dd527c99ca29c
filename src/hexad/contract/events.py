"""Typed events that rooms emit to a handed-in sink; ``evidence`` reads them, nobody else does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hexad.contract.episode import Episode
from hexad.contract.tally import Tally


@dataclass(frozen=True, slots=True)
class Event:
    """``version`` is the learner's version when it happened (completed batches of the loop)."""

    version: int


@dataclass(frozen=True, slots=True)
class TasksDrawn(Event):
    """``tasks`` tasks were drawn and ``episodes`` attempts planned for them."""

    tasks: int
    episodes: int


@dataclass(frozen=True, slots=True)
class EpisodeDone(Event):
    """An episode was finished (or gave up after its fault budget); ``episode`` holds everything."""

    episode: Episode
    purpose: str = "train"
    """``train`` or the purpose of an auxiliary rollout, e.g. ``evaluation``."""


@dataclass(frozen=True, slots=True)
class EpisodeLost(Event):
    """An episode will never be finished, for ``reason``; ``sampled_tokens`` of it are gone."""

    episode_id: str
    sampled_tokens: int
    reason: str


@dataclass(frozen=True, slots=True)
class EpisodeLeft(Event):
    """The run ended while an episode was under way, with ``sampled_tokens`` on record."""

    episode_id: str
    sampled_tokens: int


@dataclass(frozen=True, slots=True)
class EpisodeRefused(Event):
    """Admission or a gate kept an episode out of training, for each of ``reasons``.

    ``lag`` is the learner's version minus the oldest one that sampled it, ``age`` the seconds that
    it waited since it was finished; ``None`` where that is not known.
    """

    episode_id: str
    reasons: tuple[str, ...]
    action_tokens: int
    lag: int | None = None
    age: float | None = None


@dataclass(frozen=True, slots=True)
class GroupJudged(Event):
    """``kind`` by verdict: all_correct, all_wrong, mixed, unscored; ``signal`` by advantage."""

    group_id: str
    kind: str
    signal: bool
    scored: int
    members: int
    sampled_tokens: int


@dataclass(frozen=True, slots=True)
class BatchTrained(Event):
    """One batch became optimiser steps.

    ``episodes`` are the ids of those that it was trained on, ``action_tokens`` theirs;
    ``loss_tokens`` with non-zero weight and counted in a denominator; ``train_tokens`` the action
    tokens that went through a backward pass (counted once
    an epoch); ``forward_tokens`` all tokens that went through one. ``roles`` maps a policy role
    (behaviour, old, reference) to the ``version:digest`` that played it.
    """

    episodes: tuple[str, ...]
    action_tokens: int
    loss_tokens: int
    train_tokens: int
    forward_tokens: int
    optimizer_steps: int
    roles: Mapping[str, str] = field(default_factory=dict)
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CriticSlice:
    """Clock steps that have a *realised* return: tallies of value, return, and value - return."""

    value: Tally = field(default_factory=Tally)
    realised: Tally = field(default_factory=Tally)
    error: Tally = field(default_factory=Tally)

    def __add__(self, other: CriticSlice) -> CriticSlice:
        return CriticSlice(
            self.value + other.value, self.realised + other.realised, self.error + other.error
        )


@dataclass(frozen=True, slots=True)
class CriticJudged(Event):
    """What a batch said of the critic, by values from before any update on that batch.

    ``slices`` by name: ``all``, ``first`` (the first decision of each episode), and families such
    as ``horizon 5-8``, ``ending terminal``, ``version 12``, ``value 0.3``. ``bootstrapped`` and
    ``missing`` count truncated episodes whose value at the cut was used, or was not stored; ``cut``
    tallies these values. ``batches`` and ``steps`` count the critic's own updates and optimiser
    steps before this batch; ``behind`` the policy's optimiser steps since its last update.
    """

    slices: Mapping[str, CriticSlice]
    bootstrapped: int
    missing: int
    cut: Tally
    batches: int
    steps: int
    behind: int


@dataclass(frozen=True, slots=True)
class CriticTrained(Event):
    """The critic made ``steps`` optimiser steps; ``tokens`` targets went through a backward pass,
    counted once a pass. ``tallies``: loss, grad_norm, lr, over its steps.
    """

    steps: int
    tokens: int
    tallies: Mapping[str, Tally] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Published(Event):
    """The engine has loaded the weights of ``version``, whose lineage digest is ``digest``."""

    digest: str


@dataclass(frozen=True, slots=True)
class Timed(Event):
    """``seconds`` of wall-clock spent in ``phase`` (rollout, score, update, publish, ...)."""

    phase: str
    seconds: float


@dataclass(frozen=True, slots=True)
class CheckpointWritten(Event):
    """A whole checkpoint is on disk."""

    path: str


@dataclass(frozen=True, slots=True)
class Consumed(Event):
    """An asynchronous batch took an episode: its ``lag`` in versions and ``age`` in seconds."""

    episode_id: str
    action_tokens: int
    lag: int
    age: float


@dataclass(frozen=True, slots=True)
class WorkersSeen(Event):
    """How the workers did since the last batch, one entry a worker: share of the wall-clock in
    which its engine was decoding, and episodes live at the last sign of life. ``lost`` workers died
    or were given up since then, ``waiting`` finished episodes stay for later batches.
    """

    busy: tuple[float, ...]
    live: tuple[int, ...]
    lost: int
    waiting: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class WorkerReplaced(Event):
    """A worker is gone and another one took its slot: ``text`` says why, and what goes on."""

    text: str


@dataclass(frozen=True, slots=True)
class Stalled(Event):
    """Nobody finished an episode for a while: ``text`` says who waits for whom."""

    text: str


@dataclass(frozen=True, slots=True)
class TriggerFired(Event):
    """A sign to change direction has appeared: ``key`` of the trigger, what it is, what shows it.

    ``then`` is what the advice says to do.
    """

    key: str
    what: str
    shown: str
    then: str


@dataclass(frozen=True, slots=True)
class ItemsMade(Event):
    """Pairs, labels or kept samples were made of episodes: ``text`` is their audit in a line.

    ``outside``: the share of the states that these episodes visited that nothing made of them
    holds; ``None`` without a state.
    """

    text: str
    outside: float | None = None


@dataclass(frozen=True, slots=True)
class RowsRead(Event):
    """The data set ``name`` was read: ``rows`` in all, of which some were dropped.

    ``digest`` names its content, ``dropped`` counts bad rows by code, ``examples`` shows a few.
    """

    name: str
    digest: str
    rows: int
    dropped: Mapping[str, int]
    examples: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """A line for a person, and one for each example."""
        lost = sum(self.dropped.values())
        reasons = ", ".join(f"{count} {code}" for code, count in self.dropped.items())
        line = f"{self.name}: {self.rows - lost} of {self.rows} rows are used"
        return "\n    ".join([line + (f"; dropped: {reasons}" if lost else ""), *self.examples])


@dataclass(frozen=True, slots=True)
class WorkLost(Event):
    """Work done after the last checkpoint that a kill threw away and a resume does again."""

    episodes: int
    sampled_tokens: int


@dataclass(frozen=True, slots=True)
class Evaluated(Event):
    """A closed-loop evaluation ended. ``success`` of ``scored`` episodes with its 95 % interval.

    With ``measure: pairs`` it is of pairs that a reward model ranks right. The three rates are
    ``None`` when nothing was scored.
    """

    split: str
    episodes: int
    scored: int
    success: float | None
    low: float | None
    high: float | None
    measure: str = "success"


Sink = Callable[[Event], None]
"""Where events go. ``evidence.ledger.Ledger`` is one; ``ignore`` is another."""


def ignore(event: Event) -> None:
    """A sink that forgets."""
