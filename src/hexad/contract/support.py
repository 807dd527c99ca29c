"""The sets that sampled tokens were drawn from, where sampling cuts the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hexad.contract.arrays import Bools, Ints, frozen, same_bits

Offsets = npt.NDArray[np.int64]
MAX_SUPPORT = 4096
"""Most ids that the set of one token may hold; what could hold more is refused beforehand."""


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """One set of token ids for each of ``n`` tokens, read-only.

    ``ids`` int32 ``[S]`` holds all sets one after the other, each ascending; the set of token ``t``
    is ``ids[offsets[t] : offsets[t + 1]]``, with ``offsets`` int64 ``[n + 1]``. It is empty where
    the policy did not sample. Log-probs of every policy role are normalised over this set. Raises
    ``ValueError`` unless the offsets cut ``ids`` into pieces.
    """

    ids: Ints
    offsets: Offsets

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", frozen(self.ids, np.int32))
        object.__setattr__(self, "offsets", frozen(self.offsets, np.int64))
        edges = self.offsets
        whole = len(edges) > 0 and edges[0] == 0 and edges[-1] == len(self.ids)
        if not whole or bool((np.diff(edges) < 0).any()):
            raise ValueError(f"offsets {edges} do not cut {len(self.ids)} ids into sets")

    @classmethod
    def of(cls, sets: Sequence[npt.ArrayLike]) -> Support:
        """The support whose token ``t`` has ``sets[t]``."""
        each = [np.asarray(ids, np.int32) for ids in sets]
        edges = np.cumsum([0, *(len(ids) for ids in each)])
        return cls(np.concatenate([np.zeros(0, np.int32), *each]), edges)

    @classmethod
    def empty(cls, count: int) -> Support:
        """``count`` tokens that were not sampled."""
        return cls(np.zeros(0, np.int32), np.zeros(count + 1, np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Support]) -> Support:
        """The tokens of all ``parts`` in order."""
        counts = [part.counts for part in parts]
        ids = [part.ids for part in parts]
        edges = np.cumsum(np.concatenate([np.zeros(1, np.int64), *counts]))
        return cls(np.concatenate([np.zeros(0, np.int32), *ids]), edges)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Support):
            return NotImplemented
        return same_bits(self.ids, other.ids) and same_bits(self.offsets, other.offsets)

    __hash__ = None  # type: ignore[assignment]

    @property
    def counts(self) -> Offsets:
        """int64 ``[n]``: size of each token's set."""
        return np.diff(self.offsets)

    @property
    def forced(self) -> Bools:
        """bool ``[n]``: the set has one id, so nothing was decided."""
        forced: Bools = self.counts == 1
        return forced

    @property
    def owner(self) -> Offsets:
        """int64 ``[S]``: the token that each of ``ids`` belongs to."""
        return np.repeat(np.arange(len(self)), self.counts)

    def holds(self, tokens: Ints) -> Bools:
        """bool ``[n]``: whether ``tokens[t]`` (int32 ``[n]``) is in the set of ``t``."""
        owner = self.owner
        found = np.zeros(len(self), np.bool_)
        found[owner[self.ids == tokens[owner]]] = True
        return found

    def ordered(self) -> Bools:
        """bool ``[n]``: the set ascends strictly and names no negative id."""
        owner, ids = self.owner, self.ids
        wrong = owner[ids < 0]
        falls = (ids[1:] <= ids[:-1]) & (owner[1:] == owner[:-1])
        good = np.ones(len(self), np.bool_)
        good[np.concatenate([wrong, owner[1:][falls]])] = False
        return good
