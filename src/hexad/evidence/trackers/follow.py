"""A process of its own that tells one tracker the rows of a run, while they are written.

``python -m hexad.evidence.trackers.follow NAME FOLDER RUN GROUP KEPT`` reads the run's logs until
its stdin ends: after a line with the summary the run is finished, without one it stopped. ``KEPT``
is the last batch that a resume kept, -1 for a new run. Whatever a library does - wait for a
network, fill a disk, crash - happens here and not in the training.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from hexad.evidence.trackers import book as books
from hexad.evidence.trackers.rows import BATCHES, Rows
from hexad.evidence.trackers.tracker import Numbers, Subject, Tracker, tracker

EVERY = 1.0
"""Seconds between two looks at the logs; after failures twice as long each time."""
LONGEST = 60.0
_SUMMARY = "summary"
_NICE = 5


class Follower:
    """Tells ``make``'s sessions what the logs hold and the book does not.

    ``kept`` is the last batch that was in the logs when the run went on.
    """

    def __init__(self, make: type[Tracker], name: str, subject: Subject, kept: int) -> None:
        self.make, self.subject, self._kept = make, subject, kept
        self.path = books.place(subject.folder, name, "json")
        self.book = books.load(self.path)
        self.pause = EVERY
        self._session: Tracker | None = None
        self._rows = Rows(subject.folder)

    def catch_up(self) -> None:
        """Tell every new row. After a failure the next call begins where the book ends."""
        self._guarded(self._tell)

    def end(self, summary: Numbers | None) -> None:
        """Tell what is left, and the summary; count the rows that could not be told."""
        self._guarded(self._tell)
        if self._session is not None:
            self._guarded(lambda: self._close(summary))
        rows = Rows(self.subject.folder).fresh()
        self.book.missed = sum(self.book.wants(row.series, row.step) for row in rows)
        self.book.done = summary is not None
        books.save(self.book, self.path)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
            self.pause = EVERY
        except Exception as error:  # noqa: BLE001 - a library may raise anything; it is counted
            self._session, self._rows = None, Rows(self.subject.folder)
            self.book = books.load(self.path)
            self.book.failures += 1
            self.book.error = f"{type(error).__name__}: {error}"[:500]
            self.pause = min(2 * self.pause, LONGEST)
            books.save(self.book, self.path)

    def _tell(self) -> None:
        if self._session is None:
            self._session = self._open()
        told = self.book.rows
        for row in self._rows.fresh():
            if self.book.wants(row.series, row.step):
                self._session.tell(row.numbers, row.step)
                self.book.told[row.series] = row.step
                self.book.rows += 1
        if self.book.rows > told:
            self._session.flush()
            books.save(self.book, self.path)

    def _open(self) -> Tracker:
        """A session that goes on where the book ends, or before, where a kill undid steps."""
        book, undone = self.book, self.book.told.get(BATCHES, -1)
        if undone > self._kept:
            if self.make.rewinds:
                book.told = {series: min(step, self._kept) for series, step in book.told.items()}
            else:
                book.rewound.append([self._kept + 1, undone])
        session = self.make(self.subject, book.known, book.step + 1)
        book.known, book.done = session.known, False
        books.save(book, self.path)
        self._kept = sys.maxsize  # from now on nothing is undone
        return session

    def _close(self, summary: Numbers | None) -> None:
        assert self._session is not None
        step = max(self.book.step, 0)
        new = self.book.wants(_SUMMARY, step)
        shown = {f"{_SUMMARY}/{key}": value for key, value in (summary or {}).items()}
        self._session.end(shown if new else {}, step, done=summary is not None)
        if shown:
            self.book.told[_SUMMARY] = step


def main(arguments: list[str]) -> None:
    """Follow a run, or say on stdout why ``NAME`` cannot be used (``--check NAME``)."""
    if arguments[0] == "--check":
        sys.stdout.write(tracker(arguments[1]).problem() or "")
        return
    name, folder, run, group, kept = arguments
    os.nice(_NICE)
    with open(books.place(Path(folder), name, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a process that a kill left behind ends first
        recipe = YAML(typ="safe", pure=True).load((Path(folder) / "recipe.yaml").read_text())
        subject = Subject(Path(folder), run, group, recipe)
        follower = Follower(tracker(name), name, subject, int(kept))
        follower.catch_up()
        while not select.select([sys.stdin], [], [], follower.pause)[0]:
            follower.catch_up()
        follower.end(_summary(sys.stdin.readline()))


def _summary(line: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(line) if line else None
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
