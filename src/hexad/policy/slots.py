"""Which context each key-value slot holds: longest-prefix matching and eviction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hexad.contract.arrays import Ints
from hexad.policy.backend import Ask, Index

_WORTH_COPYING = 8
"""A shorter shared prefix is computed again: copying would cost as much."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one prompt goes: into ``slot``, whose first ``start`` tokens are already computed.

    ``donor`` is the slot that they are copied from (-1: they lie in ``slot``). ``wave`` orders
    prompts of one batch: a donor is computed in an earlier wave than its copies.
    """

    slot: int
    start: int
    donor: int
    wave: int


class Slots:
    """Contents of ``count`` slots; a slot is open (serves a request), idle (a cache) or empty.

    Idle slots are evicted least recently used first, open ones never.
    """

    def __init__(self, count: int) -> None:
        self.ids = np.zeros((count, 64), np.int32)
        self.length = np.zeros(count, np.int64)
        self._open = np.zeros(count, np.bool_)
        self._used = np.zeros(count, np.int64)
        self._clock = 0
        self._slot_of: dict[str, int] = {}
        self._session: list[str | None] = [None] * count

    def plan(self, asks: Sequence[Ask]) -> list[Place]:
        """Place as many ``asks`` as possible, in order, and open their slots.

        Stops early when every slot left is open or is a donor of this batch.
        """
        places: list[Place] = []
        waves = np.full(len(self.length), -1, np.int64)
        donors: set[int] = set()
        same: dict[bytes, int] = {}
        for ask in asks:
            self._widen(len(ask.ids) + ask.room)
            own = self._slot_of.get(ask.session) if ask.session is not None else None
            if own is not None and (self._open[own] or own in donors):
                own = None
            donor, start = self._source(ask.ids, own, same, waves)
            slot = own if own is not None else self._victim(donors)
            if slot is None:
                break
            if donor not in (slot, -1):
                donors.add(donor)
            wave = int(waves[donor]) + 1 if donor >= 0 else 0
            places.append(Place(slot, start, -1 if donor == slot else donor, wave))
            waves[slot] = wave
            same.setdefault(ask.ids.tobytes(), slot)
            self._take(slot, ask)
        return places

    def append(self, slots: np.ndarray, tokens: np.ndarray, positions: np.ndarray) -> None:
        """Record that ``tokens`` at context ``positions`` went through the model."""
        self.ids[slots, positions] = tokens
        self.length[slots] = positions + 1

    def release(self, slot: int, *, keep: bool) -> None:
        """Close the slot's request; its content stays as a cache if ``keep``."""
        self._open[slot] = False
        if not keep:
            self._disown(slot)
            self.length[slot] = 0
            self._used[slot] = 0

    def retire(self) -> None:
        """Empty every slot. Raises ``RuntimeError`` while one is open."""
        if self._open.any():
            raise RuntimeError("a cache cannot be retired while a request is open")
        self.length[:] = 0
        self._used[:] = 0
        self._slot_of.clear()
        self._session = [None] * len(self._session)

    def swap(self, left: np.ndarray, right: np.ndarray) -> None:
        """Exchange the contents of slots ``left`` and ``right``, pair by pair."""
        both, other = np.concatenate((left, right)), np.concatenate((right, left))
        for array in (self.ids, self.length, self._open, self._used):
            array[both] = array[other]
        names = [self._session[slot] for slot in other]
        for slot, name in zip(both.tolist(), names, strict=True):
            self._session[slot] = name
            if name is not None:
                self._slot_of[name] = slot

    def _source(
        self, ids: Ints, own: int | None, same: dict[bytes, int], waves: Index
    ) -> tuple[int, int]:
        """The slot that shares the longest prefix with ``ids``, and its length (-1, 0 for none)."""
        last = len(ids) - 1
        if own is not None and self.length[own] and self._shared(own, ids) == self.length[own]:
            return own, int(self.length[own])
        twin = same.get(ids.tobytes())
        donor, start = (twin, last) if twin is not None else self._longest(ids[:last], waves)
        if own is not None and self._shared(own, ids) >= start:
            donor, start = own, self._shared(own, ids)
        return (donor, start) if donor == own or start >= _WORTH_COPYING else (-1, 0)

    def _shared(self, slot: int, ids: Ints) -> int:
        """Number of leading tokens of ``ids`` in ``slot``; the last one is never counted."""
        reach = min(int(self.length[slot]), len(ids) - 1)
        differs = np.flatnonzero(self.ids[slot, :reach] != ids[:reach])
        return int(differs[0]) if len(differs) else reach

    def _longest(self, prefix: Ints, waves: Index) -> tuple[int, int]:
        """Like :meth:`_shared`, for the best slot of all; of equal ones, the earliest computed."""
        held = np.flatnonzero(self.length)
        if not len(held) or not len(prefix):
            return -1, 0
        differs = self.ids[held, : len(prefix)] != prefix
        first = np.where(differs.any(1), differs.argmax(1), len(prefix))
        shared = np.minimum(first, self.length[held])
        best = int(np.lexsort((waves[held], -shared))[0])
        return int(held[best]), int(shared[best])

    def _victim(self, donors: set[int]) -> int | None:
        """The slot to overwrite: an empty one, else the least recently used idle one."""
        blocked = self._open.copy()
        blocked[list(donors)] = True
        if blocked.all():
            return None
        return int(np.where(blocked, np.iinfo(np.int64).max, self._used).argmin())

    def _take(self, slot: int, ask: Ask) -> None:
        self._disown(slot)
        if ask.session is not None:
            previous = self._slot_of.get(ask.session)
            if previous is not None:
                self._session[previous] = None
            self._slot_of[ask.session] = slot
            self._session[slot] = ask.session
        self.ids[slot, : len(ask.ids)] = ask.ids
        self.length[slot] = len(ask.ids)
        self._open[slot] = True
        self._clock += 1
        self._used[slot] = self._clock

    def _disown(self, slot: int) -> None:
        name = self._session[slot]
        if name is not None and self._slot_of.get(name) == slot:
            del self._slot_of[name]
        self._session[slot] = None

    def _widen(self, width: int) -> None:
        have = self.ids.shape[1]
        if width > have:
            more = max(width, 2 * have) - have
            self.ids = np.pad(self.ids, ((0, 0), (0, more)))
