"""KTO's baseline: answers under the prompts of other tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from hexad.contract.episode import Episode
from hexad.contract.faults import ContractViolation
from hexad.contract.segment import Segment
from hexad.learner.assemble import assemble
from hexad.learner.batch import Batch

_ARRAYS = ("ids", "action", "weight", "logprob", "version", "turn")


def mismatched(batch: Batch, counted: Tensor, limit: int) -> Batch | None:
    """Every prompt of ``batch`` with the answer to the next other task; ``None`` without any.

    The pairing is one of the whole batch, before any split: by the order of its episodes, cyclic,
    skipping answers of the same task and contexts of more than ``limit`` tokens. An answer is
    everything from the first action on, observations included. ``counted`` bool [E]. Raises
    ``ContractViolation`` for an episode of several contexts, whose later ones were made from its
    own prompt.
    """
    episodes = [e for e, used in zip(batch.episodes, counted.tolist(), strict=True) if used]
    made: list[Episode] = []
    for number, episode in enumerate(episodes):
        for other in (*episodes[number + 1 :], *episodes[:number]):
            row = _joined(_only(episode), _only(other))
            if other.task_id != episode.task_id and len(row) <= limit:
                name = f"{episode.episode_id}+{other.episode_id}"
                made.append(replace(other, episode_id=name, group_id=name, segments=(row,)))
                break
    return assemble(made) if made else None


def _only(episode: Episode) -> Segment:
    if len(episode.segments) != 1:
        raise ContractViolation(
            f"{episode.episode_id} has {len(episode.segments)} contexts; KTO pairs a prompt with "
            "another answer, which is not defined there"
        )
    return episode.segments[0]


def _joined(prompt: Segment, answer: Segment) -> Segment:
    """``prompt`` up to its first action, then ``answer`` from its first action on."""
    head, tail = int(prompt.action.argmax()), int(answer.action.argmax())

    def both(name: str) -> Any:
        return np.concatenate([getattr(prompt, name)[:head], getattr(answer, name)[tail:]])

    return Segment(*(both(name) for name in _ARRAYS))
