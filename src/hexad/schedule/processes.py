"""Workers as processes of this machine, over pipes: ``python -m hexad.schedule.processes``.

A worker dies with its parent: when its input ends, and on Linux also by signal.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

from hexad.contract.durable import disk_errors
from hexad.contract.faults import ContractViolation, UserError
from hexad.recipe.axes import Recipe
from hexad.schedule import frame as frames
from hexad.schedule import messages
from hexad.schedule.backend import Delivery, Inbox
from hexad.schedule.frame import Frame, FrameError
from hexad.schedule.messages import Start, Stop

_SHOWN = 4000
_DRAIN_SECONDS = 2.0
_ASKED, _TERMINATED = 0.6, 0.8
"""Shares of the time to close after which SIGTERM and SIGKILL follow."""


class Processes:
    """A :class:`hexad.schedule.backend.Backend` of spawned Python processes.

    A worker leads a session of its own, so Ctrl-C does not reach it and a kill also reaches what
    its tools started. It writes its errors to ``workers/SLOT.log`` in ``run_dir``.
    """

    def __init__(self, recipe: Recipe, run_dir: Path) -> None:
        self._logs, wal = run_dir / "workers", run_dir / "wal"
        for folder in (self._logs, wal):
            with disk_errors("make a folder for the workers", folder):
                folder.mkdir(parents=True, exist_ok=True)
        self._first = Start(wal=str(wal.absolute())).frame(recipe.model_dump_json().encode())
        self._inbox = Inbox()
        self._workers: dict[int, _Process] = {}

    def start(self, slot: int) -> None:
        """See :class:`hexad.schedule.backend.Backend`."""
        if self.alive(slot):
            raise ContractViolation(f"slot {slot} has a worker")
        log = self._logs / f"{slot}.log"
        with disk_errors("write what a worker says", log):
            self._workers[slot] = _Process(slot, log, self._inbox)
        self.send(slot, self._first)

    def send(self, slot: int, frame: Frame) -> None:
        """See :class:`hexad.schedule.backend.Backend`."""
        if slot in self._workers:
            self._workers[slot].send(frame)

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
            self._workers[slot].signal(signal.SIGKILL)

    def said(self, slot: int) -> str:
        """See :class:`hexad.schedule.backend.Backend`."""
        return self._workers[slot].said() if slot in self._workers else ""

    def pid(self, slot: int) -> int:
        """Process id of the slot's newest worker."""
        return self._workers[slot].pid

    def close(self, seconds: float = 5.0) -> None:
        """See :class:`hexad.schedule.backend.Backend`."""
        self._inbox.close()
        began = time.monotonic()
        for worker in self._workers.values():
            worker.send(Stop().frame())
        steps = ((_ASKED, signal.SIGTERM), (_TERMINATED, signal.SIGKILL), (1.0, None))
        for share, then in steps:
            for worker in self._workers.values():
                worker.gone.wait(max(0.0, began + share * seconds - time.monotonic()))
                if then is not None:
                    worker.signal(then)
        for worker in self._workers.values():
            worker.release()


class _Process:
    """One worker and three threads: to it, from it, and one that waits for its end."""

    def __init__(self, slot: int, log: Path, inbox: Inbox) -> None:
        self.gone = threading.Event()
        self._log, self._junk = log, ""
        self._reaped, self._lock = False, threading.Lock()
        self._outbox: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        with open(log, "ab") as errors:
            self._from = errors.tell()
            self._process = _spawn(errors, {**os.environ, "PYTHONPATH": paths})
        self._line = inbox.line(slot)
        self._reader = threading.Thread(target=self._read, name=f"from-{slot}", daemon=True)
        self._threads = [
            self._reader,
            threading.Thread(target=self._write, name=f"to-{slot}", daemon=True),
            threading.Thread(target=self._wait, name=f"end-of-{slot}", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def send(self, frame: Frame) -> None:
        """Hand ``frame`` to the writing thread."""
        self._outbox.put(frame)

    def signal(self, number: signal.Signals) -> None:
        """Send ``number`` to the worker's group, unless it is gone."""
        with self._lock:
            # The leader is not reaped before this point, so the group's id is still its own.
            if not self._reaped:
                os.killpg(self._process.pid, number)

    def said(self) -> str:
        """The end of the worker's error stream, and what was wrong with its frames."""
        try:
            with open(self._log, "rb") as file:
                file.seek(max(self._from, self._log.stat().st_size - _SHOWN))
                text = file.read(_SHOWN).decode(errors="replace")
        except OSError as error:
            text = f"({self._log} cannot be read: {error})\n"
        return text + self._junk

    def release(self) -> None:
        """Let the threads go. Only when the worker is gone or was killed."""
        for thread in self._threads:
            thread.join(1.0)

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while (frame := frames.read(self._process.stdout)) is not None:
                messages.read(frame)
                self._line.put(frame)
        except FrameError as error:
            if not self._dying():  # a kill tears what was on its way
                self._junk = f"it sent what is no message: {error}\n"
        self.signal(signal.SIGKILL)

    def _write(self) -> None:
        assert self._process.stdin is not None
        try:
            while (frame := self._outbox.get()) is not None:
                frames.write(self._process.stdin, frame)
        except OSError:
            return  # the worker is gone; whoever reads from it says so

    def _wait(self) -> None:
        """Wait for the worker's end, read what it had still said, then tell."""
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        self.signal(signal.SIGKILL)  # what its tools started
        with self._lock:
            self._process.wait()
            self._reaped = True
        # Something that left the worker's group may hold its pipe open; nobody waits for that.
        deadline = time.monotonic() + _DRAIN_SECONDS
        while self._reader.is_alive() and (self._line.waits or time.monotonic() < deadline):
            self._reader.join(0.05)
        self._outbox.put(None)
        self.gone.set()
        self._line.end()

    def _dying(self) -> bool:
        """Whether the worker has ended, or does within a moment."""
        deadline = time.monotonic() + 0.2
        while not self._reaped and time.monotonic() < deadline:
            time.sleep(0.01)
        return self._reaped


def _spawn(errors: IO[bytes], variables: dict[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "hexad.schedule.worker_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=variables,
            start_new_session=True,
        )
    except OSError as error:
        raise UserError(
            f"a worker process cannot be started: {error}",
            where="timing.workers",
            fix="lower timing.workers.count, or free memory and processes of this machine",
        ) from error
