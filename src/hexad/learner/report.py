"""What one update did, reduced from sums and counts over micro-batches, steps and ranks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor

from hexad.contract.tally import Tally
from hexad.learner.buckets import Last
from hexad.learner.ranks import Ranks


class NonFiniteUpdate(Exception):
    """A step had a NaN or infinite loss or gradient and was not made (exit code 1)."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """The learner's numbers of every token [T], float64, NaN where there is none.

    ``ratio``: current / behaviour by the last step that read the token. ``advantage``: as it
    entered the loss.
    """

    ratio: Tensor
    advantage: Tensor

    @classmethod
    def of(cls, last: Last, behaviour: Tensor, advantage: Tensor, valid: Tensor) -> Trace:
        """What ``last`` has seen, beside ``behaviour``; only ``valid`` (bool [T]) tokens count."""
        seen = valid & (last.read > 0)
        ratio = torch.where(seen, (last.current - behaviour.double()).exp(), torch.nan)
        return cls(ratio, torch.where(valid, advantage.double(), torch.nan))


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """Counts are of all ranks.

    ``loss_tokens``: tokens in a denominator. ``train_tokens``: action tokens of rows that went
    through a backward pass. ``forward_tokens``: all tokens of rows that went through a forward
    pass, scoring included. ``skipped_rows``: rows whose gradient is exactly zero and whose backward
    pass was skipped. All are counted once an epoch. ``stopped``: ``target_kl`` ended the batch.
    ``roles`` maps a policy role to the ``version:digest`` that played it. ``scalars`` holds
    ``loss`` and ``grad_norm`` (means over optimiser steps), ``lr`` (of the last step) and ``kl``
    (mean of k3 over action tokens); a number that was not measured is absent. ``trace`` is there
    for the batches that ``run.traces`` keeps.
    """

    optimizer_steps: int
    loss_tokens: int
    train_tokens: int
    forward_tokens: int
    skipped_rows: int
    stopped: bool
    roles: Mapping[str, str] = field(default_factory=dict)
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    trace: Trace | None = field(default=None, compare=False)


class Statistics:
    """Collects values by name. ``local`` values are this rank's, ``shared`` are every rank's."""

    def __init__(self) -> None:
        self._local: dict[str, list[Tensor]] = {}
        self._shared: dict[str, list[Tensor]] = {}

    def local(self, name: str, values: Tensor) -> None:
        """Values that this rank has computed of its own rows."""
        self._local.setdefault(name, []).append(values.detach().reshape(-1).cpu())

    def shared(self, name: str, values: Tensor) -> None:
        """Values that every rank holds alike: counted once."""
        self._shared.setdefault(name, []).append(values.detach().reshape(-1).cpu())

    def tallies(self, ranks: Ranks) -> dict[str, Tally]:
        """One tally a name, merged over ranks; names without a value are absent. Collective."""
        merged = {name: _tally(parts) for name, parts in self._shared.items()}
        mine = {name: asdict(_tally(parts)) for name, parts in self._local.items()}
        for data in ranks.gather(json.dumps(mine).encode()):
            for name, fields in json.loads(data).items():
                merged[name] = merged.get(name, Tally()) + _read(fields)
        return {name: tally for name, tally in sorted(merged.items()) if tally.count}


def _tally(parts: list[Tensor]) -> Tally:
    return Tally.of(torch.cat(parts).to(torch.float64).numpy())


def _read(fields: dict[str, object]) -> Tally:
    raw = fields.pop("bins")
    assert isinstance(raw, list)
    bins = tuple(((int(s), int(i)), int(count)) for (s, i), count in raw)
    return Tally(**fields, bins=bins)  # type: ignore[arg-type]
