"""Blocking work off the event loop: it holds up neither other calls nor the exit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def off_loop(work: Callable[[], T], name: str) -> T:
    """What ``work()`` returns or raises, run in a daemon thread ``name`` of its own.

    A caller that is cancelled before the thread begins cancels the work; later it is left behind.
    """
    future: Future[T] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - handed to the caller, whatever it is
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, daemon=True, name=name).start()
    return await asyncio.wrap_future(future)
