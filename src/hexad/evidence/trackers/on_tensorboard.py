"""TensorBoard: event files in ``RUN/tensorboard``, written without torch."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from hexad.evidence.trackers.tracker import Numbers, Subject

FOLDER = "tensorboard"
_RECIPE = "recipe"


class TensorBoard:
    """Every session writes a file of its own, which hides steps from its first one on in earlier
    files (what ``SummaryWriter`` calls ``purge_step``).
    """

    rewinds: ClassVar[bool] = True

    def __init__(self, subject: Subject, known: Mapping[str, Any] | None, first: int) -> None:
        self._writer = EventFileWriter(str(subject.folder / FOLDER))
        if known is not None:
            start = SessionLog(status=SessionLog.START)
            self._add(Event(file_version="brain.Event:2"), first)
            self._add(Event(session_log=start), first)
        shown = json.dumps(dict(subject.recipe), indent=2)
        self._add(Event(summary=text_pb(_RECIPE, f"```\n{shown}\n```")), first)
        self._writer.flush()

    @staticmethod
    def problem() -> str | None:
        """A folder is enough."""
        return None

    @property
    def known(self) -> dict[str, Any]:
        """The folder is the run."""
        return {"id": FOLDER}

    def tell(self, numbers: Numbers, step: int) -> None:
        """One scalar a number."""
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in numbers.items()]
        self._add(Event(summary=Summary(value=values)), step)

    def flush(self) -> None:
        """To disk."""
        self._writer.flush()

    def end(self, summary: Numbers, step: int, *, done: bool) -> None:
        """The summary is scalars at the last step."""
        if summary:
            self.tell(summary, step)
        self._writer.close()

    def _add(self, event: Event, step: int) -> None:
        event.wall_time, event.step = time.time(), step
        self._writer.add_event(event)
