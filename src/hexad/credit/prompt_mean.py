"""A running mean of the last scores of each prompt: a baseline without groups and critic."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from hexad.credit.group_relative import usable


class PromptMean:
    """``b_x`` = mean of the last ``window`` usable scores of task x.

    A task that was never seen has ``initial``: a number, or the mean score of the batch. Read with
    :meth:`baseline` *before* :meth:`update`, or the baseline holds the episode's own score. Source:
    the ablation of SAO, arXiv 2607.07508 (window 8).
    """

    def __init__(self, window: int, initial: float | Literal["batch"]) -> None:
        if window < 1:
            raise ValueError("window must be at least 1")
        self.window = window
        self.initial = initial
        self._scores: dict[str, deque[float]] = {}

    def baseline(self, tasks: Sequence[str], score: Tensor, scored: Tensor) -> Tensor:
        """float64 [E]; NaN where the episode is missing. ``tasks`` names the task of each episode.

        All episodes of a batch read what was known before the batch.
        """
        present = _checked(tasks, score, scored)
        mean = score[present].mean() if present.any() else torch.nan
        unseen = float(mean if self.initial == "batch" else self.initial)
        known = [self._scores.get(task) for task in tasks]
        found = [sum(s) / len(s) if s else unseen for s in known]
        return torch.where(present, torch.tensor(found, dtype=torch.float64), torch.nan)

    def update(self, tasks: Sequence[str], score: Tensor, scored: Tensor) -> None:
        """Remember the usable scores of a batch, in its order."""
        present = _checked(tasks, score, scored).tolist()
        for task, value, there in zip(tasks, score.tolist(), present, strict=True):
            if there:
                self._scores.setdefault(task, deque(maxlen=self.window)).append(value)

    def state(self) -> dict[str, Any]:
        """The remembered scores, oldest first."""
        return {"scores": {task: list(scores) for task, scores in self._scores.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self._scores = {t: deque(s, maxlen=self.window) for t, s in state["scores"].items()}


def _checked(tasks: Sequence[str], score: Tensor, scored: Tensor) -> Tensor:
    if not (score.shape == scored.shape == (len(tasks),)):
        raise ValueError("tasks, score and scored must be [E]")
    if score.dtype != torch.float64 or scored.dtype != torch.bool:
        raise ValueError("expected float64 and bool")
    return usable(score, scored)
