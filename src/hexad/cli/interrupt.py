"""Ctrl-C: once stops at the border of a batch, twice stops at once."""

from __future__ import annotations

import signal
import sys
from types import FrameType, TracebackType


class Interrupts:
    """Inside the ``with`` block the first SIGINT only sets a flag that the loop asks for.

    The second one raises ``KeyboardInterrupt`` wherever the program is. ``silent`` says nothing.
    """

    def __init__(self, *, silent: bool = False) -> None:
        self._asked, self._silent = False, silent

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._first)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def requested(self) -> bool:
        """Whether the run was asked to stop."""
        return self._asked

    def _first(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if not self._silent:
            sys.stderr.write("\nstopping after this batch; press Ctrl-C again to stop at once\n")
