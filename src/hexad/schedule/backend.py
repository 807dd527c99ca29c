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
        self._heard: dict[int, float] = {}
        self._knocking: dict[int, int] = {}
        self._closed = False
        self._changed = threading.Condition()

    def put(self, slot: int, frame: Frame | None) -> None:
        """Deliver, waiting for room. A closed inbox takes nothing and never waits."""
        with self._changed:
            self._heard[slot] = time.monotonic()
            if frame is None:
                self._beats.pop(slot, None)
            elif frame.head.get("kind") == Beat.kind:
                self._beats[slot] = frame
                self._changed.notify_all()
                return
            else:
                self._wait_for_room(slot)
            if not self._closed:
                self._lies.append((slot, frame))
                self._changed.notify_all()

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

    def begin(self, slot: int) -> None:
        """A worker was started: its silence counts from now."""
        with self._changed:
            self._heard[slot] = time.monotonic()

    def silent(self, slot: int) -> float:
        """Seconds since ``slot`` was heard; 0 while something of it waits for room."""
        with self._changed:
            if self._knocking.get(slot):
                return 0.0
            return time.monotonic() - self._heard.get(slot, time.monotonic())

    def close(self) -> None:
        """Let go whoever waits for room; what comes now is thrown away."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wait_for_room(self, slot: int) -> None:
        self._knocking[slot] = self._knocking.get(slot, 0) + 1
        self._changed.wait_for(lambda: self._closed or len(self._lies) < self._room)
        self._knocking[slot] -= 1
        self._heard[slot] = time.monotonic()
