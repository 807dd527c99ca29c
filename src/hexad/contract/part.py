"""One Parquet part of the episode store: its name, its steps, its bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from hexad.contract.arrow import require_schema, upgraded
from hexad.contract.durable import disk_errors, write_whole
from hexad.contract.faults import UserError
from hexad.contract.fingerprint import fingerprint

_DIGEST = b"hexad_digest"
_ROWS = 1024
"""Episodes of a row group: what has to be decoded to read one of them."""
_NAME = re.compile(r"part-(\d+)(?:-(\d+))?\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """Steps ``first`` to ``last`` (inclusive) in the file ``path``."""

    first: int
    last: int
    path: Path

    @classmethod
    def named(cls, folder: Path, first: int, last: int) -> Part:
        """The part of these steps: ``part-000012.parquet`` or ``part-000000-000019.parquet``."""
        steps = f"{first:06d}" if first == last else f"{first:06d}-{last:06d}"
        return cls(first, last, folder / f"part-{steps}.parquet")

    @classmethod
    def parse(cls, path: Path) -> Part | None:
        """The part that ``path`` names, or ``None`` for any other file."""
        match = _NAME.fullmatch(path.name)
        if match is None:
            return None
        return cls(int(match[1]), int(match[2] or match[1]), path)

    @property
    def steps(self) -> int:
        """Number of steps the name spans."""
        return self.last - self.first + 1

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The table, or some columns of it, in the present schema version.

        Raises ``UserError`` naming a torn or foreign file.

        The digest of the values is compared where all columns are read.
        """
        with self._open() as file:
            table = file.read(columns=columns)
            if columns is None and fingerprint(table).encode() != table.schema.metadata.get(
                _DIGEST
            ):
                raise pa.ArrowInvalid("the values do not have the recorded digest")
            return upgraded(table)

    def slice(self, place: int) -> pa.Table:
        """The row of one episode, by its place in the file; only its row group is decoded.

        Raises as :meth:`read` does, and for a place beyond the last row.
        """
        with self._open() as file:
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if place < rows:
                    return upgraded(file.read_row_group(group).slice(place, 1))
                place -= rows
            raise pa.ArrowInvalid("it has fewer rows than that")

    def rows(self) -> int:
        """Number of episodes, from the footer alone. Raises as :meth:`read` does."""
        with self._open() as file:
            return int(file.metadata.num_rows)

    def write(self, table: pa.Table) -> None:
        """Write ``table`` whole or not at all. Raises ``UserError`` when the disk is full."""
        sink = pa.BufferOutputStream()
        metadata = {**(table.schema.metadata or {}), _DIGEST: fingerprint(table)}
        stamped = table.replace_schema_metadata(metadata)
        exact = {"compression": "zstd", "write_page_checksum": True}
        with pq.ParquetWriter(sink, stamped.schema, **exact) as writer:
            # An empty part has no row group at all: readers divide by the first one's rows.
            if table.num_rows:
                writer.write_table(stamped, row_group_size=_ROWS)
        with disk_errors(f"store the episodes of {self._shown()}", self.path):
            write_whole(self.path, memoryview(sink.getvalue()), "store")

    @contextmanager
    def _open(self) -> Iterator[pq.ParquetFile]:
        try:
            with pq.ParquetFile(self.path, page_checksum_verification=True) as file:
                require_schema(file.schema_arrow, str(self.path))
                yield file
        except (pa.ArrowException, OSError) as error:
            raise UserError(
                f"the episodes of {self._shown()} cannot be read: {error}",
                where=str(self.path),
                fix="restore the file from a copy; if no checkpoint reaches that far, "
                "--resume sets it aside; to go on without it, move it away by hand",
            ) from error

    def _shown(self) -> str:
        one = self.first == self.last
        return f"step {self.first}" if one else f"steps {self.first} to {self.last}"
