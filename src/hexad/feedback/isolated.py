"""A verifier of the user's in processes of its own, with a time limit that stops the work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from hexad.contract.episode import Episode
from hexad.contract.faults import ToolFault, UserError, VerifierFault
from hexad.contract.messages import Message
from hexad.contract.task import Task
from hexad.contract.verdict import Verdict
from hexad.environments.pool import WorkerPool
from hexad.environments.process import WorkerDied, WorkerFailed, WorkerProcess, WorkerTimeout
from hexad.environments.registry import Origin
from hexad.feedback.cards import Card, card_of
from hexad.feedback.protocol import Verifier
from hexad.feedback.wire import over_limit, pack_origin, pack_request, unpack_verdict

TIMEOUT = 60.0
"""Seconds that one judgement may take where the verifier declares no ``timeout``."""
WORKER = "hexad.feedback.worker"
"""The module that serves a verifier."""


class IsolatedVerifier:
    """Lets worker processes judge by the verifier ``name``; ``made`` is the same one, made here.

    Thread-safe. At most ``origin.workers`` judgements run at once; one that takes longer than the
    limit is killed, and the verdict is ``timeout``. ``close`` ends the processes.
    """

    def __init__(
        self, name: str, made: Verifier, origin: Origin, options: Mapping[str, Any] | None = None
    ) -> None:
        self._name, self._target = name, pack_origin(origin, name, options or {})
        self._digest, self._card = made.digest, card_of(made)
        self._limit = _limit(name, made)
        self._pool = WorkerPool(WORKER, tuple(getattr(made, "variables", ())))
        self._slots = threading.BoundedSemaphore(origin.workers)

    @property
    def digest(self) -> str:
        """The verifier's own digest."""
        return self._digest

    @property
    def card(self) -> Card | None:
        """What the verifier says of itself."""
        return self._card

    @property
    def live_workers(self) -> int:
        """Number of processes that run now."""
        return self._pool.live

    def verify(self, task: Task, episode: Episode, transcript: tuple[Message, ...]) -> Verdict:
        """The verdict; beyond the limit it is ``timeout``.

        Raises ``VerifierFault`` for a failure, a crash or junk.
        """
        request, seconds = pack_request(task, episode, transcript), self._seconds(task)
        with self._slots:
            worker = self._acquire()
            try:
                return unpack_verdict(worker.call(request, seconds))
            except WorkerTimeout:
                return over_limit("seconds", seconds)
            except WorkerDied as error:
                raise VerifierFault(f"the process of {self._name} crashed: {error}") from None
            except WorkerFailed as error:
                raise VerifierFault(str(error)) from None
            finally:
                self._pool.release(worker, reuse=True)

    def close(self) -> None:
        """Kill every process; a judgement that still runs is a fault."""
        self._pool.close()

    def _seconds(self, task: Task) -> float:
        """The limit of a judgement of ``task``; starting a process is no part of it."""
        declared = self._limit(task)
        if not _legal(declared):
            raise VerifierFault(f"the time limit of {self._name} is {declared!r} for this task")
        return float(declared)

    def _acquire(self) -> WorkerProcess:
        try:
            return self._pool.acquire(self._target)
        except ToolFault:
            raise VerifierFault(f"{self._name} is closed") from None


def _limit(name: str, made: Verifier) -> Callable[[Task], Any]:
    """What ``made`` declares as ``timeout``, as a function of the task."""
    declared = getattr(made, "timeout", TIMEOUT)
    if callable(declared):
        return declared  # type: ignore[no-any-return]
    if not _legal(declared):
        raise UserError(
            f"the time limit of {name} is {declared!r}",
            where="feedback.verifier",
            fix="let timeout be a positive number of seconds, or a function from the task to one",
        )
    return lambda task: declared


def _legal(seconds: object) -> bool:
    return (
        isinstance(seconds, int | float)
        and not isinstance(seconds, bool)
        and 0.0 < seconds < float("inf")
    )
