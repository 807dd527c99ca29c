"""Sampling and training overlap: finished episodes are consumed while others are played."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from hexad.contract.admission import Needs, admit
from hexad.contract.arrow import from_ipc, to_ipc
from hexad.contract.episode import Episode
from hexad.contract.events import (
    EpisodeDone,
    EpisodeLeft,
    EpisodeLost,
    Sink,
    Stalled,
    TasksDrawn,
    WorkerReplaced,
    WorkersSeen,
    ignore,
)
from hexad.contract.faults import ContractViolation, UserError
from hexad.policy.engine import Weights
from hexad.recipe.axes import Recipe
from hexad.recipe.timing_axis import WorkersSpec
from hexad.rollout.log import EpisodeLog
from hexad.rollout.plan import plan_group
from hexad.rollout.rates import check_fault_rate, check_unscored_rate
from hexad.rollout.world import World
from hexad.schedule.backend import Backend
from hexad.schedule.crew import Arrived, Crew, Gone, Parked
from hexad.schedule.cursor import train_limit, train_tasks
from hexad.schedule.dynamic import Refill
from hexad.schedule.flights import Flight, lineage_of, logs_of, recorded
from hexad.schedule.governor import Exit, Governor, gate
from hexad.schedule.groups import Group, Groups
from hexad.schedule.messages import Lost, Play
from hexad.schedule.partial import newest_only
from hexad.schedule.source import Harvest
from hexad.schedule.wal import Wal
from hexad.schedule.weights import pack

_TICK = 0.2
"""Seconds after which a wait looks at workers and Ctrl-C again."""
STALL_SECONDS = 30.0
"""Seconds without a finished episode after which the wait is explained."""


@dataclass(frozen=True, slots=True)
class Supply:
    """What the source needs beside the world: workers, weights, admission, its folder.

    ``needs`` gives admission's demands at a learner version; ``wal`` is the folder of the episode
    logs. ``interrupted`` is asked while waiting.
    """

    backend: Backend
    weights: Callable[[], Weights]
    needs: Callable[[int], Needs]
    wal: Path
    interrupted: Callable[[], bool] = lambda: False


@dataclass(slots=True)
class _Batch:
    """What one call of ``next`` has decided so far."""

    groups: list[Group] = field(default_factory=list)
    gated: dict[str, tuple[Episode, Exit, str]] = field(default_factory=dict)
    """Members of these groups that a gate stopped: episode, gate, first reason."""


class AsynchronousSource:
    """Keeps workers playing, within ``timing.max_lag``, and hands over whole groups as they end.

    See ``docs/decisions/0004-asynchronous-source.md``. Groups enter a batch in the order in which
    they became whole, sorted inside it by task. With one attempt a task every episode is a group.
    A batch never has fewer than ``data.groups`` groups while tasks are left.
    """

    def __init__(self, world: World, recipe: Recipe, supply: Supply, sink: Sink = ignore) -> None:
        timing = recipe.timing
        assert timing.max_lag is not None
        self._world, self._recipe, self._supply, self._sink = world, recipe, supply, sink
        self._requeues = timing.stale == "requeue"
        self._limit = train_limit(world.family, recipe.task.train.count)
        self._size = recipe.data.group_size
        self._refill = Refill(recipe) if recipe.data.dynamic is not None else None
        self._governor = Governor(recipe.data.groups * self._size, timing.max_lag)
        self._crew = Crew(supply.backend, timing.workers or WorkersSpec(), self._check)
        self._wal = Wal(supply.wal)
        self._groups = Groups()
        self._flights: dict[str, Flight] = {}
        self._again: deque[tuple[int, int]] = deque()
        """Tasks to try again: number, and how often they were tried."""
        self._dropped: list[tuple[Episode, str, float]] = []
        """Members of groups that left as a whole: episode, reason, age."""
        self._news: list[Episode] = []
        self._recent: deque[Episode] = deque(maxlen=self._governor.batch)
        self._decided: set[str] = set()
        """Episodes whose logs go once the store is on disk, which the next publish says."""
        self._lost: set[str] = set()
        """Episodes that are in no store: their logs go with the next checkpoint."""
        self._settled: set[str] = set()
        """Episodes whose logs go once the checkpoint is on disk, which the next batch says."""
        self._cursor, self._loaded = 0, -1
        self._started = self._finished = self._told = False
        self._heard = time.monotonic()

    # -- the source --------------------------------------------------------------------------

    def next(self, version: int) -> Harvest:
        """The next batch. Raises ``FaultRateExceeded`` beyond the recipe's limits, ``WorkersLost``
        when workers die too often.
        """
        if self._loaded != version:
            raise ContractViolation(f"version {version} was not published: {self._loaded} is")
        self._forget(self._settled)
        batch, self._heard = _Batch(), time.monotonic()
        draw = partial(self._draw, batch, version)
        self._start()
        try:
            if self._refill is not None:
                harvest = self._refill.fill(version, draw)
            else:
                groups, ended = draw(self._recipe.data.groups)
                harvest = Harvest(tuple(e for group in groups for e in group), exhausted=ended)
        except _Asked:
            self._groups.back(batch.groups)
            return Harvest((), interrupted=True)
        self._see(version)
        return self._decide(harvest, batch)

    def publish(self, weights: Weights | None, version: int, lineage: str) -> None:
        """Hand the learner's weights to the workers, and to the engine that evaluates.

        Paused episodes go on, and new ones are begun as far as the governor allows. The last batch
        is in the store by now.
        """
        self._forget(self._decided)
        asyncio.run(self._world.engine.publish(weights, version))
        self._crew.publish(version, lineage, pack(self._supply.weights()))
        self._loaded = version
        if self._started:
            self._go_on()

    def finish(self) -> None:
        """Stop the workers; every token that is on record of an episode under way is told of."""
        if self._started:
            self._hear(0.0)
            self._crew.close()
            self._started = False
        for episode in self._news:
            self._sink(EpisodeDone(self._loaded, episode))
        self._news = []
        for name, flight in self._flights.items():
            tokens = EpisodeLog.read(recorded(flight, self._wal)).sampled_tokens + flight.lost
            self._sink(EpisodeLeft(self._loaded, name, tokens))
            self._governor.lose()
            self._groups.lose(flight.order.group_id)
            self._lost.add(name)
        self._flights.clear()
        self._finished = True  # and the next state() is the last

    def state(self) -> dict[str, Any]:
        """Everything that is not consumed: cursor, queue, and the logs of what is under way."""
        if self._started:
            self._hear(0.0)
        flights = list(self._flights.values())
        logs = [recorded(flight, self._wal) for flight in flights]
        waiting = [e.episode_id for group in self._groups.all for e in group.members]
        self._settled.update(waiting, (e.episode_id for e, _, _ in self._dropped), self._lost)
        self._lost.clear()
        self._told = self._finished
        return {
            "cursor": self._cursor,
            "again": [list(pair) for pair in self._again],
            "governor": self._governor.state(),
            "groups": self._groups.state(),
            "flights": [[f.order.model_dump(mode="json"), f.lost] for f in flights],
            "logs": b"".join(logs),
            "log_lengths": [len(log) for log in logs],
            "settled": sorted(self._settled),
            "unannounced": [episode.episode_id for episode in self._news],
            "dropped": [[reason, age] for _, reason, age in self._dropped],
            "dropped_episodes": to_ipc([episode for episode, _, _ in self._dropped]),
            "restarts": self._crew.restarts,
            **({"refill": self._refill.state()} if self._refill is not None else {}),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` was taken; :func:`kept` tells what remains.

        Episodes under way go on from their logs.
        """
        self._cursor, self._again = int(state["cursor"]), deque(map(tuple, state["again"]))
        self._governor.restore(state["governor"])
        self._groups.restore(state["groups"], time.monotonic())
        self._flights = {
            name: Flight(Play.model_validate(order, strict=False), log, lost)
            for (name, log), (order, lost) in zip(
                logs_of(state).items(), state["flights"], strict=True
            )
        }
        known = {e.episode_id: e for group in self._groups.all for e in group.members}
        self._news = [known[name] for name in state["unannounced"]]
        episodes = from_ipc(state["dropped_episodes"])
        facts = zip(episodes, state["dropped"], strict=True)
        self._dropped = [(episode, reason, age) for episode, (reason, age) in facts]
        self._crew.restarts = int(state["restarts"])
        if self._refill is not None:
            self._refill.restore(state["refill"])
        self._wal.keep(set())

    def close(self) -> None:
        """Stop the workers within five seconds, and close the engine.

        Of a finished run no log is needed: what is left of it is in its last checkpoint.
        """
        if self._started:
            self._crew.close()
        if self._told:
            self._wal.keep(set())
        asyncio.run(self._world.engine.close())

    # -- a batch -----------------------------------------------------------------------------

    def _draw(
        self, batch: _Batch, version: int, count: int
    ) -> tuple[list[tuple[Episode, ...]], bool]:
        """The next ``count`` groups with something to train on, and whether no task is left."""
        taken: list[tuple[Group, tuple[Episode, ...]]] = []
        while len(taken) < count:
            self._hear(0.0)
            self._announce(version)
            group = self._groups.pop()
            if group is not None:
                if kept := self._judge(version, group, batch):
                    taken.append((group, kept))
                    batch.groups.append(group)
            elif self._ended():
                break
            else:
                self._wait(version)
        taken.sort(key=lambda pair: pair[0].index)
        return [kept for _, kept in taken], self._ended()

    def _judge(self, version: int, group: Group, batch: _Batch) -> tuple[Episode, ...]:
        """The members that enter the batch; the others' gates are noted.

        A member that is too old stays beside trainable ones with weight 0: its reward belongs to
        the baseline. A group without a trainable member leaves as a whole.
        """
        needs = self._supply.needs(version)
        passed: list[Episode] = []
        out: dict[str, tuple[Episode, Exit, str]] = {}
        for episode in map(self._weighed, group.members):
            reasons = tuple(violation.reason for violation in admit(episode, needs))
            if reasons:
                out[episode.episode_id] = (episode, gate(reasons), str(reasons[0]))
            else:
                passed.append(episode)
        old = [episode for episode, how, _ in out.values() if how is Exit.STALE]
        if passed:
            batch.gated |= out
            kept = [*passed, *(weightless(episode) for episode in old)]
            return tuple(sorted(kept, key=lambda episode: episode.member))
        for episode, how, reason in out.values():
            self._governor.exit(how)
            self._dropped.append(
                (episode, reason, time.monotonic() - group.since[episode.episode_id])
            )
        if old and self._requeues:
            self._again.append((group.index, group.tries + 1))
        return ()

    def _decide(self, harvest: Harvest, batch: _Batch) -> Harvest:
        """Book the exits of the groups that a batch or a filter took, and describe the batch."""
        filtered = {episode.episode_id for episode, _ in harvest.dropped}
        now = time.monotonic()
        ages = {episode.episode_id: age for episode, _, age in self._dropped}
        for group in batch.groups:
            for episode in group.members:
                name = episode.episode_id
                how = Exit.FILTERED if name in filtered else Exit.TRAINED
                self._governor.exit(batch.gated[name][1] if name in batch.gated else how)
                ages[name] = now - group.since[name]
        gated = [
            (e, reason) for e, _, reason in batch.gated.values() if e.episode_id not in filtered
        ]
        dropped = (*harvest.dropped, *gated, *((e, reason) for e, reason, _ in self._dropped))
        self._dropped = []
        present = {episode.episode_id for episode in harvest.episodes}
        left = (e for e, _ in dropped if e.episode_id not in present)
        decided = (*harvest.episodes, *left)
        self._decided.update(episode.episode_id for episode in decided)
        self._dispatch()
        return replace(harvest, dropped=dropped, sampled=decided, ages=ages)

    def _weighed(self, episode: Episode) -> Episode:
        partial_ = self._recipe.timing.partial
        newest = partial_ is not None and partial_.train == "newest"
        return newest_only(episode) if newest else episode

    # -- workers -----------------------------------------------------------------------------

    def _start(self) -> None:
        """Start the workers, once, and let them play what a resumed run had under way."""
        if not self._started:
            self._started = True
            self._crew.start()
            self._go_on()

    def _go_on(self) -> None:
        """Send every episode that waits for a worker, then begin new ones."""
        for flight in self._flights.values():
            self._send(flight)
        self._dispatch()

    def _hear(self, timeout: float) -> None:
        """Take in what the workers have sent."""
        for news in self._crew.hear(timeout):
            self._heard = time.monotonic()
            if isinstance(news, Arrived):
                self._arrive(news.episode, news.lost)
            elif isinstance(news, Parked):
                flight = self._flight(news.episode_id)
                flight.log, flight.lost, flight.sent = news.log, news.lost, False
            elif isinstance(news, Lost):
                self._lose(news)
            else:
                self._orphaned(news)

    def _arrive(self, episode: Episode, lost: int) -> None:
        self._flight(episode.episode_id)
        del self._flights[episode.episode_id]
        if lost:
            costs = replace(episode.costs, lost_tokens=episode.costs.lost_tokens + lost)
            episode = replace(episode, costs=costs)
        self._governor.finish()
        self._groups.put(episode, time.monotonic())
        self._news.append(episode)

    def _lose(self, news: Lost) -> None:
        """Go on without an episode that may not be played again."""
        order = self._flight(news.episode_id).order
        del self._flights[news.episode_id]
        self._governor.lose()
        self._groups.lose(order.group_id)
        self._lost.add(news.episode_id)
        self._sink(EpisodeLost(self._loaded, news.episode_id, news.lost, news.reason))

    def _flight(self, episode_id: str) -> Flight:
        if episode_id not in self._flights:
            raise ContractViolation(f"a worker sent episode {episode_id}, which nobody ordered")
        return self._flights[episode_id]

    def _orphaned(self, gone: Gone) -> None:
        """Let others go on with what a dead worker played, from its logs."""
        for name in gone.episodes:
            flight = self._flight(name)
            flight.log, flight.sent = recorded(flight, self._wal), False
            self._send(flight)
        text = f"worker {gone.slot} is gone ({gone.why}); {len(gone.episodes)} episodes go on"
        self._sink(WorkerReplaced(self._loaded, text))

    def _forget(self, names: set[str]) -> None:
        """Remove the logs of ``names``, and the names."""
        for name in names:
            self._wal.remove(name)
        names.clear()

    def _announce(self, version: int) -> None:
        """Tell the books of what arrived. Raises ``FaultRateExceeded`` beyond the limits."""
        for episode in self._news:
            self._sink(EpisodeDone(version, episode))
            self._recent.append(episode)
            if len(self._recent) == self._recent.maxlen:
                check_fault_rate(self._recent, self._recipe.data.fault_limit)
                check_unscored_rate(self._recent, self._recipe.feedback.unscored_limit)
        self._news = []

    def _wait(self, version: int) -> None:
        """Wait for news; explain a long wait, and give way to Ctrl-C."""
        if self._supply.interrupted():
            raise _Asked
        self._dispatch()
        if not any(flight.sent for flight in self._flights.values()):
            self._go_on()  # all are paused: the batch cannot be filled without them
        self._hear(_TICK)
        if time.monotonic() - self._heard > STALL_SECONDS:
            self._heard = time.monotonic()
            missing = sum(group.size - len(group.episodes) for group in self._groups.open)
            text = (
                f"batch {version} waits for {missing} episodes of {len(self._groups.open)} groups, "
                f"{len(self._groups)} groups are whole; {self._crew.describe()}"
            )
            self._sink(Stalled(version, text))

    def _dispatch(self) -> None:
        """Begin new groups as far as the governor and the tasks allow."""
        episodes = tasks = 0
        while self._governor.room(self._loaded) >= self._size and (found := self._following()):
            index, tries, orders = found
            name = orders[0].group_id
            self._groups.add(Group(name, index, self._size, tries))
            self._governor.dispatch(len(orders))
            for order in orders:
                flight = self._flights[order.episode_id] = Flight(order)
                self._send(flight)
            tasks, episodes = tasks + 1, episodes + len(orders)
        if tasks:
            self._sink(TasksDrawn(self._loaded, tasks, episodes))

    def _following(self) -> tuple[int, int, list[Play]] | None:
        """The next task's number, how often it was tried, and the orders of its group.

        ``None`` where no task is left.
        """
        tries = 0
        if self._again:
            index, tries = self._again.popleft()
        elif self._limit is not None and self._cursor >= self._limit:
            return None
        else:
            index, self._cursor = self._cursor, self._cursor + 1
        family, recipe = self._world.family, self._recipe
        (task,) = train_tasks(family, self._limit, index, 1)
        again = f".{tries}" if tries else ""
        name, seed = f"v{self._loaded}-{index}{again}", recipe.run.seed
        plans = plan_group(task, self._size, name=name, seed=seed, environment=family.name)
        pause = recipe.timing.partial.tokens if recipe.timing.partial is not None else None
        return index, tries, [Play.of(plan, index, pause_after=pause) for plan in plans]

    def _send(self, flight: Flight) -> None:
        if not flight.sent:
            flight.sent = True
            lineage = lineage_of(flight, self._world.lineage)
            changes = {"lost": flight.lost, "lineage": lineage}
            self._crew.play(flight.order.model_copy(update=changes), flight.log)

    def _ended(self) -> bool:
        """Whether nothing is left to play or to hand over."""
        drawn = self._limit is not None and self._cursor >= self._limit
        return drawn and not (self._again or self._flights or len(self._groups))

    def _see(self, version: int) -> None:
        busy, live = self._crew.busy()
        lost, self._crew.lost = self._crew.lost, 0
        waiting, flying = self._groups.waiting, len(self._flights)
        self._sink(WorkersSeen(version, busy, live, lost, waiting, flying))

    def _check(self, digests: Mapping[str, str]) -> None:
        """Refuse a worker that was built with other parts than the learner's."""
        own = self._world.provenance(()).parts()
        for part, digest in digests.items():
            if own.get(part, digest) != digest:
                raise UserError(
                    f"a worker has another {part} than the learner",
                    where="timing.workers",
                    fix="run every worker from the same installation and the same files",
                )


class _Asked(Exception):
    """The user asked for the end while a batch was waited for."""


def weightless(episode: Episode) -> Episode:
    """``episode`` with every token out of the loss; its reward stays."""
    segments = tuple(replace(segment, weight=segment.weight * 0.0) for segment in episode.segments)
    return replace(episode, segments=segments)
