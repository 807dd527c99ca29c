"""Workers as Ray actors: on this machine, or on a cluster that ``RAY_ADDRESS`` names.

Only bytes cross in calls. An actor belongs to the run: it ends with the program that started it.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from hexad.contract.faults import ContractViolation, UserError
from hexad.recipe.axes import Recipe
from hexad.schedule import frame as frames
from hexad.schedule import messages
from hexad.schedule.backend import Delivery, Inbox
from hexad.schedule.frame import Frame, FrameError
from hexad.schedule.messages import Ready, Start, Stop
from hexad.schedule.ray_actor import END, Actor

_ASKED, _KILLED = 0.5, 0.7
"""Shares of the time to close after which actors are killed, and the cluster is left."""
_SHARED = 2**20
"""Bytes from which on a frame to several actors is put into Ray's store once."""


class Rays:
    """A :class:`hexad.schedule.backend.Backend` of Ray actors.

    It uses the cluster that this process is connected to, or that ``RAY_ADDRESS`` names, else it
    starts one here, which ends with :meth:`close`. The logs of episodes are written where the actor
    runs: ``run_dir`` must be a folder that all machines share for a killed actor's to be found.
    """

    def __init__(self, recipe: Recipe, run_dir: Path) -> None:
        self._ray, self._own = _connect(recipe)
        paths = tuple(path or os.getcwd() for path in sys.path)
        start = Start(wal=str((run_dir / "wal").absolute()), paths=paths)
        self._first = start.frame(recipe.model_dump_json().encode())
        self._options = _options(recipe)
        self._inbox = Inbox()
        self._workers: dict[int, _Worker] = {}
        self._shared: tuple[Frame, Any] | None = None

    def start(self, slot: int) -> None:
        """See :class:`hexad.schedule.backend.Backend`."""
        if self.alive(slot):
            raise ContractViolation(f"slot {slot} has a worker")
        actor = self._ray.remote(Actor).options(**self._options).remote()
        self._workers[slot] = _Worker(self._ray, actor, slot, self._inbox)
        self.send(slot, self._first)

    def send(self, slot: int, frame: Frame) -> None:
        """See :class:`hexad.schedule.backend.Backend`."""
        if slot in self._workers:
            self._workers[slot].send(self._data(frame))

    def receive(self, timeout: float) -> list[Delivery]:
        """See :class:`hexad.schedule.backend.Backend`."""
        return self._inbox.take(timeout)

    def silent(self, slot: int) -> float:
        """See :class:`hexad.schedule.backend.Backend`."""
        return self._inbox.silent(slot)

    def alive(self, slot: int) -> bool:
        """See :class:`hexad.schedule.backend.Backend`."""
        return slot in self._workers and not self._workers[slot].gone.is_set()

    def kill(self, slot: int) -> None:
        """See :class:`hexad.schedule.backend.Backend`."""
        if slot in self._workers:
            self._workers[slot].kill(local=self._own)

    def said(self, slot: int) -> str:
        """What Ray says of the actor's end; its output is in Ray's own logs."""
        return self._workers[slot].said if slot in self._workers else ""

    def close(self, seconds: float = 5.0) -> None:
        """See :class:`hexad.schedule.backend.Backend`."""
        self._inbox.close()
        began = time.monotonic()
        for worker in self._workers.values():
            worker.send(frames.encode(Stop().frame()))
        for worker in self._workers.values():
            worker.gone.wait(max(0.0, began + _ASKED * seconds - time.monotonic()))
            worker.kill(local=self._own)
        for worker in self._workers.values():
            worker.release(max(0.1, began + _KILLED * seconds - time.monotonic()))
        self._workers.clear()
        self._shared = None
        if self._own:
            self._ray.shutdown()

    def _data(self, frame: Frame) -> Any:
        """The bytes of ``frame``; weights for all actors are put into Ray's store once."""
        if len(frame.body) < _SHARED:
            return frames.encode(frame)
        if self._shared is None or self._shared[0] is not frame:
            self._shared = (frame, self._ray.put(frames.encode(frame)))
        return self._shared[1]


class _Worker:
    """One actor and two threads: to it, and from it."""

    def __init__(self, ray: Any, actor: Any, slot: int, inbox: Inbox) -> None:
        self.gone, self.said = threading.Event(), ""
        self._ray, self._actor, self._line = ray, actor, inbox.line(slot)
        self._pid = 0
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._read, name=f"from-{slot}", daemon=True),
            threading.Thread(target=self._write, name=f"to-{slot}", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def send(self, data: Any) -> None:
        """Hand ``data`` to the writing thread: bytes, or a reference to bytes."""
        self._outbox.put(data)

    def kill(self, *, local: bool) -> None:
        """End the actor and say so now, also where Ray cannot reach it any more.

        ``local``: the actor's process is one of this machine.
        """
        if self.gone.is_set():
            return
        self._kill()
        if local and self._pid:  # Ray asks the process itself, which a frozen one does not hear
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._end()

    def release(self, seconds: float) -> None:
        """Wait for the threads of an actor that is gone."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _read(self) -> None:
        try:
            while not self.gone.is_set():
                for data in self._ray.get(self._actor.take.remote()):
                    if data == END:
                        return
                    self._deliver(frames.decode(data))
        except FrameError as error:
            self.said = f"it sent what is no message: {error}"
        except self._ray.exceptions.RayError as error:
            self.said = str(error)
        finally:
            self._kill()
            self._end()

    def _deliver(self, frame: Frame) -> None:
        message = messages.read(frame)
        if isinstance(message, Ready):
            self._pid = message.pid
        self._line.put(frame)

    def _write(self) -> None:
        # One call after the other, so that frames arrive in order.
        try:
            while (data := self._outbox.get()) is not None:
                self._ray.get(self._actor.put.remote(data))
        except self._ray.exceptions.RayError:
            return  # the actor is gone; whoever reads from it says so

    def _kill(self) -> None:
        with suppress(self._ray.exceptions.RayError):  # the cluster itself is gone
            self._ray.kill(self._actor)

    def _end(self) -> None:
        self.gone.set()
        self._outbox.put(None)
        self._line.end()


def _connect(recipe: Recipe) -> tuple[Any, bool]:
    """The module ``ray``, connected; and whether the cluster was started here.

    Raises ``UserError`` without ray, and for a cluster that cannot be reached.
    """
    # Ray counts its users over the network unless it is told not to.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise UserError(
            f"ray cannot be imported: {error}",
            where="timing.workers.backend",
            fix="install it with pip install 'hexad[ray]', or set backend: process",
        ) from error
    if ray.is_initialized():
        return ray, False
    address = os.environ.get("RAY_ADDRESS")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            ray.init(num_cpus=_slots(recipe), include_dashboard=False, **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        place = f"the Ray cluster at {address}" if address else "a Ray cluster on this machine"
        raise UserError(
            f"{place} cannot be used: {error}",
            where="RAY_ADDRESS" if address else "timing.workers.backend",
            fix="check that it runs and has this version of ray, or set backend: process",
        ) from error
    return ray, not address


def _slots(recipe: Recipe) -> int:
    """Processors that a cluster of this machine claims to have: every actor must find its own."""
    count = recipe.timing.workers.count if recipe.timing.workers else 1
    return max(count * _threads(recipe), os.cpu_count() or 1)


def _options(recipe: Recipe) -> dict[str, Any]:
    """What an actor needs: processors for its threads, a GPU where the policy is on one."""
    options: dict[str, Any] = {"num_cpus": _threads(recipe), "max_concurrency": 4}
    if recipe.system.device.startswith("cuda"):
        options["num_gpus"] = 1
    return options


def _threads(recipe: Recipe) -> int:
    return recipe.system.threads or 1
