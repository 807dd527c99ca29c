"""The process of one worker: ``python -m hexad.schedule.worker_process``, frames over pipes.

It ends with its input, also in the middle of anything, so it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import BinaryIO

from hexad.recipe.axes import Recipe
from hexad.schedule import frame as frames
from hexad.schedule import messages
from hexad.schedule.frame import Frame, FrameError
from hexad.schedule.messages import Start

_FLUSH_SECONDS = 2.0
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until told to stop. The first frame is ``start``."""
    _die_with_parent()
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What user code reads and prints must not touch the frames.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    first = frames.read(source)
    if first is None:
        return
    start = messages.read(first)
    if not isinstance(start, Start):
        raise FrameError(f"a worker begins with {start.kind!r}")
    recipe = Recipe.model_validate_json(first.body, strict=True)
    asyncio.run(_work(recipe, Path(start.wal), source, Outbox(sink)))


class Outbox:
    """Frames on their way out, written by a thread, so that nobody else waits for the pipe."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def put(self, frame: Frame) -> None:
        """Send ``frame`` after those that wait."""
        self._frames.put(frame)

    def close(self) -> None:
        """Wait a moment until all is sent."""
        self._frames.put(None)
        self._thread.join(_FLUSH_SECONDS)

    def _run(self) -> None:
        try:
            while (frame := self._frames.get()) is not None:
                frames.write(self._sink, frame)
        except OSError:
            os._exit(1)  # nobody reads any more


async def _work(recipe: Recipe, wal: Path, source: BinaryIO, outbox: Outbox) -> None:
    from hexad.schedule.worker import serve

    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[Frame | FrameError] = asyncio.Queue()

    def listen() -> None:
        try:
            while (frame := frames.read(source)) is not None:
                loop.call_soon_threadsafe(arrived.put_nowait, frame)
        except FrameError as error:
            loop.call_soon_threadsafe(arrived.put_nowait, error)
            return
        os._exit(1)

    async def receive() -> Frame:
        found = await arrived.get()
        if isinstance(found, FrameError):
            raise found
        return found

    threading.Thread(target=listen, name="inbox", daemon=True).start()
    await serve(recipe, receive, outbox.put, wal)
    outbox.close()
    sys.stderr.flush()
    # At once: a tool or a verifier that hangs would hold its thread, and that the exit.
    os._exit(0)


def _die_with_parent() -> None:
    """Ask Linux for SIGKILL when the thread that started this process ends.

    Elsewhere, and where the parent ended before this, the end of the input says it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main()
