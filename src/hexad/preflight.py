"""Measures a recipe on a small real batch: what a turn, an episode and a learner step take here.

The loop, the policy, the environment and the learner are the recipe's own; they work in a temporary
folder and are thrown away.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path as Folder
from typing import Any

import numpy as np

from hexad.contract.episode import Episode
from hexad.contract.events import EpisodeDone, Event, GroupJudged, Timed
from hexad.contract.faults import UserError
from hexad.contract.task import Split
from hexad.environments.latency import Latency
from hexad.environments.wrap import Moment, Work, disturb, undisturbed
from hexad.evidence.barrier import Path, Profile, Streaming, Turn
from hexad.evidence.costs import Cost, step_costs
from hexad.evidence.ledger import Ledger
from hexad.policy.engine import EngineStats
from hexad.policy.local import LocalEngine
from hexad.policy.policy import Policy
from hexad.recipe.axes import Recipe
from hexad.recipe.timing_axis import TimingSpec
from hexad.rollout.build import policy_of, world_of
from hexad.rollout.collect import collect
from hexad.rollout.disturb import latency
from hexad.rollout.plan import plan_tasks
from hexad.rollout.world import World
from hexad.run import compose
from hexad.schedule.cursor import train_limit, train_tasks
from hexad.schedule.trial import streamed

EPISODES = 64
"""About as many episodes are in the measured batch, where the recipe's is larger."""
_SERIAL = 8
"""Episodes that are played one by one, to tell the cost of a step from that of a row."""
_LEARNING = ("score", "critic", "update", "publish")
"""Phases of the loop that keep the learner busy."""


@dataclass(frozen=True, slots=True)
class Played:
    """Episodes of ``groups`` groups."""

    recipe: Recipe
    policy: Policy
    groups: int
    episodes: tuple[Episode, ...]


@dataclass(frozen=True, slots=True)
class Measured(Played):
    """One batch of ``groups`` groups, played and trained on, after one that warmed everything up.

    ``phases`` are wall-clock and CPU seconds of each phase of the loop. ``waits`` are the seconds
    of every reset and step of the environment, ``signal`` the share of groups with a contrast.
    """

    profile: Profile
    phases: Mapping[str, tuple[float, float]]
    waits: Mapping[str, Sequence[float]]
    company: float
    """Mean rows of a decode step."""
    signal: float | None
    kinds: Mapping[str, int]

    @property
    def learner_seconds(self) -> float:
        """Seconds of the learner for the measured batch."""
        return self.profile.learner_seconds * self.groups / self.recipe.data.groups


def measure(recipe: Recipe) -> Measured:
    """Play and train two small batches of an online recipe synchronously; the second is measured.

    Raises what training it would raise.
    """
    small = _small(recipe)
    watch = _Watch()
    worlds: list[World] = []

    def prepare(world: World) -> World:
        worlds.append(replace(world, family=disturb(world.family, [watch.stopwatch])))
        watch.engine_stats = lambda: world.engine.stats
        return worlds[0]

    with (
        tempfile.TemporaryDirectory(prefix="hexad-check-") as folder,
        compose(small, Folder(folder), watch, prepare=prepare) as loop,
    ):
        loop.started = True  # no evaluation and no checkpoint before the first batch
        try:
            loop.run(watch.between)
        except _EnoughError:
            pass
        serial = _serial(small, worlds[0])
        policy = loop.parts.learner.policy
        streaming = streamed(small, Folder(folder) / "wal")
    return _measured(recipe, small, policy, watch, (serial, streaming))


def play(recipe: Recipe) -> Played:
    """Play a few tasks as a round of ``recipe`` does, and train on nothing.

    Raises ``UserError`` for what training would refuse, and for a recipe that samples nothing.
    """
    if recipe.data.regime == "fixed":
        raise UserError(
            "data.regime: fixed samples nothing, so there is nothing to measure",
            where="data.regime",
            fix="check a recipe that samples",
        )
    policy, rows = policy_of(recipe), recipe.system.engine_rows
    engine, size, seed = LocalEngine(policy, rows=rows), recipe.data.group_size, recipe.run.seed
    asyncio.run(engine.publish(None, 0))
    lineage = policy.lineage()
    with ExitStack() as held:
        held.callback(lambda: asyncio.run(engine.close()))
        world = world_of(recipe, policy, engine, lambda version: lineage, held)
        count = -(-EPISODES // size)
        limit, name = train_limit(world.family, recipe.task.train.count), world.family.name
        tasks = train_tasks(world.family, limit, 0, count)
        plans = plan_tasks(tasks, size, prefix="check-", seed=seed, environment=name)
        episodes = collect(plans, world, rows=rows)
    return Played(recipe, policy, len(tasks), tuple(episodes))


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _EnoughError(Exception):
    """Leaves the loop without the checkpoint of a run that ends."""


class Stopwatch:
    """A disturbance that disturbs nothing: it measures what every call takes."""

    config: Mapping[str, Any] = {"stopwatch": True}

    def __init__(self) -> None:
        self.seconds: dict[tuple[int, int], float] = {}

    async def around(self, moment: Moment, work: Work) -> Any:
        """The call, timed by environment seed and turn."""
        started = time.perf_counter()
        try:
            return await work()
        finally:
            self.seconds[moment.seed, moment.turn] = time.perf_counter() - started


@dataclass(slots=True)
class _Watch:
    """Looks on: a run's watcher that keeps the newest batch."""

    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    episodes: list[Episode] = field(default_factory=list)
    judged: list[GroupJudged] = field(default_factory=list)
    phases: dict[str, tuple[float, float]] = field(default_factory=dict)
    engine_stats: Any = EngineStats
    batch: Cost | None = None
    _batches: int = 0
    _cpu: float = 0.0
    _stats: EngineStats = field(default_factory=EngineStats)

    def stage(self, name: str, recipe: Recipe, ledger: Ledger) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def between(self) -> bool:
        """Between two batches: forget the first, leave after the second."""
        if self._batches == 2:
            raise _EnoughError
        self._batches += 1
        self.episodes.clear()
        self.judged.clear()
        self.phases.clear()
        self._cpu, self._stats = time.process_time(), self.engine_stats()
        return False

    def __call__(self, event: Event) -> None:
        """Keep what the profile is made of."""
        if isinstance(event, EpisodeDone) and event.purpose == "train":
            self.episodes.append(event.episode)
        elif isinstance(event, GroupJudged):
            self.judged.append(event)
        elif isinstance(event, Timed):
            cpu = time.process_time()
            wall, used = self.phases.get(event.phase, (0.0, 0.0))
            self.phases[event.phase] = (wall + event.seconds, used + cpu - self._cpu)
            if event.phase == "rollout":
                self.batch = Cost.of(cpu - self._cpu, self._stats, self.engine_stats())
            self._cpu = cpu


def _small(recipe: Recipe) -> Recipe:
    """``recipe``, synchronous, with a small batch and nothing beside it."""
    data, update, critic = recipe.data, recipe.update, recipe.critic
    least = max(update.minibatches, critic.minibatches if critic is not None else 1, 2)
    size = min(data.groups, max(least, -(-EPISODES // data.group_size)))
    evaluation = recipe.run.evaluation.model_copy(update={"every": None, "final": "none"})
    checkpoints = recipe.run.checkpoints.model_copy(update={"every": None})
    run = recipe.run.model_copy(update={"evaluation": evaluation, "checkpoints": checkpoints})
    budget = recipe.budget.model_copy(
        update=dict.fromkeys(type(recipe.budget).model_fields) | {"episodes": 1 << 40}
    )
    return recipe.model_copy(
        update={
            "data": data.model_copy(update={"groups": size, "dynamic": None}),
            "timing": TimingSpec(),
            "run": run,
            "budget": budget,
        }
    )


def _serial(recipe: Recipe, world: World) -> Cost:
    """A few episodes, one at a time and undisturbed."""
    family = undisturbed(world.family)
    tasks = family.tasks(Split.TRAIN, min(_SERIAL, recipe.data.groups))
    seed, name = recipe.run.seed, family.name
    plans = plan_tasks(tasks, 1, prefix="serial-", seed=seed, environment=name)
    cpu, before = time.process_time(), world.engine.stats
    collect(plans, replace(world, family=family), rows=1)
    return Cost.of(time.process_time() - cpu, before, world.engine.stats)


def _measured(
    recipe: Recipe, small: Recipe, policy: Policy, watch: _Watch, costs: tuple[Cost, Streaming]
) -> Measured:
    batch, seconds = watch.batch, watch.stopwatch.seconds
    assert batch is not None
    (serial, streaming), spec = costs, recipe.task.latency
    declared = latency(spec) if spec is not None else None
    members: dict[str, list[Path]] = {}
    for episode in watch.episodes:
        if not episode.faulted:
            members.setdefault(episode.group_id, []).append(path_of(episode, seconds, declared))
    step, row = step_costs(serial, batch)
    spent, threads = _learner(watch.phases, busy=small.system.device == "cpu")
    profile = Profile(
        groups=tuple(tuple(paths) for paths in members.values()),
        step_seconds=step,
        row_seconds=row,
        learner_seconds=spent * recipe.data.groups / small.data.groups,
        learner_cores=threads,
        streaming=streaming,
        latency=declared,
    )
    seeds = {episode.seed for episode in watch.episodes}
    calls = {"reset": [], "step": []}  # type: dict[str, list[float]]
    for (seed, turn), waited in seconds.items():
        if seed in seeds:
            calls["step" if turn else "reset"].append(waited)
    judged = watch.judged
    return Measured(
        recipe=recipe,
        policy=policy,
        groups=small.data.groups,
        episodes=tuple(watch.episodes),
        profile=profile,
        phases=dict(watch.phases),
        waits=calls,
        company=batch.rows,
        signal=sum(group.signal for group in judged) / len(judged) if judged else None,
        kinds=Counter(group.kind for group in judged),
    )


def _learner(phases: Mapping[str, tuple[float, float]], *, busy: bool) -> tuple[float, int]:
    """Seconds of the learner for a batch, and the cores it takes.

    A ``busy`` learner works on processors all the time, so where it used less time on them than
    passed, other programs had them; that is not its own.
    """
    spent = [phases[name] for name in _LEARNING if name in phases]
    wall, cpu = sum(w for w, _ in spent), sum(c for _, c in spent)
    threads = min(cores(), max(1, round(cpu / wall))) if wall > 0 else 1
    return (min(wall, cpu) if busy else wall), threads


def path_of(
    episode: Episode, seconds: Mapping[tuple[int, int], float], declared: Latency | None = None
) -> Path:
    """``episode`` with the ``seconds`` of each call, by environment seed and turn (0: reset).

    ``declared`` is the latency that was among these.
    """
    turns = [segment.turn[segment.action] for segment in episode.segments]
    counts = np.bincount(np.concatenate(turns)) if turns else np.zeros(0, np.int64)

    def drawn(turn: int) -> float:
        moment = Moment(episode.split, episode.seed, turn)
        called = (episode.seed, turn) in seconds  # a turn that ended the episode has no step
        return declared.seconds(moment) if declared is not None and called else 0.0

    return Path(
        seconds.get((episode.seed, 0), 0.0),
        tuple(
            Turn(int(tokens), seconds.get((episode.seed, number), 0.0), drawn(number))
            for number, tokens in enumerate(counts, start=1)
        ),
        drawn(0),
    )
