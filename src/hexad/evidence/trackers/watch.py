"""Has trackers follow a run: which can be used, their processes, and what went wrong with them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from hexad.contract.events import Event, Published
from hexad.contract.faults import UserError
from hexad.contract.lookup import nearest
from hexad.evidence.ledger import Ledger
from hexad.evidence.summary import summarize
from hexad.evidence.trackers import book as books
from hexad.evidence.trackers.rows import last_step
from hexad.evidence.trackers.tracker import TRACKERS, Numbers, numbers
from hexad.recipe.axes import Recipe

PATIENCE = 75.0
"""Seconds that a finished run waits for its trackers, all together; then they are killed."""
_CHECK = 120.0
_FOLLOW = (sys.executable, "-m", "hexad.evidence.trackers.follow")


def require(names: Sequence[str]) -> None:
    """Raise ``UserError`` unless every tracker of ``names`` can be used here."""
    for name in names:
        where = f"--track {name}"
        if name not in TRACKERS:
            raise UserError("there is no such tracker", where=where, fix=nearest(name, TRACKERS))
        install = f"pip install 'hexad[{name}]'"
        try:
            distribution(name)
        except PackageNotFoundError as error:
            raise UserError(f"{name} is not installed", where=where, fix=install) from error
        what, _, fix = _problem(name).partition("\n")
        if what:
            raise UserError(f"{name} cannot be used: {what}", where=where, fix=fix or install)


def _problem(name: str) -> str:
    """What the library says of itself, asked in a process of its own; empty where all is well."""
    command = (*_FOLLOW, "--check", name)
    quiet = subprocess.DEVNULL
    try:
        asked = subprocess.run(
            command, stdin=quiet, capture_output=True, text=True, timeout=_CHECK, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_CHECK:.0f} s"
    if asked.returncode:
        return (asked.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    return asked.stdout.strip()


class Following:
    """One process: tracker ``name``, which follows the run or stage in ``folder``.

    ``words`` are its other arguments. It has a session and a process group of its own, so that
    Ctrl-C leaves it to tell the last rows.
    """

    def __init__(self, name: str, folder: Path, *words: str) -> None:
        self.name, self.folder = name, folder
        self.log = books.place(folder, name, "log")
        self.log.parent.mkdir(exist_ok=True)
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                (*_FOLLOW, name, str(folder), *words),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                bufsize=0,
            )
        self._told, self._failures = False, self.book.failures

    @property
    def book(self) -> books.Book:
        """What it has told so far."""
        return books.load(books.place(self.folder, self.name, "json"))

    @property
    def trouble(self) -> str:
        """What has gone wrong in this session; empty where nothing has."""
        if code := self._process.poll():
            return f"its process ended with code {code}, see {self.log}"
        book = self.book
        return book.error if book.failures > self._failures else ""

    def new_trouble(self) -> str:
        """:attr:`trouble`, the first time that there is any."""
        if self._told or not (trouble := self.trouble):
            return ""
        self._told = True
        return trouble

    def end(self, summary: Numbers | None) -> None:
        """Let it tell what is left, and the summary of a finished run. Does not wait for it."""
        pipe = self._process.stdin
        assert pipe is not None
        if pipe.closed:
            return
        try:
            if summary is not None:
                pipe.write(json.dumps(summary).encode() + b"\n")
        except BrokenPipeError:
            pass  # it has died, which ``trouble`` says
        finally:
            pipe.close()

    def wait(self, until: float) -> None:
        """Wait for its end until the monotonic time ``until``, then kill it."""
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Trackers:
    """A watcher that has ``names`` follow each stage of the run in ``run_dir``.

    Each is a process that reads the logs of the run. Training never waits for one, and nothing
    piles up: what was not told yet is in the logs. ``say`` shows people a line.
    """

    def __init__(self, names: Sequence[str], run_dir: Path, say: Callable[[str], None]) -> None:
        self.names, self.run_dir, self.say = tuple(dict.fromkeys(names)), run_dir, say
        self._folder: Path | None = None
        self._begun: list[Following] = []
        self._now: list[Following] = []

    def stage(self, name: str, recipe: Recipe, ledger: Ledger) -> None:
        """A recipe begins or is resumed; the one before, if any, is finished."""
        self._end_stage()
        self._folder = ledger.logs[0].parent

    def note(self, text: str) -> None:
        """Nothing: trackers get rows."""

    def __call__(self, event: Event) -> None:
        """Start at the first event, when a resume has rewound the logs; then look for trouble."""
        self._start()
        if isinstance(event, Published):
            for each in self._now:
                if trouble := each.new_trouble():
                    self.say(f"{each.name} does not follow, training goes on: {trouble}")

    def finish(self) -> list[dict[str, Any]]:
        """The run is finished: send the summary, wait, and say how each tracker did."""
        self._end_stage()
        until = time.monotonic() + PATIENCE
        for each in self._begun:
            each.wait(until)
        return [self._told(each) for each in self._begun]

    def close(self) -> None:
        """Let those that still follow tell what is left. Does not wait; safe to call twice."""
        for each in self._begun:
            each.end(None)

    def _start(self) -> None:
        if self._folder is None:
            return
        folder, self._folder = self._folder, None
        run = self.run_dir.resolve().name
        staged = folder != self.run_dir
        names = (f"{run}/{folder.name}", run) if staged else (run, "")
        kept = str(last_step(folder))
        for name in self.names:
            try:
                self._now.append(Following(name, folder, *names, kept))
            except OSError as error:
                self.say(f"{name} does not follow, training goes on: {error}")
        self._begun += self._now

    def _end_stage(self) -> None:
        self._start()
        for each in self._now:
            each.end(numbers(summarize(each.folder)["stages"][0]))
        self._now = []

    def _told(self, each: Following) -> dict[str, Any]:
        book, trouble = each.book, each.trouble
        known = book.known or {}
        line = f"{each.name}: run {known.get('id', 'none')}, {book.rows:,} rows told"
        if trouble:
            line += f", {book.missed:,} not; {book.failures} failures, the last: {trouble}"
        for first, last in book.rewound:
            line += f"; batches {first} to {last} and their evaluations stay as told before a kill"
        self.say(line)
        return {"tracker": each.name, "folder": str(each.folder), **asdict(book)}
