"""The worker inside a Ray actor: bytes in, bytes out."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from hexad.recipe.axes import Recipe
from hexad.schedule import frame as frames
from hexad.schedule import messages
from hexad.schedule.frame import Frame, FrameError
from hexad.schedule.messages import Start

END = b""
"""The last thing that an actor gives."""


class Actor:
    """Ray calls the two methods, from threads of its own; the worker runs in another one.

    It has no coroutine: Ray would run all methods of such a class in one event loop.
    """

    def __init__(self) -> None:
        self._out: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._in: asyncio.Queue[bytes] = asyncio.Queue()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, name="worker", daemon=True).start()

    def put(self, data: bytes) -> None:
        """Take a frame. The first one is ``start``."""
        self._loop.call_soon_threadsafe(self._in.put_nowait, data)

    def take(self) -> list[bytes]:
        """The frames that the worker has sent since the last call; waits for one."""
        found = [self._out.get()]
        while not self._out.empty():
            found.append(self._out.get())
        return found

    def _run(self) -> None:
        self._loop.run_until_complete(_work(self._in, self._send))
        self._out.put(END)

    def _send(self, frame: Frame) -> None:
        self._out.put(frames.encode(frame))


async def _work(arriving: asyncio.Queue[bytes], send: Callable[[Frame], None]) -> None:
    """Serve until told to stop; every error is told."""
    from hexad.schedule.worker import failure, serve

    async def receive() -> Frame:
        return frames.decode(await arriving.get())

    try:
        first = await receive()
        start = messages.read(first)
        if not isinstance(start, Start):
            raise FrameError(f"a worker begins with {start.kind!r}")
        sys.path.extend(path for path in start.paths if path not in sys.path)
        recipe = Recipe.model_validate_json(first.body, strict=True)
        await serve(recipe, receive, send, Path(start.wal))
    except Exception as error:  # noqa: BLE001 - nobody else would see it
        send(failure(error))
