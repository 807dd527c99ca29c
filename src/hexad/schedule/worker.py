"""A rollout worker without a transport: frames in, frames out.

It has its own policy, engine, environments and verifier, plays on its own and learns nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from hexad.contract.arrow import to_ipc
from hexad.contract.faults import UserError
from hexad.contract.task import Task
from hexad.policy.local import LocalEngine
from hexad.recipe.axes import Recipe
from hexad.rollout.agent import assess, play
from hexad.rollout.attempt import Seat
from hexad.rollout.build import Lineage, policy_of, world_of
from hexad.schedule import messages
from hexad.schedule.berths import Berths
from hexad.schedule.cursor import train_tasks
from hexad.schedule.frame import Frame, FrameError
from hexad.schedule.messages import Failed, Finished, Loaded, Play, Publish, Ready, Stop
from hexad.schedule.pulse import BEAT_SECONDS, Gauges, Pulse
from hexad.schedule.weights import unpack

Receive = Callable[[], Awaitable[Frame | None]]
"""The next frame, or ``None`` when no more can come."""
Send = Callable[[Frame], None]
"""Takes a frame to the source; from any thread, and never waits."""

STOP_SECONDS = 2.0
"""How long episodes may take to be cancelled when the worker stops."""


async def serve(recipe: Recipe, receive: Receive, send: Send, wal: Path) -> None:
    """Work until ``stop``, the end of the frames, or an error, which is sent as ``failed``.

    ``wal`` is the folder of the episodes' logs. A ``UserError`` and a bug both end the worker; what
    it had not answered is the source's to count.
    """
    gauges = Gauges()
    pulse = Pulse(send, gauges)
    pulse.start()
    began = time.monotonic()
    try:
        with ExitStack() as held:
            worker = Worker(recipe, send, wal, gauges, held)
            send(worker.ready(time.monotonic() - began))
            await worker.run(receive)
    except Exception as error:  # noqa: BLE001 - the process ends, the source is told why
        send(failure(error))
    finally:
        pulse.stop()


def failure(error: Exception) -> Frame:
    """The frame that tells the source of ``error``."""
    if isinstance(error, UserError):
        told = Failed(error="user", message=error.what, where=error.where, fix=error.fix)
    else:
        told = Failed(error="bug", message="".join(traceback.format_exception(error)))
    return told.frame()


@dataclass(frozen=True, slots=True)
class Order:
    """A plan to play and, where the episode goes on, the bytes of its log."""

    play: Play
    log: bytes


class Worker:
    """Plays at most ``system.engine_rows`` plans at once, the rest in order of arrival.

    Orders are taken one after the other: a plan that came after a publish begins when the weights
    are loaded. ``held`` gets what must be released.
    """

    def __init__(
        self, recipe: Recipe, send: Send, wal: Path, gauges: Gauges, held: ExitStack
    ) -> None:
        if recipe.system.threads is not None:
            torch.set_num_threads(recipe.system.threads)
        self._rows, self._send, self._gauges = recipe.system.engine_rows, send, gauges
        self._lineage = Lineage()
        policy = policy_of(recipe)
        self._engine = LocalEngine(policy, rows=self._rows, bind=False)
        self._world = world_of(recipe, policy, self._engine, self._lineage.of, held)
        self._berths = Berths()
        held.callback(self._berths.close)
        self._waiting: deque[Order] = deque()
        self._live = self._begun = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] | None = None

    def ready(self, seconds: float) -> Frame:
        """The worker's first word: what it is made of."""
        parts = self._world.provenance(()).parts()
        return Ready(digests=parts, seconds=seconds, pid=os.getpid()).frame()

    async def run(self, receive: Receive) -> None:
        """Take orders until the source wants no more. Raises the first error of any episode."""
        self._failed = asyncio.get_running_loop().create_future()
        orders: asyncio.Queue[Frame] = asyncio.Queue()
        listening = self._start(self._listen(receive, orders))
        self._start(self._obey(orders))
        self._start(self._tick())
        try:
            await asyncio.wait({listening, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
        finally:
            await self._end()

    async def _listen(self, receive: Receive, orders: asyncio.Queue[Frame]) -> None:
        """Take frames in as they come, so that a stop is heard at once; ends with it."""
        while (frame := await receive()) is not None:
            if isinstance(messages.read(frame), Stop):
                return
            orders.put_nowait(frame)

    async def _obey(self, orders: asyncio.Queue[Frame]) -> None:
        while True:
            frame = await orders.get()
            message = messages.read(frame)
            if isinstance(message, Publish):
                await self._publish(message, frame.body)
            elif isinstance(message, Play):
                self._waiting.append(Order(message, frame.body))
                self._admit()
            else:
                raise FrameError(f"a worker was told {message.kind!r}")

    async def _publish(self, message: Publish, body: bytes) -> None:
        self._lineage.digests[message.version] = message.lineage
        await self._engine.publish(unpack(body), message.version)
        self._send(Loaded(version=message.version).frame())

    def _admit(self) -> None:
        while self._waiting and self._live < self._rows:
            self._live += 1
            self._start(self._play(self._waiting.popleft()))

    async def _play(self, order: Order) -> None:
        """Play and judge one plan; its place is free when it was played."""
        plan = order.play.plan(self._task(order.play))
        self._begun += 1
        try:
            with self._berths.berth() as hosts:
                seat = Seat(self._engine.sample, hosts, self._begun)
                outcome = await play(plan, self._world, seat)
        finally:
            self._live -= 1
        self._admit()
        episode = await assess(plan, self._world, outcome)
        done = Finished(episode_id=plan.episode_id, lost=order.play.lost)
        self._send(done.frame(bytes(to_ipc([episode]))))

    def _task(self, asked: Play) -> Task:
        """The task that is meant. Raises ``UserError`` where this process has another one."""
        (task,) = train_tasks(self._world.family, None, asked.index, 1)
        if task.task_id != asked.task_id:
            raise UserError(
                f"task number {asked.index} is {task.task_id} in a worker and {asked.task_id} in "
                "the trainer",
                where=f"{type(self._world.family).__name__}.tasks",
                fix="let tasks depend on the recipe's options and the arguments alone, and let "
                "every worker see the same code and data",
            )
        return task

    async def _tick(self) -> None:
        """Keep the gauges that the pulse reads."""
        while True:
            self._gauges.answered = time.monotonic()
            self._gauges.live, self._gauges.waiting = self._live, len(self._waiting)
            self._gauges.version = self._engine.version
            self._gauges.engine = asdict(self._engine.stats)
            await asyncio.sleep(BEAT_SECONDS / 4)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _end(self) -> None:
        """Cancel everything; what does not end within ``STOP_SECONDS`` is left to the exit."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._engine.close(), STOP_SECONDS)
