"""Worker processes, reused from call to call and replaced when one had to be killed."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from hexad.contract.faults import ToolFault
from hexad.environments.process import TOOL_WORKER, WorkerProcess


class WorkerPool:
    """Idle and busy workers by target. Thread-safe; the caller bounds how many are acquired.

    ``module`` is what the workers run, ``variables`` what they see (:class:`WorkerProcess`).
    """

    def __init__(self, module: str = TOOL_WORKER, variables: Iterable[str] = ()) -> None:
        self._module, self._variables = module, tuple(variables)
        self._idle: dict[str, list[WorkerProcess]] = {}
        self._busy: set[WorkerProcess] = set()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def acquire(self, target: str) -> WorkerProcess:
        """A worker for ``target``, an idle one where there is one."""
        with self._lock:
            if self._closed:
                raise ToolFault("the tools are closed")
            idle = self._idle.setdefault(target, [])
            worker = idle.pop() if idle else None
            if worker is not None and not worker.alive:
                worker.close()
                worker = None
            worker = worker or WorkerProcess(target, self._module, self._variables)
            self._busy.add(worker)
            return worker

    def release(self, worker: WorkerProcess, *, reuse: bool) -> None:
        """Take ``worker`` back; one that died or may not be reused is closed."""
        with self._lock:
            self._busy.discard(worker)
            keep = reuse and worker.alive and not self._closed
            if keep:
                self._idle.setdefault(worker.target, []).append(worker)
        if not keep:
            worker.close()

    @property
    def live(self) -> int:
        """Number of worker processes that run now."""
        with self._lock:
            return sum(worker.alive for worker in self._all())

    def close(self) -> None:
        """Kill every worker. Running calls see their worker die and release it."""
        with self._lock:
            self._closed = True
            for worker in self._all():
                worker.kill()
            idle = [worker for workers in self._idle.values() for worker in workers]
            self._idle.clear()
        for worker in idle:
            worker.close()

    def _all(self) -> list[WorkerProcess]:
        return [*self._busy, *(worker for idle in self._idle.values() for worker in idle)]
