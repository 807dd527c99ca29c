"""Where environments live: threads with an event loop each, and the boundary around user code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hexad.contract.faults import ContractViolation, EnvironmentFault, Fault, UserError

T = TypeVar("T")
_OURS = (Fault, UserError, ContractViolation)
_JOIN_SECONDS = 1.0


class Host:
    """A daemon thread with an event loop that runs the environments of some episodes.

    An environment that blocks (``time.sleep``, an endless loop) blocks this thread, never the
    engine's loop. ``suspect`` is set when a call ran out of time; such a host gets no new
    environments.
    """

    def __init__(self, name: str) -> None:
        self.suspect = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    async def call(
        self, what: str, seconds: float, work: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """Run ``work()`` here. Raises ``EnvironmentFault`` if it raises or outlasts ``seconds``.

        ``what`` names the call in messages, e.g. ``step``. Cancelling the caller cancels the work.
        """
        future = asyncio.run_coroutine_threadsafe(_contained(what, work), self._loop)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
        except TimeoutError as error:
            self.suspect = True
            raise EnvironmentFault(f"{what} took longer than {seconds:g} s") from error

    def leave(self, what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start ``work()`` without waiting for it: nobody knows whether this thread still runs."""
        asyncio.run_coroutine_threadsafe(_contained(what, work), self._loop)

    def stop(self) -> None:
        """End the thread. A blocked one is left behind; it cannot keep the process alive."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        if not self.suspect:
            self._thread.join(_JOIN_SECONDS)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()


class Hosts:
    """A fixed number of hosts; episodes are spread over them by index."""

    def __init__(self, count: int = 4) -> None:
        self._hosts: list[Host | None] = [None] * count
        self._retired: list[Host] = []

    def take(self, index: int) -> Host:
        """The host for a new environment of episode ``index``, replaced if it is suspect."""
        slot = index % len(self._hosts)
        host = self._hosts[slot]
        if host is not None and host.suspect:
            self._retired.append(host)
            host = None
        if host is None:
            host = self._hosts[slot] = Host(f"environments-{slot}")
        return host

    def stop(self) -> None:
        """End every thread."""
        for host in [*self._retired, *self._hosts]:
            if host is not None:
                host.stop()


def read(what: str, look: Callable[[], T]) -> T:
    """``look()``, a short look at user code. Raises ``EnvironmentFault`` if it raises."""
    try:
        return look()
    except _OURS:
        raise
    except Exception as error:  # the boundary to user code: whatever it raises is its own
        raise EnvironmentFault(_describe(what, error)) from error


async def _contained(what: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    try:
        return await work()
    except _OURS:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise EnvironmentFault(f"{what} cancelled itself") from error
    except (Exception, SystemExit) as error:  # the boundary to user code, as above
        raise EnvironmentFault(_describe(what, error)) from error


def _describe(what: str, error: BaseException) -> str:
    return f"{what} raised {type(error).__name__}: {error}"
