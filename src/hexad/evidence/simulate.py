"""A discrete-event simulation of training: workers, learner, queue and cores, on measured times.

simpy runs the clock. Not in it: faults, evaluations, checkpoints, and what sending costs.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simpy

from hexad.evidence.barrier import Path, Profile
from hexad.evidence.forecast import Forecast, Machine, Schedule

Process = Generator[simpy.Event, Any, None]
_SLICES = 8
"""Slices of a mean turn: how fine cores are shared, and how soon an arrival joins a decode."""


def simulate(profile: Profile, machine: Machine, schedule: Schedule, seed: int = 0) -> Forecast:
    """Run ``schedule`` on ``machine`` with episodes drawn from ``profile``; equal arguments, equal
    forecast.

    Groups are drawn whole and with replacement, so members stay as alike as they were. Nothing is
    slower than what was measured, but for ``task.latency``, which is drawn afresh. At most
    ``(version + max_lag + 1)`` batches are in flight, queued or trained. A group is consumed in the
    order in which groups become ready; a member that is older than ``max_lag`` is stale, and its
    group with it when fewer than two (of one: one) others are left.
    """
    if schedule.batches <= schedule.warmup:
        raise ValueError(f"{schedule.batches} batches end before the warm-up ({schedule.warmup})")
    run = _Run(profile, machine, schedule, seed)
    env = run.env
    env.run(until=env.process(run.learner()))
    return run.forecast()


@dataclass(eq=False, slots=True)
class _Group:
    """Members that are in flight or done; ``versions`` are those of their first tokens."""

    left: int
    versions: list[int] = field(default_factory=list)


class _Cores:
    """Slots that are held a slice at a time; as many as anybody could want are not counted."""

    def __init__(self, env: simpy.Environment, count: int, wanted: int, slice_: float) -> None:
        self._env, self._slice, self._count = env, slice_, count
        self._slots = simpy.Resource(env, count) if count < wanted else None

    def work(self, seconds: float, cores: int = 1) -> Process:
        """Work for ``seconds`` on ``cores`` cores at once."""
        if self._slots is None:
            yield self._env.timeout(seconds)
            return
        left = seconds
        while left > 0:
            part = left if left < 1.5 * self._slice else self._slice
            held = [self._slots.request() for _ in range(min(cores, self._count))]
            for one in held:
                yield one
            yield self._env.timeout(part)
            for one in held:
                self._slots.release(one)
            left -= part


class _Worker:
    """Decodes the turns of its live episodes together, one token each a step."""

    def __init__(self, env: simpy.Environment, cores: _Cores, profile: Profile, grain: int) -> None:
        self._env, self._cores, self._profile, self._grain = env, cores, profile, grain
        self._decoding: list[tuple[int, int, simpy.Event]] = []
        self._arrived: deque[tuple[int, simpy.Event]] = deque()
        self._steps = self._arrivals = 0
        self._idle: simpy.Event | None = None
        self.busy = 0.0
        env.process(self._run())

    def decode(self, tokens: int) -> simpy.Event:
        """Happens when ``tokens`` more are sampled."""
        done = self._env.event()
        self._arrived.append((tokens, done))
        if self._idle is not None and not self._idle.triggered:
            self._idle.succeed()
        return done

    def _run(self) -> Process:
        while True:
            if not self._decoding and not self._arrived:
                self._idle = self._env.event()
                yield self._idle
            while self._arrived:
                tokens, done = self._arrived.popleft()
                self._arrivals += 1
                heapq.heappush(self._decoding, (self._steps + tokens, self._arrivals, done))
            steps = min(self._decoding[0][0] - self._steps, self._grain)
            seconds = steps * self._profile.step(len(self._decoding))
            yield from self._cores.work(seconds)
            self.busy += seconds
            self._steps += steps
            while self._decoding and self._decoding[0][0] <= self._steps:
                heapq.heappop(self._decoding)[2].succeed()


class _Ticks:
    """Opens when every live episode waits here (``rollout.gate.TickGate``)."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env, self._busy, self._open = env, 0, env.event()

    def enter(self) -> None:
        self._busy += 1

    def leave(self) -> None:
        self._busy -= 1
        if self._busy == 0:
            opened, self._open = self._open, self._env.event()
            opened.succeed()

    def wait(self) -> Process:
        opened = self._open
        self.leave()
        yield opened
        self.enter()


class _Run:
    """The state of one simulated run."""

    def __init__(self, profile: Profile, machine: Machine, schedule: Schedule, seed: int) -> None:
        self.env = env = simpy.Environment()
        self._profile, self._machine, self._schedule = profile, machine, schedule
        self._rng = np.random.default_rng(seed)
        turns = [turn.tokens for path in profile.paths for turn in path.turns]
        grain = max(1, round(float(np.mean(turns)) / _SLICES)) if turns else 1
        wanted = machine.workers + profile.learner_cores
        slice_ = max(grain * profile.step(1), profile.learner_seconds / 400)
        self._cores = _Cores(env, machine.cores, wanted, slice_)
        self._workers = [_Worker(env, self._cores, profile, grain) for _ in range(machine.workers)]
        self._ticks = _Ticks(env) if schedule.ticks else None
        self._ready: simpy.Store = simpy.Store(env)
        self._waiting: deque[tuple[_Group, Path]] = deque()
        self._live = [0] * machine.workers
        self._loads = [(0, index) for index in range(machine.workers)]
        """A heap; an entry counts while it says what ``_live`` says."""
        self._version = self._planned = self._stale = self._trained = 0
        self._learned = 0.0
        self._lags: Counter[int] = Counter()
        self._marks: list[tuple[float, int, float, float]] = []
        self._mark()
        self._dispatch()

    # -- rollout -----------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Plan groups as far ahead as the lag limit allows, and start what finds a row."""
        plan = self._schedule
        bound = (self._version + plan.max_lag + 1) * plan.groups * plan.group_size
        while self._planned - self._stale + plan.group_size <= bound:
            group = _Group(plan.group_size)
            self._planned += plan.group_size
            self._waiting.extend((group, path) for path in self._draw())
        self._start()

    def _draw(self) -> list[Path]:
        measured = self._profile.groups
        group = measured[self._rng.integers(len(measured))]
        size = self._schedule.group_size
        if len(group) == size:
            return list(group)
        return [group[i] for i in self._rng.integers(len(group), size=size)]

    def _start(self) -> None:
        """The least loaded worker takes the next episode."""
        while self._waiting:
            while self._loads[0][0] != self._live[self._loads[0][1]]:
                heapq.heappop(self._loads)
            if self._loads[0][0] >= self._machine.rows:
                return
            _, index = heapq.heappop(self._loads)
            self._load(index, 1)
            group, path = self._waiting.popleft()
            if self._ticks is not None:
                self._ticks.enter()
            self.env.process(self._episode(group, path, index))

    def _load(self, index: int, change: int) -> None:
        self._live[index] += change
        heapq.heappush(self._loads, (self._live[index], index))

    def _episode(self, group: _Group, path: Path, index: int) -> Process:
        version: int | None = None
        if path.reset > 0:
            yield self.env.timeout(self._seconds(path.reset, path.drawn))
        for turn in path.turns:
            if self._ticks is not None:
                yield from self._ticks.wait()
            if version is None:
                version = self._version
            yield self._workers[index].decode(turn.tokens)
            if turn.wait > 0:
                yield self.env.timeout(self._seconds(turn.wait, turn.drawn))
        group.versions.append(self._version if version is None else version)
        group.left -= 1
        if group.left == 0:
            self._ready.put(group)
        self._load(index, -1)
        self._start()
        if self._ticks is not None:
            self._ticks.leave()

    def _seconds(self, measured: float, drawn: float) -> float:
        """Seconds of a call: those of the environment, and a new draw of the declared latency."""
        latency = self._profile.latency
        if latency is None or drawn == 0.0:
            return measured
        u = (int(self._rng.integers(1 << 53)) + 0.5) * 2.0**-53
        # A timer may fire a little early, so the rest of a bare wait can be a hair below zero.
        return max(0.0, measured - drawn) + latency.quantile(u)

    # -- learner -----------------------------------------------------------------------------

    def learner(self) -> Process:
        """Consume batch after batch."""
        profile, plan = self._profile, self._schedule
        while self._version < plan.batches:
            taken = 0
            while taken < plan.groups:
                group = yield self._ready.get()
                taken += self._consume(group)
            yield from self._cores.work(profile.learner_seconds, profile.learner_cores)
            self._learned += profile.learner_seconds
            self._version += 1
            self._mark()
            if self._version == plan.warmup:
                self._lags.clear()
            self._dispatch()

    def _consume(self, group: _Group) -> int:
        """1 if the group is trained on, 0 if it is dropped; stale members return their places."""
        lags = [self._version - version for version in group.versions]
        fresh = [lag for lag in lags if lag <= self._schedule.max_lag]
        used = fresh if len(fresh) >= min(2, len(lags)) else []
        self._lags.update(used)
        self._trained += len(used)
        self._stale += len(lags) - len(used)
        if len(used) < len(lags):
            self._dispatch()
        return 1 if used else 0

    # -- books -------------------------------------------------------------------------------

    def _mark(self) -> None:
        busy = sum(worker.busy for worker in self._workers)
        self._marks.append((self.env.now, self._trained, self._learned, busy))

    def forecast(self) -> Forecast:
        """What the run came to."""
        first, last = self._marks[self._schedule.warmup], self._marks[-1]
        seconds, trained, learned, busy = (b - a for a, b in zip(first, last, strict=True))
        batches = len(self._marks) - 1 - self._schedule.warmup
        return Forecast(
            batch_seconds=seconds / batches,
            accepted_per_second=trained / seconds,
            learner_use=learned / seconds,
            rollout_use=busy / seconds / len(self._workers),
            lags=dict(sorted(self._lags.items())),
            planned=self._planned,
            trained=self._trained,
            stale=self._stale,
            pending=self._planned - self._trained - self._stale,
        )
