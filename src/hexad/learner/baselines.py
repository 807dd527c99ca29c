"""Baselines that remember the tasks: what a score is compared with when a task has no group."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from hexad.credit.prompt_mean import PromptMean
from hexad.credit.tracker import BetaTracker, Forgetting
from hexad.learner.batch import Batch, Scores
from hexad.recipe.credit_axis import CreditSpec


class Memory(Protocol):
    """A baseline [E] from earlier batches, then the scores of this one."""

    def read(self, batch: Batch, scores: Scores) -> Tensor:
        """float64 [E], NaN where an episode is missing; afterwards the batch is remembered."""
        ...

    def state(self) -> dict[str, Any]:
        """What is remembered."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken."""
        ...


def memory(spec: CreditSpec) -> Memory | None:
    """The memory that the recipe's baseline needs."""
    if spec.baseline == "prompt_mean":
        assert spec.window is not None
        return _Mean(PromptMean(spec.window, "batch"))
    if spec.baseline == "beta":
        assert spec.tracker is not None
        forgetting = Forgetting(spec.tracker.low, spec.tracker.high, spec.tracker.half_life)
        return _Beta(BetaTracker(forgetting, spec.tracker.initial))
    return None


def _tasks(batch: Batch) -> list[str]:
    return [episode.task_id for episode in batch.episodes]


class _Mean:
    def __init__(self, mean: PromptMean) -> None:
        self._mean = mean

    def read(self, batch: Batch, scores: Scores) -> Tensor:
        tasks = _tasks(batch)
        found = self._mean.baseline(tasks, batch.score, batch.scored)
        self._mean.update(tasks, batch.score, batch.scored)
        return found

    def state(self) -> dict[str, Any]:
        return self._mean.state()

    def restore(self, state: dict[str, Any]) -> None:
        self._mean.restore(state)


class _Beta:
    """Drift is the change of a task's mean recorded log-prob since its last visit."""

    def __init__(self, tracker: BetaTracker) -> None:
        self._tracker = tracker
        self._seen: dict[str, float] = {}

    def read(self, batch: Batch, scores: Scores) -> Tensor:
        tasks = _tasks(batch)
        found = self._tracker.baseline(tasks, batch.score, batch.scored)
        now = _mean_logprob(tasks, batch)
        drift = {task: abs(value - self._seen.get(task, value)) for task, value in now.items()}
        self._tracker.update(tasks, batch.score, batch.scored, drift)
        self._seen |= now
        return found

    def state(self) -> dict[str, Any]:
        return {"tracker": self._tracker.state(), "seen": dict(self._seen)}

    def restore(self, state: dict[str, Any]) -> None:
        self._tracker.restore(state["tracker"])
        self._seen = dict(state["seen"])


def _mean_logprob(tasks: list[str], batch: Batch) -> dict[str, float]:
    """Task -> mean behaviour log-prob of the batch's tokens of it."""
    names = list(dict.fromkeys(tasks))
    place = torch.tensor([names.index(task) for task in tasks])
    known = batch.action & batch.behaviour.isfinite()
    of = place[batch.token_episode[known]]
    total = torch.zeros(len(names), dtype=torch.float64)
    total = total.index_add(0, of, batch.behaviour[known].double())
    count = torch.bincount(of, minlength=len(names))
    return {n: float(t) / int(c) for n, t, c in zip(names, total, count, strict=True) if c}
