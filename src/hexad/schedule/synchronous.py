"""Sample a batch, train on it, publish, repeat."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from hexad.contract.episode import Episode
from hexad.contract.events import EpisodeDone, Sink, TasksDrawn, ignore
from hexad.contract.faults import ContractViolation
from hexad.policy.engine import Weights
from hexad.recipe.axes import Recipe
from hexad.rollout.collect import collect
from hexad.rollout.plan import EpisodePlan, plan_group
from hexad.rollout.rates import check_fault_rate, check_unscored_rate
from hexad.rollout.world import World
from hexad.schedule.cursor import train_limit, train_tasks
from hexad.schedule.dynamic import Refill
from hexad.schedule.source import Harvest


class SynchronousSource:
    """Draws ``data.groups`` train tasks in order and tries each ``data.group_size`` times.

    The next batch begins when the last episode of this one has ended, at the version that the
    engine has loaded. With ``task.train.count``, or where the family says how many tasks it has,
    they end: the last batch holds what is left and is ``exhausted``; nothing starts again. Equal
    seeds give equal episodes, times apart.
    """

    def __init__(self, world: World, recipe: Recipe, sink: Sink = ignore) -> None:
        self._lineage: dict[int, str] = {}
        self._known = world.lineage
        self._world = replace(world, lineage=self._lineage_of)
        self._recipe, self._sink = recipe, sink
        self._limit = train_limit(world.family, recipe.task.train.count)
        self._cursor = 0
        self._refill = Refill(recipe) if recipe.data.dynamic is not None else None

    def next(self, version: int) -> Harvest:
        """Roll out the next batch. Raises ``FaultRateExceeded`` beyond the recipe's limits."""
        if self._world.engine.version != version:
            loaded = self._world.engine.version
            raise ContractViolation(f"version {version} was not published: {loaded} is loaded")
        if self._refill is not None:
            return self._refill.fill(version, partial(self._groups, version))
        groups, exhausted = self._groups(version, self._recipe.data.groups)
        return Harvest(tuple(e for group in groups for e in group), exhausted=exhausted)

    def _groups(self, version: int, count: int) -> tuple[list[tuple[Episode, ...]], bool]:
        """Play the next ``count`` tasks; the groups in order, and whether no task is left."""
        data = self._recipe.data
        plans = self._plan(version, count)
        taken = len(plans) // data.group_size
        if plans:
            self._sink(TasksDrawn(version, taken, len(plans)))

        def done(episode: Episode) -> None:
            self._sink(EpisodeDone(version, episode))

        rows = self._recipe.system.engine_rows
        episodes = collect(plans, self._world, rows=rows, done=done)
        check_fault_rate(episodes, data.fault_limit)
        check_unscored_rate(episodes, self._recipe.feedback.unscored_limit)
        self._cursor += taken
        size = data.group_size
        groups = [tuple(episodes[i * size : (i + 1) * size]) for i in range(taken)]
        return groups, self._cursor == self._limit

    def publish(self, weights: Weights | None, version: int, lineage: str) -> None:
        """Let the engine load ``weights`` as ``version``. Call it before the first batch too."""
        asyncio.run(self._world.engine.publish(weights, version))
        self._lineage[version] = lineage

    def state(self) -> dict[str, Any]:
        """The task cursor, and the groups that wait for the next batch."""
        waiting = {"refill": self._refill.state()} if self._refill is not None else {}
        return {"cursor": self._cursor, **waiting}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the task at the cursor."""
        self._cursor = int(state["cursor"])
        if self._refill is not None:
            self._refill.restore(state["refill"])

    def close(self) -> None:
        """Close the engine."""
        asyncio.run(self._world.engine.close())

    def _plan(self, version: int, count: int) -> list[EpisodePlan]:
        family, recipe = self._world.family, self._recipe
        tasks = train_tasks(family, self._limit, self._cursor, count)
        return [
            plan
            for index, task in enumerate(tasks, start=self._cursor)
            for plan in plan_group(
                task,
                recipe.data.group_size,
                name=f"v{version}-{index}",
                seed=recipe.run.seed,
                environment=family.name,
            )
        ]

    def _lineage_of(self, version: int) -> str:
        return self._lineage[version] if version in self._lineage else self._known(version)
