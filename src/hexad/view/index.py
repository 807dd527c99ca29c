"""Which episodes a run stored: a table in memory that ``duckdb`` fills from the Parquet parts."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import duckdb
import pyarrow.parquet as pq

from hexad.contract.arrow import from_table
from hexad.contract.episode import Episode
from hexad.contract.faults import UserError
from hexad.contract.part import Part
from hexad.contract.store import Store
from hexad.evidence.audit import CELLS, FILE

PAGE = 50
_TABLE = """
CREATE TABLE episodes (file VARCHAR, place BIGINT, step BIGINT, episode_id VARCHAR,
  task_id VARCHAR, group_id VARCHAR, environment VARCHAR, actor VARCHAR, ending VARCHAR,
  status VARCHAR, reward DOUBLE, length BIGINT, turns BIGINT, tool_calls BIGINT, lag BIGINT);
CREATE TABLE cells (episode_id VARCHAR, quadrant VARCHAR)
"""
_FILL = """
INSERT INTO episodes
SELECT $name, file_row_number, step, episode_id, task_id, group_id, environment, actor, ending.kind,
  coalesce(verdict.status, 'not judged'),
  {reward},
  costs.sampled_tokens, costs.turns, costs.tool_calls,
  step - list_min(list_transform(provenance.versions, lambda v: v.version))
FROM read_parquet($path, file_row_number = true)
"""
_WEIGHT = "list_extract($weights::DOUBLE[], list_position($names::VARCHAR[], r.component))"
_SUM = f"""CASE WHEN len(rewards) > 0 THEN
  list_sum(list_transform(rewards, lambda r: r.value * coalesce({_WEIGHT}, 1.0))) END"""
_GATED = f"CASE WHEN gate IS NOT NULL THEN gate.reward ELSE {_SUM} END"
"""What an episode is paid: the weighted components, or what the gate says in their place."""
ORDERS = {
    "newest": "step DESC, file DESC, place",
    "oldest": "step, file, place",
    "highest reward": "reward DESC NULLS LAST, step DESC, place",
    "lowest reward": "reward NULLS LAST, step DESC, place",
    "longest": "length DESC, step DESC, place",
    "shortest": "length, step DESC, place",
    "most lag": "lag DESC NULLS LAST, step DESC, place",
}
_BOUNDS = {
    "least_reward": "reward >= ?",
    "most_reward": "reward <= ?",
    "least_length": "length >= ?",
    "most_length": "length <= ?",
    "least_lag": "lag >= ?",
    "most_lag": "lag <= ?",
}
_EXACT = ("ending", "status", "environment", "quadrant")


@dataclass(frozen=True, slots=True)
class Query:
    """Filters by name; an empty one filters nothing. ``page`` counts from 1."""

    text: str = ""
    """Part of an episode's, task's or group's id."""
    ending: str = ""
    status: str = ""
    environment: str = ""
    quadrant: str = ""
    least_reward: float | None = None
    most_reward: float | None = None
    least_length: float | None = None
    most_length: float | None = None
    least_lag: float | None = None
    most_lag: float | None = None
    order: str = "newest"
    page: int = 1

    @classmethod
    def of(cls, words: dict[str, str]) -> Self:
        """The query that a page's address names. Raises ``UserError`` for what it cannot mean."""
        known = {f.name: f.default for f in fields(cls)}
        found: dict[str, Any] = {}
        for key, word in words.items():
            if key not in known:
                raise UserError(f"there is no filter {key!r}", fix=f"use one of {', '.join(known)}")
            if word.strip():
                found[key] = _number(key, word) if key in _BOUNDS or key == "page" else word.strip()
        query = cls(**found)
        if query.order not in ORDERS:
            raise UserError(f"no order {query.order!r}", fix=f"use one of {', '.join(ORDERS)}")
        return query

    def where(self) -> tuple[str, list[Any]]:
        """The condition in SQL, and its values."""
        conditions, values = ["true"], []
        if self.text:
            same = "contains(lower(concat_ws(' ', episode_id, task_id, group_id)), lower(?))"
            conditions.append(same)
            values.append(self.text)
        for key in _EXACT:
            if value := getattr(self, key):
                conditions.append(f"{key} = ?")
                values.append(value)
        for key, condition in _BOUNDS.items():
            if (bound := getattr(self, key)) is not None:
                conditions.append(condition)
                values.append(bound)
        return " AND ".join(conditions), values

    @property
    def words(self) -> dict[str, Any]:
        """What the address must say for this query, the page apart."""
        every = {f.name: getattr(self, f.name) for f in fields(self)}
        usual = {f.name: f.default for f in fields(self)}
        return {k: v for k, v in every.items() if k != "page" and v != usual[k]}


@dataclass(frozen=True, slots=True)
class Found:
    """One page of rows, how many there are in all, and the place of the page."""

    rows: list[dict[str, Any]]
    count: int
    query: Query
    pages: int


class Index:
    """The stored episodes below ``folder``, which a training run may still write.

    ``weights`` are those of the reward's components (``feedback.weights``).

    :meth:`refresh` reads the parts that are new and forgets those that a merge has replaced, so
    that a page costs a query in memory and never a scan. Safe to use from several threads.
    """

    def __init__(self, folder: Path, weights: Mapping[str, float]) -> None:
        self.folder, self.store = folder, Store(folder / "episodes")
        self._weights = {"names": list(weights), "weights": list(weights.values())}
        self._lock = threading.Lock()
        self._base = duckdb.connect()
        self._base.execute(_TABLE)
        self._known: dict[str, int] = {}
        self._cells = 0

    def refresh(self) -> None:
        """Take in what was written since. Raises ``UserError`` for a part that cannot be read."""
        with self._lock:
            parts = {part.path.name: part for part in self.store.parts()}
            for name in [*self._known]:
                if name not in parts or parts[name].path.stat().st_size != self._known[name]:
                    self._base.execute("DELETE FROM episodes WHERE file = ?", [name])
                    del self._known[name]
            for name, part in parts.items():
                if name not in self._known:
                    self._fill(part)
            self._judge()

    def find(self, query: Query) -> Found:
        """One page of the episodes that ``query`` describes."""
        where, values = query.where()
        source = f"FROM episodes LEFT JOIN cells USING (episode_id) WHERE {where}"
        with self._lock:
            count = int(self._one(f"SELECT count(*) {source}", values))
            pages = max(-(-count // PAGE), 1)
            start = (min(max(int(query.page), 1), pages) - 1) * PAGE
            sql = f"SELECT * {source} ORDER BY {ORDERS[query.order]} LIMIT {PAGE} OFFSET {start}"
            rows = self._rows(sql, values)
        return Found(rows, count, query, pages)

    def choices(self) -> dict[str, list[str]]:
        """What the exact filters can be, by filter."""
        with self._lock:
            found = {}
            for key in _EXACT[:-1]:
                rows = self._base.execute(f"SELECT DISTINCT {key} FROM episodes ORDER BY 1")
                found[key] = [row[0] for row in rows.fetchall()]
        return found | {"quadrant": list(CELLS) if self._cells else []}

    def samples(self, count: int) -> list[dict[str, Any]]:
        """Of the newest step, one episode of each ending and verdict, ``count`` at most."""
        with self._lock:
            return self._rows(
                "SELECT * FROM episodes WHERE step = (SELECT max(step) FROM episodes) QUALIFY "
                "row_number() OVER (PARTITION BY ending, status ORDER BY turns DESC, place) = 1 "
                f"ORDER BY status, ending LIMIT {int(count)}",
                [],
            )

    def row(self, episode_id: str) -> dict[str, Any]:
        """The row of one episode. Raises ``UserError`` where none has this id."""
        with self._lock:
            sql = "SELECT * FROM episodes LEFT JOIN cells USING (episode_id) WHERE episode_id = ?"
            rows = self._rows(sql, [episode_id])
        if not rows:
            raise UserError(f"no stored episode {episode_id!r}", where=str(self.store.folder))
        return rows[0]

    def episode(self, row: dict[str, Any]) -> Episode:
        """The whole episode of ``row``. Raises ``UserError`` where its part is gone or torn."""
        part = Part.parse(self.store.folder / row["file"])
        if part is None:
            raise UserError(f"{row['file']} is not a part", where=str(self.store.folder))
        return from_table(part.slice(row["place"]), str(part.path))[0]

    def near(self, row: dict[str, Any]) -> dict[str, str | None]:
        """Ids of the episodes stored before and after this one."""
        found = {}
        with self._lock:
            for name, sign, way in (("before", "<", "DESC"), ("after", ">", "ASC")):
                sql = (
                    f"SELECT episode_id FROM episodes WHERE (step, place) {sign} (?, ?) "
                    f"ORDER BY step {way}, place {way} LIMIT 1"
                )
                seen = self._base.execute(sql, [row["step"], row["place"]]).fetchone()
                found[name] = seen[0] if seen else None
        return found

    def members(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """The group of this episode, by id."""
        with self._lock:
            sql = "SELECT * FROM episodes WHERE group_id = ? AND step = ? ORDER BY episode_id"
            return self._rows(sql, [row["group_id"], row["step"]])

    def _fill(self, part: Part) -> None:
        size, count = part.path.stat().st_size, part.rows()  # raises for a torn or foreign file
        try:
            if count:
                # Schemas 1 and 2 knew no gate.
                gated = "gate" in pq.read_schema(part.path).names
                fill = _FILL.format(reward=_GATED if gated else _SUM)
                names = {"name": part.path.name, "path": str(part.path)}
                self._base.execute(fill, names | self._weights)
        except duckdb.Error as error:
            raise UserError(
                f"the episodes of {part.path.name} cannot be read: {error}",
                where=str(part.path),
                fix="reload the page: a merge may have replaced the file just now",
            ) from error
        self._known[part.path.name] = size

    def _judge(self) -> None:
        path = self.folder / FILE
        changed = path.stat().st_mtime_ns if path.exists() else 0
        if changed == self._cells:
            return
        self._base.execute("DELETE FROM cells")
        cells = json.loads(path.read_bytes())["episodes"] if changed else {}
        rows = [(name, cell) for cell, names in cells.items() for name in names]
        if rows:
            self._base.executemany("INSERT INTO cells VALUES (?, ?)", rows)
        self._cells = changed

    def _one(self, sql: str, values: list[Any]) -> Any:
        return self._base.execute(sql, values).fetchall()[0][0]

    def _rows(self, sql: str, values: list[Any]) -> list[dict[str, Any]]:
        found = self._base.execute(sql, values)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _number(key: str, word: str) -> float | int:
    try:
        value = float(word)
        return int(value) if key == "page" else value
    except (ValueError, OverflowError) as error:
        raise UserError(f"{key} is not a number: {word!r}", fix="give a number") from error
