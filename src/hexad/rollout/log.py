"""The log of one episode: what was sampled and what answered it, so that it can go on elsewhere."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa

from hexad.contract import crash
from hexad.contract.durable import disk_errors, temporary_name
from hexad.contract.faults import ContractViolation, UserError
from hexad.rollout.entries import (
    LOG_VERSION,
    SCHEMA,
    VERSION_KEY,
    Begun,
    Entry,
    Restarted,
    Sampled,
    Seated,
    from_batch,
    to_batch,
)

_DOING = "write the log of an episode"
_CONTINUES = 0xFFFFFFFF
_EMPTY = SCHEMA.serialize().to_pybytes()
"""A log without an entry."""
_FIX = "use the release of Hexad that wrote it, or remove the file: the episode then starts afresh"


class EpisodeLog:
    """An Arrow IPC stream of entries (``rollout/entries.py``), in memory and in a file if named.

    An entry is in the file before :meth:`append` returns: it survives the death of the process, not
    that of the machine, as nothing is forced to disk. A stream that was cut inside an entry is read
    without it: what was not written whole never was.
    """

    def __init__(self, data: bytes, path: Path | None) -> None:
        self._data = bytearray(data)
        self._path = path
        self._sampled = self._lost = 0
        self.versions = set[int]()
        """Policy versions that sampled a token."""
        self._sittings: list[float] = []
        try:
            for entry in self.entries():
                self._count(entry)
        except (pa.ArrowInvalid, LookupError, TypeError, ValueError) as error:
            what = f"the log of an episode cannot be read: {type(error).__name__}: {error}"
            raise UserError(what, where=str(path or ""), fix=_FIX) from error
        self._file: Any = None
        if path is not None:
            with disk_errors(_DOING, path):
                self._file = open(path, "ab", buffering=0)

    @classmethod
    def create(cls, path: Path | None = None) -> EpisodeLog:
        """An empty log, in the file ``path`` if one is named; a file that is there is replaced."""
        return cls._stored(_EMPTY, path)

    @classmethod
    def read(cls, data: bytes, path: Path | None = None) -> EpisodeLog:
        """The log in ``data``, which goes on in the file ``path`` if one is named.

        Raises ``UserError`` for bytes that are not a log of this version.
        """
        whole = data[: _whole(data)]
        if not whole:  # not even the schema: nothing was ever recorded
            return cls.create(path)
        _require(whole)
        return cls._stored(whole, path)

    @classmethod
    def _stored(cls, data: bytes, path: Path | None) -> EpisodeLog:
        if path is not None:
            with disk_errors(_DOING, path):
                # Whole or not at all for whoever reads after a kill, but not forced to disk: that
                # would hold up every episode at its start.
                temporary = temporary_name(path)
                temporary.write_bytes(data)
                temporary.replace(path)
        return cls(data, path)

    def data(self) -> bytes:
        """The whole stream."""
        return bytes(self._data)

    def entries(self) -> list[Entry]:
        """Every entry, in order."""
        if len(self._data) == len(_EMPTY):
            return []
        with pa.ipc.open_stream(self.data()) as reader:
            return [from_batch(batch) for batch in reader]

    def append(self, entry: Entry) -> None:
        """Record ``entry``. Raises ``UserError`` where the disk is full or forbidden.

        Crash points: ``log:mid-entry`` with half of it in the file, ``log:entry`` with all of it.

        Raises ``TypeError`` or ``ValueError``, and records nothing, for what has no stored form.
        """
        message = to_batch(entry).serialize().to_pybytes()
        if self._path is not None:
            if self._file is None:
                raise ContractViolation(f"the log {self._path} is closed")
            with disk_errors(_DOING, self._path):
                whole, half = memoryview(message), len(message) // 2
                self._write(whole[:half])
                crash.point("log:mid-entry")
                self._write(whole[half:])
            crash.point("log:entry")
        self._data += message
        self._count(entry)

    @property
    def sampled_tokens(self) -> int:
        """Tokens that were sampled, those of attempts that faulted included."""
        return self._sampled

    @property
    def lost_tokens(self) -> int:
        """Sampled tokens that no episode will hold: all from before the last restart."""
        return self._lost

    @property
    def newest_version(self) -> int:
        """The newest policy version that sampled a token; -1 if none was sampled."""
        return max(self.versions, default=-1)

    @property
    def started(self) -> float | None:
        """Unix time at which the episode was first played, seconds; ``None`` if it never was."""
        return self._sittings[0] if self._sittings else None

    @property
    def sittings(self) -> int:
        """How often somebody sat down to play it."""
        return len(self._sittings)

    def close(self) -> None:
        """Close the file, which ends recording; all else stays. Safe to call twice."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, rest: memoryview) -> None:
        while rest:
            rest = rest[self._file.write(rest) :]

    def _count(self, entry: Entry) -> None:
        if isinstance(entry, Sampled):
            self._sampled += len(entry.completion.ids)
            self.versions.update(entry.completion.versions.tolist())
        elif isinstance(entry, Seated):
            self._sittings.append(entry.time)
        elif isinstance(entry, Restarted):
            self._lost = self._sampled


def last_attempt(entries: list[Entry]) -> list[Entry]:
    """The entries from the last ``begun`` on; none if there is no such entry since a restart."""
    edges = [i for i, entry in enumerate(entries) if isinstance(entry, Begun | Restarted)]
    if not edges or isinstance(entries[edges[-1]], Restarted):
        return []
    return entries[edges[-1] :]


def _whole(data: bytes) -> int:
    """Number of leading bytes that are whole messages of an Arrow stream.

    A message is a continuation mark, the length of its metadata, the metadata (a flatbuffer whose
    root table has ``bodyLength`` as field 3) and a body of that length. Raises ``UserError`` for
    bytes that begin no message.
    """
    end = 0
    while len(data) - end >= 8:
        mark, size = struct.unpack_from("<Ii", data, end)
        if mark != _CONTINUES or size <= 0:
            raise UserError(f"not the log of an episode: no Arrow message at byte {end}", fix=_FIX)
        body = end + 8 + size
        if body > len(data):
            break
        body += _body_length(data[end + 8 : body], end)
        if body > len(data):
            break
        end = body
    return end


def _body_length(metadata: bytes, at: int) -> int:
    """Field 3 of a message's root table: an entry of its vtable, which a default may leave out."""
    try:
        (table,) = struct.unpack_from("<I", metadata)
        vtable = table - struct.unpack_from("<i", metadata, table)[0]
        (fields,) = struct.unpack_from("<H", metadata, vtable)
        offset = struct.unpack_from("<H", metadata, vtable + 10)[0] if fields > 10 else 0
        length = struct.unpack_from("<q", metadata, table + offset)[0] if offset else 0
    except struct.error:
        length = -1
    if length < 0:
        raise UserError(f"not the log of an episode: no Arrow message at byte {at}", fix=_FIX)
    return int(length)


def _require(data: bytes) -> None:
    """Raise ``UserError`` unless ``data`` is a log that this release reads."""
    try:
        with pa.ipc.open_stream(data) as reader:
            found = (reader.schema.metadata or {}).get(VERSION_KEY)
            alike = reader.schema.equals(SCHEMA)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"not the log of an episode: {error}", fix=_FIX) from error
    if found != str(LOG_VERSION).encode() or not alike:
        version = "of no version" if found is None else f"of version {found.decode()}"
        raise UserError(
            f"the log of an episode is {version}, and this Hexad reads version {LOG_VERSION}",
            fix=_FIX,
        )
