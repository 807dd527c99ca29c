"""``sql``: the final answer is a query that returns what the stored one does."""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter
from typing import Any, TypeAlias

from hexad.contract.digest import code_digest
from hexad.contract.episode import Episode
from hexad.contract.faults import VerifierFault
from hexad.contract.messages import Message
from hexad.contract.task import Task
from hexad.contract.verdict import Verdict
from hexad.feedback.cards import Card
from hexad.feedback.ready import common

Rows: TypeAlias = list[tuple[Any, ...]]

_READS = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
    }
)
_LONGEST = 1_000_000
"""Bytes of one value or statement."""


class SqlVerifier:
    """Runs the query on each database of ``task.data["setup"]``, a script or a list of scripts.

    The databases are SQLite's, in memory, and may only be read. The rows must be those of
    ``task.data["answer"]`` (a query), in its order where ``task.data["ordered"]`` is true and in
    any order otherwise; names of columns do not count.
    """

    version = "1"
    timeout, memory = common.SECONDS, common.MEMORY
    card = Card(
        "sql",
        checks="the last message is one SELECT that returns the rows of the task's query on every "
        "database of the task",
        blind="whether it would on other data: one database with few rows is met by chance; "
        f"speed; other dialects than SQLite; {common.BLIND}",
        task="setup: SQL script or a list of them; answer: query; ordered: whether order counts",
    )

    def __init__(self, family: object) -> None:
        pass

    @property
    def digest(self) -> str:
        """Digest of version, SQLite's version and source."""
        config = {"sqlite": sqlite3.sqlite_version}
        return code_digest("sql", self.version, config, sys.modules[__name__], common)

    def verify(self, task: Task, episode: Episode, transcript: tuple[Message, ...]) -> Verdict:
        """The verdict. Raises ``VerifierFault`` for scripts or a query of the task that fail."""
        setup = common.stored(task, "setup", (str, list, tuple))
        query, ordered = common.stored(task, "answer", str), bool(task.data.get("ordered", False))
        scripts = [setup] if isinstance(setup, str) else list(setup)
        if not scripts:
            raise VerifierFault(f"task {task.task_id} stores no database")
        text = common.final_text(episode, transcript)
        if text is None:
            return common.no_answer()
        for number, script in enumerate(scripts):
            try:
                expected = _expected(script, query)
            except sqlite3.Error as error:
                raise VerifierFault(f"database {number} of task {task.task_id}: {error}") from None
            try:
                rows = _read(script, text, len(expected) + 1)
            except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
                return common.invalid(f"{type(error).__name__}: {str(error)[:80]}", text)
            if not _equal(rows, expected, ordered=ordered):
                return common.right(False, answer=common.shown(text), database=number)
        return common.right(True, answer=common.shown(text), databases=len(scripts))


def _expected(script: str, query: str) -> Rows:
    """The rows of the task's own query."""
    with _opened(script) as database:
        return database.execute(query).fetchall()


def _read(script: str, query: str, most: int) -> Rows:
    """At most ``most`` rows of ``query`` on a database that it cannot change."""
    with _opened(script) as database:
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        database.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _LONGEST)
        database.set_authorizer(_only_reading)
        cursor = database.execute(query)
        if cursor.description is None:
            raise ValueError("it is no query")
        return cursor.fetchmany(most)


class _opened:
    """A database in memory, made by a script, that is closed when the block ends."""

    def __init__(self, script: str) -> None:
        self._script = script

    def __enter__(self) -> sqlite3.Connection:
        self._database = sqlite3.connect(":memory:")
        self._database.executescript(self._script)
        return self._database

    def __exit__(self, *error: object) -> None:
        self._database.close()


def _only_reading(action: int, first: Any, second: Any, *rest: Any) -> int:
    """SQLite asks whether it may."""
    if action == sqlite3.SQLITE_FUNCTION and second == "load_extension":
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY


def _equal(rows: Rows, expected: Rows, *, ordered: bool) -> bool:
    return rows == expected if ordered else Counter(rows) == Counter(expected)
