"""Fixed data: an expert's demonstrations, or a folder of stored episodes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hexad.contract.episode import Episode
from hexad.contract.events import EpisodeDone, Sink, TasksDrawn, ignore
from hexad.contract.faults import UserError
from hexad.contract.store import Store
from hexad.contract.task import Split
from hexad.feedback import advantage
from hexad.policy.engine import Weights
from hexad.recipe.axes import Recipe
from hexad.rollout.demonstrate import record
from hexad.rollout.plan import plan_group
from hexad.rollout.rates import check_fault_rate
from hexad.rollout.world import World
from hexad.schedule.cursor import next_indices, train_limit, train_tasks
from hexad.schedule.source import Harvest


class Shelf(Protocol):
    """Episodes by index. ``size`` is ``None`` for an endless shelf, which cannot repeat."""

    @property
    def size(self) -> int | None:
        """Number of episodes."""
        ...

    @property
    def repeats(self) -> bool:
        """Whether passes follow each other until a budget ends the run."""
        ...

    def take(self, indices: Sequence[int]) -> list[Episode]:
        """The episodes of ``indices``, in that order."""
        ...


class ExpertShelf:
    """The expert's episodes of the family's train tasks, recorded when first needed.

    With ``data.size`` so many demonstrations are kept and repeated; without it every train task is
    demonstrated once. A demonstration that faulted is not kept: the next pass tries it again.
    """

    def __init__(self, world: World, recipe: Recipe) -> None:
        self._world, self._seed = world, recipe.run.seed
        self._limit = train_limit(world.family, recipe.task.train.count)
        self.repeats = recipe.data.size is not None
        self.size = recipe.data.size or self._limit
        if self._limit is not None and self.size is not None and self.size > self._limit:
            raise UserError(
                f"{self.size} demonstrations of {self._limit} train tasks",
                where="data.size",
                fix="lower it, or raise task.train.count where the environment has more",
            )
        self._kept: dict[int, Episode] = {}

    def take(self, indices: Sequence[int]) -> list[Episode]:
        """Record what is missing and return the episodes."""
        family = self._world.family
        missing = [index for index in indices if index not in self._kept]
        plans = []
        for index in missing:
            (task,) = train_tasks(family, self._limit, index, 1)
            name = f"expert-{index}"
            plans += plan_group(task, 1, name=name, seed=self._seed, environment=family.name)
        recorded = record(plans, self._world) if plans else []
        found = dict(zip(missing, recorded, strict=True))
        episodes = [found[i] if i in found else self._kept[i] for i in indices]
        if self.repeats:
            self._kept |= {index: e for index, e in found.items() if not e.faulted}
        return episodes


class ListShelf:
    """Episodes in their order; passes follow each other until a budget ends the run."""

    repeats = True

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self._episodes = episodes

    @property
    def size(self) -> int:
        """Number of episodes."""
        return len(self._episodes)

    def take(self, indices: Sequence[int]) -> list[Episode]:
        """The episodes of ``indices``."""
        return [self._episodes[index] for index in indices]


class FolderShelf(ListShelf):
    """The first ``size`` episodes of a store, or all. Raises ``UserError`` if it holds fewer."""

    def __init__(self, folder: Path, *, size: int | None) -> None:
        episodes = Store(folder).read() if folder.is_dir() else []
        where = "data.origin" if not episodes else "data.size"
        if len(episodes) < (size or 1):
            raise UserError(
                f"{folder} holds {len(episodes)} episodes, {size or 'at least 1'} are needed",
                where=where,
                fix="name the episodes folder of a run, or lower data.size",
            )
        super().__init__(episodes[:size])
        foreign = [e.episode_id for e in self._episodes if e.split is not Split.TRAIN]
        if foreign:
            raise UserError(
                f"{folder} holds {len(foreign)} episodes of other splits, e.g. {foreign[0]}; "
                "sources accept only train tasks",
                where="data.origin",
                fix="use episodes of train tasks",
            )


def by_advantage(shelf: FolderShelf, recipe: Recipe) -> ListShelf:
    """The episodes of ``shelf``, each weighed by its logged score as ``data.advantage`` says.

    What has no score keeps its weights: admission refuses it.
    """
    spec = recipe.data.advantage
    assert spec is not None
    episodes = shelf.take(range(shelf.size))
    scores = [episode.score(recipe.feedback.weights) for episode in episodes]
    groups = [episode.group_id for episode in episodes]
    numbers = spec.model_dump()
    found = advantage.weights(scores, groups, **numbers)
    pairs = zip(episodes, found, strict=True)
    return ListShelf([_times(each, factor) for each, factor in pairs])


def _times(episode: Episode, factor: float) -> Episode:
    """``episode`` with its loss weights times ``factor``; as it is where that is NaN."""
    if math.isnan(factor):
        return episode
    segments = tuple(
        replace(each, weight=each.weight * np.float32(factor)) for each in episode.segments
    )
    return replace(episode, segments=segments)


class StoredSource:
    """Hands out ``data.groups`` episodes of ``shelf`` at a time.

    A shelf that repeats comes in a new order each pass until a budget ends the run: that is what
    fixed data means; the last batch of a pass holds what is left. Any other shelf is read once, in
    order, and is then exhausted. The number of consumed episodes is the whole state.
    """

    def __init__(self, shelf: Shelf, world: World, recipe: Recipe, sink: Sink = ignore) -> None:
        self._shelf, self._world, self._recipe, self._sink = shelf, world, recipe, sink
        self._position = 0

    def next(self, version: int) -> Harvest:
        """The next batch. Raises ``FaultRateExceeded`` if too many demonstrations faulted."""
        indices, end = self._indices()
        episodes = self._shelf.take(indices)
        self._sink(TasksDrawn(version, len(indices), len(indices)))
        for episode in episodes:
            self._sink(EpisodeDone(version, episode))
        check_fault_rate(episodes, self._recipe.data.fault_limit)
        self._position += len(indices)
        return Harvest(tuple(episodes), exhausted=self._position == end)

    def publish(self, weights: Weights | None, version: int, lineage: str) -> None:
        """Let the engine that evaluates load the weights."""
        asyncio.run(self._world.engine.publish(weights, version))

    def finish(self) -> None:
        """Between two batches nothing is under way."""

    def state(self) -> dict[str, Any]:
        """The number of episodes consumed."""
        return {"position": self._position}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the next episode."""
        self._position = int(state["position"])

    def close(self) -> None:
        """Close the engine."""
        asyncio.run(self._world.engine.close())

    def _indices(self) -> tuple[list[int], int | None]:
        """Indices of the next batch, and the position at which the data ends, if it does."""
        position, count, size = self._position, self._recipe.data.groups, self._shelf.size
        if size is not None and self._shelf.repeats:
            return next_indices(size, self._recipe.run.seed, position, count), None
        end = position + count if size is None else min(position + count, size)
        return list(range(position, end)), size
