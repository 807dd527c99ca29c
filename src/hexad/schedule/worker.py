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
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from hexad.contract.faults import UserError
from hexad.recipe.axes import Recipe
from hexad.schedule import messages
from hexad.schedule.frame import Frame, FrameError
from hexad.schedule.messages import Failed, Loaded, Play, Publish, Ready, Stop
from hexad.schedule.pulse import BEAT_SECONDS, Gauges, Pulse
from hexad.schedule.sitting import Order, Stage
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


class Worker:
    """Plays at most ``system.engine_rows`` plans at once, the rest in order of arrival.

    Orders are taken one after the other: a plan that came after a publish begins when the weights
    are loaded. ``held`` gets what must be released.
    """

    def __init__(
        self, recipe: Recipe, send: Send, wal: Path, gauges: Gauges, held: ExitStack
    ) -> None:
        # One unless the recipe says more: every worker would take all processors otherwise.
        torch.set_num_threads(recipe.system.threads or 1)
        self._rows, self._send, self._gauges = recipe.system.engine_rows, send, gauges
        self._stage = Stage(recipe, wal, held)
        self._waiting: deque[Order] = deque()
        self._live = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] | None = None

    def ready(self, seconds: float) -> Frame:
        """The worker's first word: what it is made of."""
        parts = self._stage.world.provenance(()).parts()
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
        self._stage.know({message.version: message.lineage})
        await self._stage.engines.publish(unpack(body), message.version)
        self._send(Loaded(version=message.version).frame())

    def _admit(self) -> None:
        while self._waiting and self._live < self._rows:
            self._live += 1
            self._start(self._play(self._waiting.popleft()))

    async def _play(self, order: Order) -> None:
        self._send(await self._stage.sit(order, self._left))

    def _left(self) -> None:
        """A plan was played: its place is free."""
        self._live -= 1
        self._admit()

    async def _tick(self) -> None:
        """Keep the gauges that the pulse reads."""
        while True:
            self._gauges.answered = time.monotonic()
            self._gauges.live, self._gauges.waiting = self._live, len(self._waiting)
            self._gauges.version = self._stage.engines.newest.version
            self._gauges.engine = asdict(self._stage.engines.stats)
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
        self._waiting.clear()  # or each place that becomes free would be given to the next
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._stage.engines.close(), STOP_SECONDS)
