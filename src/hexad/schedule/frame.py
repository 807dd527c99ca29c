"""What crosses between the source and its workers: a JSON header and bytes. Nothing is pickled.

b"HXF1"   length of the header, uint32   length of the body, uint64   header   body
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

MAGIC = b"HXF1"
MAX_HEAD = 2**20
"""Bytes of a header; a longer one is junk."""
MAX_BODY = 2**38
"""Bytes of a body; weights of any model that one machine holds are shorter."""

_LENGTHS = struct.Struct(">4sIQ")
_PIECE = 2**24


class FrameError(Exception):
    """What arrived is not a frame: junk, torn, or too long."""


@dataclass(frozen=True, slots=True)
class Frame:
    """``head`` is a JSON object; ``body`` belongs to it."""

    head: Mapping[str, Any]
    body: bytes = b""


class Readable(Protocol):
    """A binary stream to read."""

    def read(self, size: int, /) -> bytes | None:
        """At most ``size`` bytes; none at the end."""
        ...


class Writable(Protocol):
    """A binary stream to write."""

    def write(self, data: bytes | memoryview, /) -> int | None:
        """Take some of ``data`` and say how many bytes; ``None`` means all of them."""
        ...

    def flush(self) -> None:
        """Let what was written leave this process."""
        ...


def encode(frame: Frame) -> bytes:
    """The bytes of ``frame``. Raises ``FrameError`` for a header that is no JSON or too long."""
    return _start(frame) + frame.body


def decode(data: bytes) -> Frame:
    """The one frame that ``data`` is. Raises ``FrameError`` for anything else."""
    head, body = _lengths(data[: _LENGTHS.size])
    edge = _LENGTHS.size + head
    if len(data) != edge + body:
        raise FrameError(f"a frame of {edge + body} bytes came as {len(data)}")
    return Frame(_head(data[_LENGTHS.size : edge]), data[edge:])


def write(stream: Writable, frame: Frame) -> None:
    """Write ``frame`` and flush."""
    _write(stream, _start(frame))
    _write(stream, frame.body)
    stream.flush()


def read(stream: Readable) -> Frame | None:
    """The next frame, or ``None`` where the stream ends between frames.

    Raises ``FrameError`` for junk and for a stream that ends inside a frame.
    """
    first = stream.read(1)
    if not first:
        return None
    head, body = _lengths(first + _exactly(stream, _LENGTHS.size - 1))
    return Frame(_head(_exactly(stream, head)), _exactly(stream, body))


def _start(frame: Frame) -> bytes:
    try:
        head = json.dumps(dict(frame.head), allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise FrameError(f"the header cannot be written as JSON: {error}") from error
    _check("header", len(head), MAX_HEAD)
    _check("body", len(frame.body), MAX_BODY)
    return _LENGTHS.pack(MAGIC, len(head), len(frame.body)) + head


def _lengths(data: bytes) -> tuple[int, int]:
    if len(data) != _LENGTHS.size:
        raise FrameError(f"a frame begins with {_LENGTHS.size} bytes, {len(data)} came")
    magic, head, body = _LENGTHS.unpack(data)
    if magic != MAGIC:
        raise FrameError(f"junk where a frame should begin: {data[:16]!r}")
    _check("header", head, MAX_HEAD)
    _check("body", body, MAX_BODY)
    return head, body


def _check(part: str, length: int, most: int) -> None:
    if length > most:
        raise FrameError(f"a {part} of {length} bytes; at most {most} are read")


def _head(data: bytes) -> dict[str, Any]:
    try:
        head = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"the header is not JSON: {error}") from error
    if not isinstance(head, dict):
        raise FrameError(f"the header is a {type(head).__name__}, not an object")
    return head


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


def _exactly(stream: Readable, count: int) -> bytes:
    # In pieces: a length is only believed as far as its bytes have come.
    pieces: list[bytes] = []
    left = count
    while left:
        piece = stream.read(min(left, _PIECE))
        if not piece:
            raise FrameError(f"the stream ended inside a frame, {left} bytes early")
        pieces.append(piece)
        left -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _write(stream: Writable, data: bytes) -> None:
    view = memoryview(data)
    while view:
        taken = stream.write(view)
        view = view[len(view) if taken is None else taken :]
