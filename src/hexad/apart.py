"""A command in a process of its own, which signals to this one reach as well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

_KIBIBYTE = 1 if sys.platform == "darwin" else 1024
"""Bytes in the unit of ``ru_maxrss``."""
_ASKS = signal.SIGINT
_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Relay:
    """Inside the ``with`` block the signals that stop a program go on to the process ``pid``.

    A child in a process group of its own hears nothing of a terminal's Ctrl-C, so that it hears
    each once, whoever was signalled. What this process does about SIGINT stays what it was; the
    others end it when the block is left, so after its child. Ignored ones stay ignored.
    """

    def __init__(self) -> None:
        self.pid: int | None = None
        self._early: list[int] = []
        self._ending: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Relay:
        for number in (_ASKS, *_ENDS):
            if (before := signal.getsignal(number)) is not signal.SIG_IGN:
                self._before[number] = before
                signal.signal(number, self._hear)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        for number in self._ending:
            os.kill(os.getpid(), number)

    def began(self, pid: int) -> None:
        """``pid`` runs; what was heard before it did is told now."""
        self.pid = pid
        for number in self._early:
            self._tell(number)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._tell(number)
        if number in _ENDS:
            self._ending.append(number)
        elif callable(before := self._before[number]):
            try:
                before(number, frame)
            finally:  # a first Ctrl-C may have said what the second one does
                if (now := signal.getsignal(number)) != self._hear:
                    self._before[number] = now
                    signal.signal(number, self._hear)

    def _tell(self, number: int) -> None:
        if self.pid is None:
            self._early.append(number)
            return
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(self.pid, number)


def apart(words: Sequence[str], *, quiet: bool) -> tuple[int, int]:
    """Run a command in a process of its own: exit code, and its peak resident bytes.

    They are those of its largest process; ``quiet`` drops what it prints, errors apart. Signals go
    on to it as :class:`Relay` says, and this process never ends before it.
    """
    out = subprocess.DEVNULL if quiet else None
    with (
        Relay() as relay,
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, process_group=0) as child,
    ):
        relay.began(child.pid)
        try:
            _, status, usage = os.wait4(child.pid, 0)
        except KeyboardInterrupt:  # it was told as well
            child.wait()
            raise
        child.returncode = os.waitstatus_to_exitcode(status)
        relay.pid = None
    return child.returncode, usage.ru_maxrss * _KIBIBYTE
