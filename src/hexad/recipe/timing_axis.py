"""Axis 6 of a recipe: when experience is consumed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hexad.recipe.axis import Axis, NonNegative, Positive


class WorkersSpec(Axis):
    """Processes that play episodes while the learner trains."""

    backend: Literal["process", "ray"] = "process"
    """``process``: spawned on this machine. ``ray``: actors of a Ray cluster."""
    count: Positive = 1
    """How many; each holds its own policy, environments and verifier."""
    patience: float = Field(default=60.0, gt=0)
    """Seconds without a sign of life after which a worker is killed and replaced."""
    restarts: NonNegative = 3
    """Replacements in the whole run; the next death stops it."""


class PartialSpec(Axis):
    """Long episodes are paused and go on in a later batch (partial rollouts)."""

    tokens: Positive
    """Tokens that one episode may sample before it is paused."""
    train: Literal["all", "newest"]
    """``all`` sampled tokens are trained on, or only those of the ``newest`` version."""


class TimingSpec(Axis):
    """Axis 6: when experience is consumed."""

    mode: Literal["synchronous", "asynchronous"] = "synchronous"
    """``synchronous``: sample a batch, train on it, publish, repeat. ``asynchronous``: sampling and
    training overlap."""
    max_lag: NonNegative | None = None
    """Mode ``asynchronous``: most versions that a token which conditioned a trained one may be
    older than the learner. It also bounds how far sampling runs ahead."""
    workers: WorkersSpec | None = None
    """Mode ``asynchronous``: who plays; ``null`` means one process."""
    refresh: Literal["at_episode", "at_turn", "in_flight"] | None = None
    """Mode ``asynchronous``: when a running episode takes new weights: never, at its next turn
    (the default), or in the middle of one."""
    stale: Literal["drop", "requeue"] | None = None
    """Mode ``asynchronous``: the task of an episode that came too late is gone (the default), or
    tried again."""
    partial: PartialSpec | None = None
    """Mode ``asynchronous``: pause long episodes; ``null`` never does."""
