"""A worker process with a time limit that stops the work, not only the waiting."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

STARTUP_SECONDS = 60.0
"""How long a worker may take to start; it is not part of a call's time limit."""

TOOL_WORKER = "hexad.environments.worker"
"""The module that serves isolated tools."""

PASSED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE"),
    *("LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONHASHSEED"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
)
"""The only environment variables that a worker sees, beside the module path: what a program needs
to start. Tokens, keys and whatever else the trainer's shell holds stay outside."""

_CHUNK = 65536
_LARGEST_REPLY = 2**24
_SHOWN = 100


class WorkerFailed(Exception):
    """The process could not be started or could not import what it serves."""


class WorkerTimeout(Exception):
    """The call took longer than its limit; the process has been killed."""


class WorkerDied(Exception):
    """The process ended, or said something that is not a reply, during the call."""


class WorkerProcess:
    """One spawned Python process that serves ``target`` by ``module``, a call at a time.

    JSON lines over pipes: nothing is pickled. The process leads its own group, so that a kill also
    reaches what the tool started. It sees the environment variables ``PASSED`` and ``variables``.
    Use from one thread at a time, except :meth:`kill`.
    """

    def __init__(
        self, target: str, module: str = TOOL_WORKER, variables: Iterable[str] = ()
    ) -> None:
        self.target = target
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        passed = {name: os.environ[name] for name in (*PASSED, *variables) if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**passed, "PYTHONPATH": paths},
            start_new_session=True,
        )
        self._buffer = bytearray()
        self._ready = False
        self._gone = False
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        with self._lock:
            if self._gone:
                return False
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._process.pid, flags) is None

    @property
    def _shown(self) -> str:
        return self.target if len(self.target) < _SHOWN else f"{self.target[:_SHOWN]}..."

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def call(self, arguments: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
        """The worker's reply to ``arguments`` within ``seconds`` after it has started up.

        Raises ``WorkerFailed``, ``WorkerTimeout`` or ``WorkerDied``; the process is then dead.
        """
        try:
            if not self._ready:
                self._start()
            self._send(arguments)
            return self._receive(seconds)
        except (WorkerFailed, WorkerTimeout, WorkerDied):
            self.kill()
            raise

    def kill(self) -> None:
        """Kill the process and its children, and wait until it is gone. Safe to call twice."""
        with self._lock:
            if not self._gone:
                # The leader is not reaped before this point, so the group's id is still its own.
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
                self._gone = True

    def close(self) -> None:
        """Kill the process and close its pipes. Only when no call is running."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:  # the unsent rest of a request to a dead process
                    continue

    def _start(self) -> None:
        try:
            reply = self._receive(STARTUP_SECONDS)
        except (WorkerTimeout, WorkerDied) as error:
            raise WorkerFailed(f"the worker of {self._shown} did not start: {error}") from error
        if reply.get("ready") is not True:
            raise WorkerFailed(f"the worker of {self._shown} did not start: {reply.get('fault')}")
        self._ready = True

    def _send(self, arguments: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(dict(arguments)).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise WorkerDied(str(error)) from error

    def _receive(self, seconds: float) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not self._buffer.endswith(b"\n"):
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise WorkerTimeout(f"no reply within {seconds:g} s")
                chunk = os.read(self._process.stdout.fileno(), _CHUNK)
                if not chunk or len(self._buffer) > _LARGEST_REPLY:
                    raise WorkerDied("it ended" if not chunk else "its reply is too large")
                self._buffer += chunk
        line = bytes(self._buffer)
        self._buffer.clear()
        try:
            reply = json.loads(line)
        except ValueError as error:
            raise WorkerDied("it sent junk") from error
        if not isinstance(reply, dict):
            raise WorkerDied("it sent junk")
        return reply
