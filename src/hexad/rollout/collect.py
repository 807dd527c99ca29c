"""Many episodes at once, repeatable bit for bit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from hexad.contract import crash
from hexad.contract.episode import Episode
from hexad.contract.faults import UserError
from hexad.rollout.agent import assess, play
from hexad.rollout.attempt import Seat
from hexad.rollout.gate import TickGate
from hexad.rollout.host import Hosts
from hexad.rollout.log import EpisodeLog
from hexad.rollout.plan import EpisodePlan
from hexad.rollout.resume import NotResumable
from hexad.rollout.world import World

Done = Callable[[Episode], None]
"""Told of every finished episode."""


def forget(episode: Episode) -> None:
    """A ``Done`` that does nothing."""


def collect(
    plans: Sequence[EpisodePlan],
    world: World,
    *,
    rows: int = 256,
    done: Done = forget,
    logs: Sequence[EpisodeLog] | None = None,
) -> list[Episode]:
    """Play and judge ``plans``; the episodes come in the order of the plans.

    At most ``rows`` episodes are live at once; they are admitted by index, at ticks. ``done`` is
    called in the order of the plans, as early as that order allows. Environment failures become
    faulted episodes; a bug of ours stops everything and is raised. Ctrl-C cancels all episodes,
    aborts their requests, closes their environments and raises ``KeyboardInterrupt``; a second one
    does not wait for that. With ``logs``, one a plan, an episode goes on from what its log holds;
    raises ``UserError`` where it cannot.
    """
    finished = InOrder(len(plans), done)
    run_async(_collect(plans, world, rows, finished, logs))
    return finished.all()


def run_async(main: Coroutine[Any, Any, None]) -> None:
    """``asyncio.run``, with the first error of a task group raised as itself.

    ``main`` returns nothing: Python 3.11 formats what it returns, and episodes are long.
    """
    try:
        asyncio.run(main)
    except BaseExceptionGroup as group:
        raise first_error(group) from None


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first plain exception in ``group``."""
    first = group.exceptions[0]
    return first_error(first) if isinstance(first, BaseExceptionGroup) else first


class InOrder:
    """Keeps finished episodes by index and reports them in order."""

    def __init__(self, count: int, done: Done) -> None:
        self._found: list[Episode | None] = [None] * count
        self._done, self._reported = done, 0

    def put(self, index: int, episode: Episode) -> None:
        """Take the episode of plan ``index``; report every one whose turn has come."""
        crash.point("rollout:episode")
        self._found[index] = episode
        while self._reported < len(self._found):
            waiting = self._found[self._reported]
            if waiting is None:
                return
            self._done(waiting)
            self._reported += 1

    def all(self) -> list[Episode]:
        """Every episode; none may be missing."""
        return [episode for episode in self._found if episode is not None]


async def _play(plan: EpisodePlan, world: World, seat: Seat, log: EpisodeLog | None) -> Episode:
    if log is None:
        return await play(plan, world, seat)
    try:
        played = await play(plan, world, seat, log)
    except NotResumable as error:
        raise UserError(
            f"episode {plan.episode_id} cannot go on from a snapshot: {error.reason}",
            where=plan.environment,
            fix="let fork(snapshot) give an environment in the very state of the snapshot",
        ) from error
    assert isinstance(played, Episode)  # this seat never pauses
    return played


async def _collect(
    plans: Sequence[EpisodePlan],
    world: World,
    rows: int,
    finished: InOrder,
    logs: Sequence[EpisodeLog] | None,
) -> None:
    gate, hosts = TickGate(world.engine), Hosts()

    async def run(index: int) -> None:
        plan = plans[index]
        try:
            seat = Seat(partial(gate.sample, index), hosts, index)
            episode = await _play(plan, world, seat, logs[index] if logs else None)
        finally:
            live.discard(index)
            gate.leave()
        finished.put(index, await assess(plan, world, episode))

    live: set[int] = set()
    admitted = 0
    try:
        async with asyncio.TaskGroup() as group:
            while admitted < len(plans) or live:
                while admitted < len(plans) and len(live) < rows:
                    live.add(admitted)
                    gate.enter()
                    group.create_task(run(admitted))
                    admitted += 1
                await gate.quiet()
                if admitted == len(plans) or len(live) == rows:
                    gate.open()
    except BaseException:
        with suppress(asyncio.CancelledError):
            await world.engine.abort()
        raise
    finally:
        hosts.stop()
