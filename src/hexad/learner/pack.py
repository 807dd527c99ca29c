"""From rows of a batch to padded micro-batches. Padding exists only here and in the forward pass.

Padding is on the right of causal rows, so that no real token can read it: no attention mask is
needed, and masks never come from token values.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from hexad.contract.faults import ContractViolation
from hexad.learner.batch import Batch
from hexad.learner.ranks import Ranks


class Sets(NamedTuple):
    """The sets that N targets were drawn from, without padding; all int64.

    ``ids`` [S] holds them one after the other, ``lengths`` [N] their sizes, ``place`` [N] where in
    ``ids`` each target itself stands.
    """

    ids: Tensor
    lengths: Tensor
    place: Tensor


@dataclass(frozen=True, slots=True)
class Micro:
    """``B`` rows padded to ``L`` input tokens, with ``N`` selected targets; all int64.

    ids [B, L]; ``select`` [N] indexes the flattened [B * L] hidden states; ``targets`` [N] are the
    token ids that they predict, one position further on; ``tokens`` [N] are the targets' places in
    the flat batch. ``sets`` is ``None`` for the full vocabulary.
    """

    ids: Tensor
    select: Tensor
    targets: Tensor
    tokens: Tensor
    sets: Sets | None = None

    def to(self, device: torch.device) -> Micro:
        """The same on another device; ``tokens`` stays where the batch is."""
        sets = None if self.sets is None else Sets(*(each.to(device) for each in self.sets))
        ids, select, targets = (x.to(device) for x in (self.ids, self.select, self.targets))
        return Micro(ids, select, targets, self.tokens, sets)


@dataclass(frozen=True, slots=True)
class Layout:
    """What packing needs of a row: ``inputs`` tokens are read, ``tokens`` are selected."""

    inputs: int
    tokens: Tensor


def layouts(batch: Batch, selected: Tensor, *, ahead: int = 1) -> dict[int, Layout]:
    """Row -> layout, for the rows with a selected token (``selected`` is bool [T]).

    ``ahead=1``: the state before a selected token is read, which predicts it; ``ahead=0``: the
    state at the token itself, whose value is that of the prefix ending with it. A row is read up to
    its last such state: nothing behind it can matter. Raises ``ContractViolation`` if the first
    token of a row is to be predicted: nothing predicts it.
    """
    tokens = selected.nonzero().squeeze(1)
    rows, counts = torch.unique_consecutive(batch.token_row[tokens], return_counts=True)
    found: dict[int, Layout] = {}
    chunks = torch.split(tokens, counts.tolist())
    for row, start, chunk in zip(rows.tolist(), batch.offsets[rows].tolist(), chunks, strict=True):
        if ahead and int(chunk[0]) == start:
            raise ContractViolation(f"row {row}: its first token is an action; nothing predicts it")
        found[row] = Layout(int(chunk[-1]) - start + 1 - ahead, chunk)
    return found


def share(lengths: Sequence[int], size: int, rank: int) -> list[int]:
    """Indices of ``lengths`` that ``rank`` of ``size`` takes: longest first, to the least loaded.

    Deterministic, and the same on every rank; together the ranks take every index once.
    """
    loads = [(0, r) for r in range(size)]
    mine: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        load, taker = heapq.heappop(loads)
        heapq.heappush(loads, (load + lengths[index], taker))
        if taker == rank:
            mine.append(index)
    return sorted(mine)


def pack(
    batch: Batch, rows: dict[int, Layout], limit: int, *, ahead: int = 1, raw: bool = False
) -> Iterator[Micro]:
    """Micro-batches of at most ``limit`` padded tokens, longest rows first; rows are never split.

    The sets that targets were drawn from come along where the batch has them, unless ``raw``:
    imitation and preference losses are over the full vocabulary. A row longer than ``limit`` is
    alone.
    """
    yield from _packed(batch, rows, [[row] for row in rows], limit, ahead, raw)


class Cut(NamedTuple):
    """How selected tokens become micro-batches; see :func:`layouts` and :func:`pack`."""

    ahead: int = 1
    raw: bool = False
    whole: bool = False
    """Keep the rows of an episode together: its ratio is made of all of them."""
    paired: bool = False
    """Keep the rows of a group together: the two sides of a pair are one term."""


PLAIN = Cut()


def dealt(
    batch: Batch, selected: Tensor, ranks: Ranks, limit: int, cut: Cut = PLAIN
) -> list[Micro]:
    """This rank's micro-batches of the rows with a ``selected`` token (bool [T])."""
    rows = layouts(batch, selected, ahead=cut.ahead)
    atoms: dict[int, list[int]] = {}
    for row in rows:
        episode = int(batch.row_episode[row])
        kept = int(batch.episode_group[episode]) if cut.paired else episode
        atoms.setdefault(kept if cut.whole or cut.paired else row, []).append(row)
    parts = list(atoms.values())
    lengths = [sum(rows[row].inputs for row in atom) for atom in parts]
    mine = [parts[i] for i in share(lengths, ranks.size, ranks.rank)]
    return list(_packed(batch, rows, mine, limit, cut.ahead, cut.raw))


def _packed(
    batch: Batch,
    rows: dict[int, Layout],
    atoms: list[list[int]],
    limit: int,
    ahead: int,
    raw: bool,
) -> Iterator[Micro]:
    """Atoms, longest row first, in micro-batches of at most ``limit`` padded tokens."""
    cut = batch.support_ids is not None and ahead == 1 and not raw
    width = {id(atom): max(rows[row].inputs for row in atom) for atom in atoms}
    waiting: list[int] = []
    widest = 0
    for atom in sorted(atoms, key=lambda atom: (-width[id(atom)], atom[0])):
        widest = widest or width[id(atom)]
        if waiting and (len(waiting) + len(atom)) * widest > limit:
            micro = _micro(batch, {row: rows[row] for row in waiting}, ahead)
            yield replace(micro, sets=_sets(batch, micro.tokens)) if cut else micro
            waiting, widest = [], width[id(atom)]
        waiting += atom
    if waiting:
        micro = _micro(batch, {row: rows[row] for row in waiting}, ahead)
        yield replace(micro, sets=_sets(batch, micro.tokens)) if cut else micro


def _micro(batch: Batch, rows: dict[int, Layout], ahead: int) -> Micro:
    width = max(layout.inputs for layout in rows.values())
    ids = torch.zeros((len(rows), width), dtype=torch.int64)
    select: list[Tensor] = []
    for line, (row, layout) in enumerate(rows.items()):
        start = int(batch.offsets[row])
        ids[line, : layout.inputs] = batch.ids[start : start + layout.inputs]
        # The state at position p - 1 predicts the token at p: the one shift there is.
        select.append(layout.tokens - start - ahead + line * width)
    tokens = torch.cat([layout.tokens for layout in rows.values()])
    return Micro(ids, torch.cat(select), batch.ids[tokens], tokens)


def _sets(batch: Batch, tokens: Tensor) -> Sets:
    """The sets of ``tokens``. Raises ``ContractViolation`` for a token that is not in its own."""
    assert batch.support_ids is not None and batch.support_edges is not None
    starts, ends = batch.support_edges[tokens], batch.support_edges[tokens + 1]
    lengths = ends - starts
    owner = torch.repeat_interleave(torch.arange(len(tokens)), lengths)
    begins = lengths.cumsum(0) - lengths
    ids = batch.support_ids[starts[owner] + torch.arange(len(owner)) - begins[owner]].long()
    hits = (ids == batch.ids[tokens][owner]).nonzero().squeeze(1)
    if not torch.equal(owner[hits], torch.arange(len(tokens))):
        missing = int((torch.bincount(owner[hits], minlength=len(tokens)) != 1).sum())
        raise ContractViolation(f"{missing} of {len(tokens)} tokens are not once in their own set")
    return Sets(ids, lengths, hits)
