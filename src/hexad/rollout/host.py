"""Where environments live: threads with an event loop each, and the boundary around user code."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar

from hexad.contract.faults import ContractViolation, EnvironmentFault, Fault, UserError

T = TypeVar("T")
Work: TypeAlias = Coroutine[Any, Any, T]
_OURS = (Fault, UserError, ContractViolation)
_JOIN_SECONDS = 1.0


class Host:
    """A daemon thread with an event loop that runs the environments of some episodes.

    An environment that blocks (``time.sleep``, an endless loop) blocks this thread, never the
    engine's loop. ``suspect`` is set when a call ran out of time; such a host gets no new
    environments. All calls must come from one event loop.
    """

    def __init__(self, name: str) -> None:
        self.suspect = False
        self._loop = asyncio.new_event_loop()
        self._calls = Mailbox(self._loop)
        self._answers: Mailbox | None = None
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    async def call(self, what: str, seconds: float, work: Callable[[], Work[T]]) -> T:
        """Run ``work()`` here. Raises ``EnvironmentFault`` if it raises or outlasts ``seconds``.

        ``what`` names the call in messages, e.g. ``step``. Cancelling the caller cancels the work.
        """
        loop = asyncio.get_running_loop()
        answers = self._answers = self._answers or Mailbox(loop)
        answer: asyncio.Future[T] = loop.create_future()
        task: asyncio.Task[T] | None = None

        def begin() -> None:
            nonlocal task
            if not answer.done():
                task = self._loop.create_task(_contained(what, work))
                task.add_done_callback(lambda done: answers.put(partial(_settle, answer, done)))

        def stop() -> None:
            if task is not None:
                task.cancel()

        def expire() -> None:
            self.suspect = True
            if not answer.done():
                answer.set_exception(EnvironmentFault(f"{what} took longer than {seconds:g} s"))

        timer = loop.call_later(seconds, expire)
        self._calls.put(begin)
        try:
            return await answer
        except BaseException:
            self._calls.put(stop)
            raise
        finally:
            timer.cancel()

    def leave(self, what: str, work: Callable[[], Work[None]]) -> None:
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


class Mailbox:
    """Runs functions in an event loop for another thread, waking the loop once for many."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._letters: deque[Callable[[], None]] = deque()
        self._woken = False

    def put(self, letter: Callable[[], None]) -> None:
        """Let the loop run ``letter`` soon, in order. A closed loop runs nothing any more."""
        self._letters.append(letter)
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        # Cleared first, so that a letter which this pass might miss wakes the loop again.
        self._woken = False
        while self._letters:
            self._letters.popleft()()


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

    @property
    def worn(self) -> bool:
        """Whether a thread has hung: it may hang still, and nobody gives it work any more."""
        return bool(self._retired) or any(host and host.suspect for host in self._hosts)

    def stop(self) -> None:
        """End every thread."""
        for host in [*self._retired, *self._hosts]:
            if host is not None:
                host.stop()


def _settle(answer: asyncio.Future[T], done: asyncio.Task[T]) -> None:
    """Hand the outcome of ``done`` to whoever waits for ``answer``."""
    if done.cancelled():
        return
    error = done.exception()
    if answer.done():
        return
    if error is None:
        answer.set_result(done.result())
    else:
        answer.set_exception(error)


def read(what: str, look: Callable[[], T]) -> T:
    """``look()``, a short look at user code. Raises ``EnvironmentFault`` if it raises."""
    try:
        return look()
    except _OURS:
        raise
    except Exception as error:  # the boundary to user code: whatever it raises is its own
        raise EnvironmentFault(_describe(what, error)) from error


async def _contained(what: str, work: Callable[[], Work[T]]) -> T:
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
