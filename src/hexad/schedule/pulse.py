"""The signs of life of a worker: a thread that speaks while everything else may hang."""

from __future__ import annotations

import resource
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hexad.schedule.frame import Frame
from hexad.schedule.messages import Beat

BEAT_SECONDS = 1.0
"""Between two signs of life."""


@dataclass(slots=True)
class Gauges:
    """What a beat tells; written by the worker's event loop. Until it runs, it never answered."""

    live: int = 0
    waiting: int = 0
    version: int = -1
    answered: float = field(default_factory=time.monotonic)
    engine: dict[str, int] = field(default_factory=dict)


class Pulse:
    """Sends a ``Beat`` of ``gauges`` every second until it is stopped.

    Only a process whose interpreter is held, or that is gone, falls silent: a tool that is slow and
    an event loop that hangs do not stop it, and ``loop_seconds`` tells the two apart.
    """

    def __init__(self, send: Callable[[Frame], None], gauges: Gauges) -> None:
        self._send, self._gauges = send, gauges
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        """Begin; the first beat is sent at once."""
        self._thread.start()

    def stop(self) -> None:
        """No beat follows."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._send(self._beat().frame())
            self._stopped.wait(BEAT_SECONDS)

    def _beat(self) -> Beat:
        gauges = self._gauges
        return Beat(
            live=gauges.live,
            waiting=gauges.waiting,
            version=gauges.version,
            loop_seconds=max(0.0, time.monotonic() - gauges.answered),
            busy_seconds=time.process_time(),
            rss_bytes=resident(),
            engine=gauges.engine,
        )


def resident() -> int:
    """Bytes of memory that this process holds; where the system does not say, its highest."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
