"""Who runs the workers: one interface for processes on this machine and for actors of a cluster."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Protocol, TypeAlias

from hexad.schedule.frame import Frame
from hexad.schedule.messages import Beat

Delivery: TypeAlias = tuple[int, Frame | None]
"""A slot and what its worker said; ``None`` once, when the worker is gone."""

ROOM = 4096
"""Frames that an inbox holds before those who fill it wait."""


class Backend(Protocol):
    """Workers by slot. All methods are for the source's one thread, and none waits for a worker.

    A slot has at most one worker. Its frames arrive in order, both ways. When it is gone, by
    whatever cause, ``(slot, None)`` follows its last frame, once; then the slot may be started
    again.
    """

    def start(self, slot: int) -> None:
        """Start the worker of ``slot``, which has none. It says ``ready`` when it is built.

        Raises ``UserError`` where workers cannot be started at all.
        """
        ...

    def send(self, slot: int, frame: Frame) -> None:
        """Hand ``frame`` to the worker; lost where it is gone, which the inbox says."""
        ...

    def receive(self, timeout: float) -> list[Delivery]:
        """What arrived, in order; waits at most ``timeout`` seconds for the first."""
        ...

    def silent(self, slot: int) -> float:
        """Seconds since the worker was last heard, or started; also while nobody received."""
        ...

    def alive(self, slot: int) -> bool:
        """Whether the slot has a worker that runs."""
        ...

    def kill(self, slot: int) -> None:
        """End the worker now, with all that it started. Does nothing where there is none."""
        ...

    def said(self, slot: int) -> str:
        """The end of what the slot's workers wrote to their error stream, for messages."""
        ...

    def close(self, seconds: float = 5.0) -> None:
        """Ask every worker to stop, and kill those that have not within ``seconds``."""
        ...


class Inbox:
    """Deliveries of all workers in order of arrival; filled by threads, read by one.

    A beat that was not read yet gives way to the newer one of its slot, so a long training step
    finds one each. Other frames wait outside while the inbox is full; a death never waits.
    """

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._lies: deque[Delivery] = deque()
        self._beats: dict[int, Frame] = {}
        self._lines: dict[int, Line] = {}
        self._closed = False
        self._changed = threading.Condition()

    def line(self, slot: int) -> Line:
        """The line of a worker that was started in ``slot``: its silence counts from now."""
        with self._changed:
            self._lines[slot] = Line(self, slot)
            return self._lines[slot]

    def take(self, timeout: float) -> list[Delivery]:
        """Everything that lies here; waits at most ``timeout`` seconds for the first."""
        with self._changed:
            self._changed.wait_for(lambda: self._lies or self._beats, timeout)
            # Beats first: none may follow the death of its worker.
            found: list[Delivery] = [*self._beats.items(), *self._lies]
            self._beats.clear()
            self._lies.clear()
            self._changed.notify_all()
            return found

    def silent(self, slot: int) -> float:
        """Seconds since ``slot`` was heard; 0 while something of it waits for room."""
        with self._changed:
            line = self._lines.get(slot)
            return 0.0 if line is None or line.waits else time.monotonic() - line.heard

    def close(self) -> None:
        """Let go whoever waits for room; what comes now is thrown away."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def deliver(self, line: Line, frame: Frame | None) -> None:
        """See :meth:`Line.put` and :meth:`Line.end`."""
        with self._changed:
            line.heard = time.monotonic()
            if frame is not None and frame.head.get("kind") == Beat.kind:
                if not line.ended:
                    self._beats[line.slot] = frame
            else:
                self._lay(line, frame)
            self._changed.notify_all()

    def _lay(self, line: Line, frame: Frame | None) -> None:
        if frame is not None:
            line.waits = True
            self._changed.wait_for(
                lambda: self._closed or line.ended or len(self._lies) < self._room
            )
            line.waits = False
            line.heard = time.monotonic()
        if self._closed or line.ended:
            return
        if frame is None:
            line.ended = True
            self._beats.pop(line.slot, None)
        self._lies.append((line.slot, frame))


class Line:
    """What one worker says, for as long as it lives."""

    def __init__(self, inbox: Inbox, slot: int) -> None:
        self._inbox, self.slot = inbox, slot
        self.heard = time.monotonic()
        self.waits = self.ended = False

    def put(self, frame: Frame) -> None:
        """Deliver ``frame``, waiting for room. Nothing follows the end, or a closed inbox."""
        self._inbox.deliver(self, frame)

    def end(self) -> None:
        """Say that the worker is gone; once, and never waiting."""
        self._inbox.deliver(self, None)
