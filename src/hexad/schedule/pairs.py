"""Sources of preferences and kept samples: rounds of the policy's own, or stored episodes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hexad.contract.episode import Episode
from hexad.contract.events import EpisodeDone, ItemsMade, Sink, TasksDrawn, ignore
from hexad.contract.faults import ContractViolation
from hexad.contract.store import Store
from hexad.evidence import journal
from hexad.policy.engine import Weights
from hexad.recipe.axes import Recipe
from hexad.rollout.collect import collect
from hexad.rollout.log import EpisodeLog
from hexad.rollout.plan import plan_group
from hexad.rollout.rates import check_fault_rate, check_unscored_rate
from hexad.rollout.world import World
from hexad.schedule.branches import branches
from hexad.schedule.continuations import Played, require_forkable
from hexad.schedule.cursor import next_indices, train_limit, train_tasks
from hexad.schedule.made import Made, made
from hexad.schedule.source import Harvest
from hexad.schedule.stored import FolderShelf

PAIRS = "pairs.jsonl"
"""One row a round, or a data set: the audit of what was made of it."""
UNUSED = "unused"
"""Why an episode that is in no pair, and was not kept, is dropped."""
FAULTED = "faulted"
"""Why an episode is dropped that nothing could be made of."""


class RoundSource:
    """Samples ``data.rounds.tasks`` tasks, then hands out what was made of them, pass by pass.

    A round plays with the weights of its beginning. Its episodes are handed to the run's store in
    ``folder`` with the first batch, and read back from there by a resume. Each is booked once: what
    is trained on again costs no rollout.
    """

    def __init__(self, world: World, recipe: Recipe, folder: Path, sink: Sink = ignore) -> None:
        assert recipe.data.rounds is not None
        self._world, self._recipe, self._folder, self._sink = world, recipe, folder, sink
        self._spec = recipe.data.rounds
        self._limit = train_limit(world.family, recipe.task.train.count)
        self._round, self._position = 0, 0
        self._begun: int | None = None
        """The version that sampled this round; ``None`` before it has."""
        self._items: tuple[tuple[Episode, ...], ...] = ()
        self._trained = 0
        """So many of the items were trained on in earlier rounds."""
        if self._spec.forks is not None:
            where = "data.rounds.forks"
            require_forkable(world.family, where, where, "remove it")

    def next(self, version: int) -> Harvest:
        """The next batch; the first of a round samples. Raises ``FaultRateExceeded`` beyond the
        recipe's limits, ``UserError`` when nothing can be made of the samples.
        """
        sampled: tuple[Episode, ...] = ()
        unused: tuple[Episode, ...] = ()
        begins = self._begun is None
        if begins:
            sampled = tuple(self._sample(version))
            found = self._enter(version, sampled)
            unused = found.unused
            self._tell(version, found)
        size, seed = len(self._items), self._recipe.run.seed
        chosen = next_indices(size, seed, self._position, self._recipe.data.groups)
        again = self._position >= size
        self._position += len(chosen)
        if self._spec.passes is not None and self._position == self._spec.passes * size:
            self._round, self._position, self._begun = self._round + 1, 0, None
        episodes = tuple(episode for index in chosen for episode in self._items[index])
        known = [index for index in chosen if again or index < self._trained]
        return Harvest(
            episodes,
            exhausted=self._begun is None and self._over(),
            dropped=tuple((e, FAULTED if e.faulted else UNUSED) for e in unused),
            sampled=sampled,
            reused=frozenset(e.episode_id for index in known for e in self._items[index]),
            begins=begins,
            open=self._begun is not None and self._spec.passes is not None,
        )

    def publish(self, weights: Weights | None, version: int, lineage: str) -> None:
        """Let the engine load ``weights`` as ``version``."""
        asyncio.run(self._world.engine.publish(weights, version))

    def finish(self) -> None:
        """Between two batches nothing is under way."""

    def state(self) -> dict[str, Any]:
        """The round, the place in it, and the version that sampled it."""
        return {"round": self._round, "position": self._position, "begun": self._begun}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the next batch; what the round has sampled is read from the store."""
        self._round, self._position = int(state["round"]), int(state["position"])
        self._begun, self._items = None, ()
        if state["begun"] is not None:
            version = int(state["begun"])
            self._enter(version, Store(self._folder / "episodes").read([version]))

    def close(self) -> None:
        """Close the engine."""
        asyncio.run(self._world.engine.close())

    def _over(self) -> bool:
        """Whether no round is left: all were played, or no task is left for another."""
        drawn, limit = self._round * self._spec.tasks, self._limit
        return self._round == self._spec.rounds or (limit is not None and drawn >= limit)

    def _enter(self, version: int, episodes: Sequence[Episode]) -> Made:
        found = made(episodes, self._recipe, f"round-{self._round}")
        self._items, self._begun = found.items, version
        return found

    def _tell(self, version: int, found: Made) -> None:
        journal.append(self._folder / PAIRS, {"round": self._round, "step": version, **found.row})
        self._sink(ItemsMade(version, f"round {self._round}: {found.text}", found.outside))

    def _sample(self, version: int) -> list[Episode]:
        """Play the round's tasks with the weights of ``version``, and fork what was played."""
        world, recipe = self._world, self._recipe
        if world.engine.version != version:
            loaded = world.engine.version
            raise ContractViolation(f"version {version} was not published: {loaded} is loaded")
        family, first = world.family, self._round * self._spec.tasks
        tasks = train_tasks(family, self._limit, first, self._spec.tasks)
        plans = [
            plan
            for index, task in enumerate(tasks, start=first)
            for plan in plan_group(
                task,
                recipe.data.group_size,
                name=f"v{version}-{index}",
                seed=recipe.run.seed,
                environment=family.name,
            )
        ]
        self._sink(TasksDrawn(version, len(tasks), len(plans)))

        def done(episode: Episode) -> None:
            self._sink(EpisodeDone(version, episode))

        logs = None if self._spec.forks is None else [EpisodeLog.create() for _ in plans]
        episodes = collect(plans, world, rows=recipe.system.engine_rows, done=done, logs=logs)
        self._check(episodes)
        if logs is None:
            return episodes
        played = {p.episode_id: (p, log) for p, log in zip(plans, logs, strict=True)}
        return [*episodes, *self._forked(version, episodes, played)]

    def _forked(
        self, version: int, episodes: Sequence[Episode], played: Mapping[str, Played]
    ) -> list[Episode]:
        """What goes on from the turns of some of ``episodes``."""
        made = branches(episodes, played, self._recipe, self._world)
        self._sink(TasksDrawn(version, 0, len(made)))
        for episode in made:
            self._sink(EpisodeDone(version, episode))
        self._check(made)
        return made

    def _check(self, episodes: Sequence[Episode]) -> None:
        check_fault_rate(episodes, self._recipe.data.fault_limit)
        check_unscored_rate(episodes, self._recipe.feedback.unscored_limit)


class PairSource:
    """Hands out ``data.groups`` items at a time of what was made of stored ``episodes``.

    Each pass comes in a new order until a budget ends the run; its last batch holds what is left.
    """

    def __init__(
        self, found: Made, world: World, recipe: Recipe, folder: Path, sink: Sink = ignore
    ) -> None:
        self._found, self._world, self._recipe = found, world, recipe
        self._folder, self._sink = folder, sink
        self._position = 0

    def next(self, version: int) -> Harvest:
        """The next batch of items."""
        items, data = self._found.items, self._recipe.data
        if self._position == 0:
            journal.append(self._folder / PAIRS, {"step": version, **self._found.row})
            self._sink(ItemsMade(version, self._found.text, self._found.outside))
        chosen = next_indices(len(items), self._recipe.run.seed, self._position, data.groups)
        episodes = tuple(episode for index in chosen for episode in items[index])
        self._sink(TasksDrawn(version, len(chosen), len(episodes)))
        for episode in episodes:
            self._sink(EpisodeDone(version, episode))
        self._position += len(chosen)
        return Harvest(episodes)

    def publish(self, weights: Weights | None, version: int, lineage: str) -> None:
        """Let the engine that evaluates load the weights."""
        asyncio.run(self._world.engine.publish(weights, version))

    def finish(self) -> None:
        """Between two batches nothing is under way."""

    def state(self) -> dict[str, Any]:
        """The number of items consumed."""
        return {"position": self._position}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the next item."""
        self._position = int(state["position"])

    def close(self) -> None:
        """Close the engine."""
        asyncio.run(self._world.engine.close())


def data_states(recipe: Recipe) -> frozenset[str]:
    """Digests of the states in the stored episodes that ``recipe`` learns from.

    Of preferences, those in a pair or a label. None where nothing stored is learned from, or where
    nobody named states.
    """
    if recipe.data.regime != "fixed" or recipe.data.origin in ("expert", "data_set"):
        return frozenset()
    if recipe.feedback.source == "preferences":
        used = [episode for item in stored_pairs(recipe).items for episode in item]
    else:
        shelf = FolderShelf(Path(recipe.data.origin), size=recipe.data.size)
        used = shelf.take(range(shelf.size))
    return frozenset(state for episode in used for state in episode.states)


def stored_pairs(recipe: Recipe) -> Made:
    """What is made of the episodes in the folder ``data.origin``; only train tasks are accepted."""
    folder = Path(recipe.data.origin)
    shelf = FolderShelf(folder, size=recipe.data.size)
    return made(shelf.take(range(shelf.size)), recipe, "pair")
