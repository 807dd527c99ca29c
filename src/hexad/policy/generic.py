"""Any Hugging Face causal model as an engine backend: correct first, simple, no prefix cache."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from hexad.policy.backend import Admission, Ask, Index


class _Cohort:
    """Requests admitted together: one left-padded batch over the model's own cache.

    ``lanes`` holds -1 for rows that only pad the batch: finished ones, and a copy of the only row,
    because a batch of one rounds differently.
    """

    def __init__(self, asks: list[Ask], device: torch.device, cache: Any) -> None:
        rows = asks if len(asks) > 1 else asks * 2
        width = max(len(ask.ids) for ask in rows)
        ids = np.zeros((len(rows), width), np.int64)
        mask = np.zeros((len(rows), width), np.int64)
        for row, ask in enumerate(rows):
            ids[row, width - len(ask.ids) :] = ask.ids
            mask[row, width - len(ask.ids) :] = 1
        self.lanes = np.full(len(rows), -1, np.int64)
        self.lanes[: len(asks)] = [ask.lane for ask in asks]
        self.ids = torch.from_numpy(ids).to(device)
        self.mask = torch.from_numpy(mask).to(device)
        self.positions = (self.mask.cumsum(-1) - 1).clamp(min=0)
        self.cache = cache

    def trim(self) -> None:
        """Drop finished rows once they are more than half of the batch."""
        live = np.flatnonzero(self.lanes >= 0)
        if 2 <= len(live) < len(self.lanes) // 2:
            keep = torch.from_numpy(live).to(self.mask.device)
            self.cache.batch_select_indices(keep)
            self.mask, self.lanes = self.mask[keep], self.lanes[live]


class Generic:
    """A :class:`hexad.policy.backend.Backend` over ``model.forward`` with its key-value cache.

    The same requests in the same order give the same bits; other company may change low bits.
    """

    name = "generic"

    def __init__(self, model: Any) -> None:
        self._model = model
        self._cohorts: list[_Cohort] = []
        names = inspect.signature(type(model).forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"

    def admit(self, asks: list[Ask]) -> Admission:
        """See :class:`hexad.policy.backend.Backend`."""
        cache = DynamicCache(config=self._model.config)
        cohort = _Cohort(asks, self._model.device, cache)
        logits = self._forward(cohort, cohort.ids, cohort.positions)
        self._cohorts.append(cohort)
        return Admission(len(asks), logits[: len(asks)], 0)

    def step(self, lanes: Index, tokens: Index, positions: Index) -> torch.Tensor:
        """See :class:`hexad.policy.backend.Backend`."""
        order = {lane: index for index, lane in enumerate(lanes.tolist())}
        parts, targets = [], []
        for cohort in self._cohorts:
            cohort.trim()
            rows = np.flatnonzero(cohort.lanes >= 0)
            wanted = np.array([order[lane] for lane in cohort.lanes[rows].tolist()])
            fed = np.zeros((2, len(cohort.lanes)), np.int64)
            fed[0, rows], fed[1, rows] = tokens[wanted], positions[wanted]
            ids, at = torch.from_numpy(fed).to(cohort.mask.device)
            cohort.mask = torch.nn.functional.pad(cohort.mask, (0, 1), value=1)
            logits = self._forward(cohort, ids[:, None], at[:, None])
            parts.append(logits[torch.from_numpy(rows).to(logits.device)])
            targets.append(wanted)
        back = np.argsort(np.concatenate(targets))
        joined = torch.cat(parts)
        return joined[torch.from_numpy(back).to(joined.device)]

    def release(self, lane: int, *, keep: bool) -> None:
        """See :class:`hexad.policy.backend.Backend`; nothing is kept."""
        for cohort in self._cohorts:
            cohort.lanes[cohort.lanes == lane] = -1
        self._cohorts = [cohort for cohort in self._cohorts if (cohort.lanes >= 0).any()]

    def retire(self) -> None:
        """See :class:`hexad.policy.backend.Backend`; there is no cache."""

    def close(self) -> None:
        """See :class:`hexad.policy.backend.Backend`."""
        self._cohorts = []

    def _forward(self, cohort: _Cohort, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Logits ``[rows, vocabulary]`` after the last of ``ids [rows, new]``."""
        with _evaluating(self._model):
            out = self._model(
                input_ids=ids,
                attention_mask=cohort.mask,
                position_ids=positions,
                use_cache=True,
                logits_to_keep=1,
                **{self._cache_name: cohort.cache},
            )
        logits: torch.Tensor = out.logits[:, -1]
        return logits


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Run without dropout; the learner may have left its model in training mode."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
