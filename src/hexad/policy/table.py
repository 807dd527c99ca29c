"""The open requests of a local engine as columns: one decode step has no loop over rows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np

from hexad.policy.backend import Index
from hexad.policy.cuts import Cuts
from hexad.policy.draw import Uniforms, uniforms
from hexad.policy.engine import Completion, Request, Stop
from hexad.policy.partial import continued, joined


@dataclass(slots=True, eq=False)
class Ticket:
    """One submitted request, the future that its caller awaits, and its lane once admitted.

    ``pieces`` were sampled by earlier weights; ``request`` then asks for what follows them.
    """

    request: Request
    future: asyncio.Future[Completion]
    lane: int = -1
    pieces: list[Completion] = field(default_factory=list)

    def cut(self, piece: Completion, limit: int) -> None:
        """Keep ``piece``, what the lane sampled of ``limit`` tokens; the rest is asked for anew."""
        self.pieces.append(piece)
        self.request = continued(self.request, [piece], limit - len(piece.ids))
        self.lane = -1

    def settle(self, rest: Completion) -> None:
        """Answer the caller, if it still waits, with all pieces and ``rest``."""
        if not self.future.done():
            self.future.set_result(joined([*self.pieces, rest]))


class Table:
    """``rows`` lanes, each free or holding one open request; ``live`` lists the open lanes.

    ``limit`` is the most tokens that a lane may sample, ``count`` those it has sampled;
    ``tempered`` tells whether some lane's temperature may differ from 1, ``cuts`` which lanes cut
    the vocabulary.
    """

    def __init__(self, rows: int, vocabulary: int, cuts: Cuts) -> None:
        self.cuts = cuts
        self.live: Index = np.zeros(0, np.int64)
        self.tickets: dict[int, Ticket] = {}
        self.token = np.zeros(rows, np.int64)
        self.position = np.zeros(rows, np.int64)
        self.count = np.zeros(rows, np.int64)
        self.limit = np.zeros(rows, np.int64)
        self.temperature = np.ones(rows, np.float32)
        self.tempered = False
        self._stops = np.zeros(rows, np.int64)
        self._uniforms = np.zeros((rows, 16), np.float64)
        self._ids = np.zeros((rows, 16), np.int32)
        self._logprobs = np.zeros((rows, 16), np.float32)
        self._vocabulary = vocabulary
        self._stop_rows: dict[tuple[int, ...], int] = {}
        self._stop_table = np.zeros((0, vocabulary), np.bool_)
        self._free = list(range(rows))[::-1]

    @property
    def free(self) -> int:
        """Number of lanes that hold no request."""
        return len(self._free)

    def open(self, ticket: Ticket, limit: int) -> int:
        """Give ``ticket`` a lane; its draws are precomputed. Call :meth:`start` when it decodes."""
        request = ticket.request
        lane = ticket.lane = self._free.pop()
        self._widen(limit)
        self.tickets[lane] = ticket
        self.position[lane] = len(request.ids)
        self.count[lane], self.limit[lane] = 0, limit
        self.temperature[lane] = request.sampling.temperature
        self.tempered = bool((self.temperature != 1.0).any())
        self.cuts.open(lane, request)
        self._stops[lane] = self._stop_row(request.stop_ids)
        self._uniforms[lane, :limit] = uniforms(request.key, len(request.ids), limit)
        return lane

    def start(self, lanes: Index) -> None:
        """Add ``lanes`` to the live ones."""
        self.live = np.concatenate((self.live, lanes))

    def draws(self, lanes: Index) -> Uniforms:
        """The uniform number, float64, of the next token of each lane."""
        numbers: Uniforms = self._uniforms[lanes, self.count[lanes]]
        return numbers

    def record(self, lanes: Index, ids: np.ndarray, logprobs: np.ndarray) -> Index:
        """Store one sampled token a lane; return the lanes that are finished by it."""
        at = self.count[lanes]
        self._ids[lanes, at], self._logprobs[lanes, at] = ids, logprobs
        self.token[lanes] = ids
        self.position[lanes] += 1
        self.count[lanes] = at + 1
        stopped = self._stop_table[self._stops[lanes], ids]
        finished: Index = lanes[stopped | (at + 1 >= self.limit[lanes])]
        return finished

    def close(self, lanes: Index) -> list[Ticket]:
        """Free ``lanes`` and return their tickets."""
        stays = np.ones(len(self.token), np.bool_)
        stays[lanes] = False
        self.live = self.live[stays[self.live]]
        self._free.extend(lanes.tolist()[::-1])
        return [self.tickets.pop(lane) for lane in lanes.tolist()]

    def completion(self, lane: int, version: int, *, aborted: bool = False) -> Completion:
        """What ``lane`` has sampled so far. Its arrays are read-only copies."""
        count = int(self.count[lane])
        ids, logprobs = self._ids[lane, :count].copy(), self._logprobs[lane, :count].copy()
        versions = np.full(count, version, np.int32)
        for array in (ids, logprobs, versions):
            array.flags.writeable = False
        stopped = bool(count and self._stop_table[self._stops[lane], ids[-1]])
        stop = Stop.TOKEN if stopped else Stop.ABORT if aborted else Stop.LENGTH
        return Completion(ids, logprobs, versions, stop, self.cuts.support(lane))

    def _stop_row(self, stop_ids: tuple[int, ...]) -> int:
        """Row of the stop table for ``stop_ids``; a new set of ids adds one."""
        row = self._stop_rows.get(stop_ids)
        if row is None:
            row = self._stop_rows[stop_ids] = len(self._stop_table)
            added = np.zeros((1, self._vocabulary), np.bool_)
            added[0, list(stop_ids)] = True
            self._stop_table = np.concatenate((self._stop_table, added))
        return row

    def _widen(self, width: int) -> None:
        more = max(width, 2 * self._ids.shape[1]) - self._ids.shape[1]
        if width > self._ids.shape[1]:
            self._uniforms = np.pad(self._uniforms, ((0, 0), (0, more)))
            self._ids = np.pad(self._ids, ((0, 0), (0, more)))
            self._logprobs = np.pad(self._logprobs, ((0, 0), (0, more)))
