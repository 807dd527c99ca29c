"""What a batch says of the critic: values from before any update against realised returns."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from hexad.contract.events import CriticJudged, CriticSlice
from hexad.contract.tally import Tally
from hexad.credit.clock import Clock
from hexad.credit.reward_to_go import reward_to_go
from hexad.learner.batch import Batch

VALUE_WIDTH = 0.1
"""Width of a bin of values in the calibration table."""


def judge(
    batch: Batch, steps: Clock, value: Tensor, *, gamma: float, counts: tuple[int, int, int]
) -> CriticJudged:
    """Compare ``value`` [T] with the discounted return that followed each clock step.

    Only terminated episodes have a realised return: what a truncated one would still have been paid
    is unknown, so its steps are in no slice, and its value at the cut is tallied apart. ``counts``
    are the critic's updates and optimiser steps, and the policy's steps since the last update.
    """
    realised = reward_to_go(steps, gamma=gamma)
    known = steps.terminated[steps.episode]
    at = value[steps.decision].to(torch.float64)
    slices: dict[str, CriticSlice] = {}
    for name, chosen in _families(batch, steps, at):
        chosen = chosen & known
        if bool(chosen.any()):
            slices[name] = _slice(at[chosen], realised[chosen])
    cut = steps.last & steps.truncated[steps.episode] & (steps.successor >= 0)
    behind = value[steps.successor[cut]].to(torch.float64)
    batches, taken, since = counts
    return CriticJudged(
        batches,
        slices=slices,
        bootstrapped=int(cut.sum()),
        missing=int(steps.missing.sum()),
        cut=Tally.of(behind.numpy()),
        batches=batches,
        steps=taken,
        behind=since,
    )


def _slice(value: Tensor, realised: Tensor) -> CriticSlice:
    return CriticSlice(
        Tally.of(value.numpy()), Tally.of(realised.numpy()), Tally.of((value - realised).numpy())
    )


def _families(batch: Batch, steps: Clock, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Names and bool [M]: which steps a slice holds."""
    yield "all", torch.ones_like(steps.last)
    first = torch.ones_like(steps.last)
    first[1:] = steps.episode[1:] != steps.episode[:-1]
    yield "first", first
    for name, of in (("horizon", _octaves(steps)), ("value", _bins(value))):
        for label in dict.fromkeys(of):
            yield f"{name} {label}", torch.tensor([other == label for other in of])
    endings = [str(episode.ending.kind) for episode in batch.episodes]
    for kind in dict.fromkeys(endings):
        mine = torch.tensor([other == kind for other in endings])
        yield f"ending {kind}", mine[steps.episode]
    version = batch.version[steps.first]
    for number in torch.unique(version).tolist():
        yield f"version {number}", version == number


def _octaves(steps: Clock) -> list[str]:
    """Clock steps that are left, the step itself included, by powers of two: 1, 2-3, 4-7, ..."""
    starts = torch.cumsum(steps.lengths, 0) - steps.lengths
    place = torch.arange(len(steps.episode)) - starts[steps.episode]
    left = steps.lengths[steps.episode] - place
    lows = [1 << int(math.log2(n)) for n in left.tolist()]
    return [f"{low}-{2 * low - 1}" if low > 1 else "1" for low in lows]


def _bins(value: Tensor) -> list[str]:
    return [f"{number * VALUE_WIDTH:.1f}" for number in (value / VALUE_WIDTH).floor().tolist()]
