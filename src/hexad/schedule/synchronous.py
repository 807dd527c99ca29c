"""Sample a batch, train on it, publish, repeat."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from functools import partial
from typing import Any

from hexad.contract.episode import Episode
from hexad.contract.events import EpisodeDone, Sink, TasksDrawn, ignore
from hexad.contract.faults import ContractViolation, UserError
from hexad.policy.engine import Weights
from hexad.recipe import legal
from hexad.recipe.axes import Recipe
from hexad.rollout.collect import collect
from hexad.rollout.log import EpisodeLog
from hexad.rollout.plan import EpisodePlan, plan_group
from hexad.rollout.rates import check_fault_rate, check_unscored_rate
from hexad.rollout.world import World
from hexad.schedule.continuations import Played, require_forkable, state_values
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
        self._planned: dict[str, EpisodePlan] = {}
        """First plan of every group of this batch."""
        self._refill = Refill(recipe) if recipe.data.dynamic is not None else None
        self._forks = legal.estimator(recipe.credit.estimator).forks
        self._played: dict[str, Played] = {}
        """How every episode of this batch was played, where states are continued."""
        if self._forks:
            instead = "use credit.estimator: rloo, or gae with a critic"
            require_forkable(world.family, "estimator vine", "credit.estimator", instead)

    def next(self, version: int) -> Harvest:
        """Roll out the next batch. Raises ``FaultRateExceeded`` beyond the recipe's limits."""
        if self._world.engine.version != version:
            loaded = self._world.engine.version
            raise ContractViolation(f"version {version} was not published: {loaded} is loaded")
        self._planned, self._played = {}, {}
        if self._refill is not None:
            harvest = self._refill.fill(version, partial(self._groups, version))
        else:
            groups, exhausted = self._groups(version, self._recipe.data.groups)
            harvest = Harvest(tuple(e for group in groups for e in group), exhausted=exhausted)
        if self._recipe.credit.baseline == "greedy":
            harvest = replace(harvest, greedy=self._greedy(version, harvest.episodes))
        return self._valued(version, harvest) if self._forks else harvest

    def _valued(self, version: int, harvest: Harvest) -> Harvest:
        """``harvest`` with the values of states, from continuations that are booked as auxiliary.

        An episode with a state that has none is dropped. Raises ``UserError`` when that is all.
        """
        masked = self._recipe.credit.truncation == "mask"
        live = [e for e in harvest.episodes if e.scored and not (masked and e.ending.truncated)]

        def done(episode: Episode) -> None:
            self._sink(EpisodeDone(version, episode, purpose="continuation"))

        values = state_values(live, self._played, self._recipe, self._world, done)
        lost = {name for name, each in values.items() if not all(map(math.isfinite, each))}
        if live and len(lost) == len(live):
            raise UserError(
                f"batch {version}: every episode has a state without any usable continuation",
                where="credit.continuations",
                fix="raise it, or look for the faults of the environment in ledger.jsonl",
            )
        kept = tuple(e for e in harvest.episodes if e.episode_id not in lost)
        dropped = [(e, "no_continuation") for e in live if e.episode_id in lost]
        return replace(
            harvest,
            episodes=kept,
            values=values,
            dropped=(*harvest.dropped, *dropped),
            sampled=harvest.episodes if harvest.sampled is None else harvest.sampled,
        )

    def _greedy(self, version: int, episodes: tuple[Episode, ...]) -> dict[str, float]:
        """Scores of one greedy rollout a group, from the same initial state; booked as auxiliary.

        Raises ``ContractViolation`` where the environment did not begin alike.
        """
        first = {episode.group_id: episode for episode in episodes}
        plans = [
            replace(plan, group_id=f"greedy-{name}", episode_id=f"greedy-{name}")
            for name in first
            for plan in (self._planned[name],)
        ]
        world, rows = self._world.greedy(), self._recipe.system.engine_rows

        def done(episode: Episode) -> None:
            self._sink(EpisodeDone(version, episode, purpose="greedy"))

        found = collect(plans, world, rows=rows, done=done)
        for episode, other in zip(found, first.values(), strict=True):
            if not episode.faulted and episode.initial_state != other.initial_state:
                raise ContractViolation(
                    f"{episode.episode_id} began in another state than its group"
                )
        weights = self._recipe.feedback.weights
        return {name: e.score(weights) for name, e in zip(first, found, strict=True)}

    def _groups(self, version: int, count: int) -> tuple[list[tuple[Episode, ...]], bool]:
        """Play the next ``count`` tasks; the groups in order, and whether no task is left."""
        data = self._recipe.data
        plans = self._plan(version, count)
        self._planned |= {plan.group_id: plan for plan in plans if plan.member == 0}
        taken = len(plans) // data.group_size
        if plans:
            self._sink(TasksDrawn(version, taken, len(plans)))

        def done(episode: Episode) -> None:
            self._sink(EpisodeDone(version, episode))

        rows = self._recipe.system.engine_rows
        logs = [EpisodeLog.create() for _ in plans] if self._forks else None
        episodes = collect(plans, self._world, rows=rows, done=done, logs=logs)
        if logs is not None:
            self._played |= {p.episode_id: (p, log) for p, log in zip(plans, logs, strict=True)}
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

    def finish(self) -> None:
        """Between two batches nothing is under way."""

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
