"""Staleness by bucket: how a batch's statistics differ by version lag, queue age and length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hexad.contract.mix import labels
from hexad.learner.batch import Batch, Scores
from hexad.learner.ranks import Ranks
from hexad.update import ratio
from hexad.update.reduce import Index

LAGS = (0, 1, 2, 4, 8, 16)
"""Lower ends of the buckets of versions between sampling and learning; the last is open."""
AGES = (0, 1, 4, 16, 64, 256)
"""The same of seconds between an episode's end and its batch."""
LENGTHS = (0, *(1 << n for n in range(4, 13)))
"""The same of an episode's action tokens."""


@dataclass(slots=True)
class Last:
    """What the last step that read a token saw of it, all float64 [T], 0 where nothing did.

    ``current`` is its log-prob, ``outside`` 1 where a bound or gate acted, ``read`` 1 where a step
    of this rank read it.
    """

    current: Tensor
    outside: Tensor
    read: Tensor

    @classmethod
    def of(cls, tokens: int) -> Last:
        """Nothing seen."""
        return cls(*(torch.zeros(tokens, dtype=torch.float64) for _ in range(3)))

    def gather(self, ranks: Ranks) -> None:
        """Add up what every rank read of its own rows. Collective, once, after the last step."""
        for each in (self.current, self.outside, self.read):
            ranks.sum_([each])

    def begin(self, part: Tensor) -> None:
        """A step on ``part`` (bool [T]) begins: what an earlier one saw of it does not count."""
        for values in (self.current, self.outside, self.read):
            values[part] = 0.0

    def see(self, tokens: Tensor, current: Tensor, outside: Sequence[Tensor] | None) -> None:
        """A micro-batch's ``tokens`` [N]: their log-probs, and flags of either side."""
        self.current[tokens] = current.detach().cpu().double()
        if outside is not None:
            self.outside[tokens] = (outside[0] | outside[1]).cpu().double()
        self.read[tokens] = 1.0


@dataclass(frozen=True, slots=True)
class View:
    """A batch after its steps. ``lag`` and ``length`` int64 [T], ``advantage`` float64 [T]."""

    batch: Batch
    index: Index
    scores: Scores
    advantage: Tensor
    lag: Tensor
    length: Tensor


def values(view: View, last: Last) -> dict[str, Tensor]:
    """Values to be tallied by name; ``last`` is gathered.

    ``bucket/FAMILY_LOW/NAME`` with the families ``lag``, ``age`` and ``length``: of each accepted
    token ``advantage``, and where the policy had a choice ``log_ratio_update`` (rows that a step
    read), ``log_ratio_direct``, ``log_ratio_engine``, ``kl`` (k3 of direct) and ``outside``; of
    each episode ``reward``, ``weight`` (the product of its direct ratios, at most e^20) and
    ``prefix_weight`` (that up to the end of each turn). A row that no step read counts by ``old``,
    where that is the learner's own. An episode's lag is that of its oldest accepted token. Names
    without a value are absent, and so is an age that nobody knows.

    ``mix/accepted/LABEL`` and ``mix/fresh/LABEL``: flags of the episodes in the loss, and of those
    among them without lag.
    """
    count = len(view.batch.episodes)
    valid = view.index.valid
    oldest = torch.full((count,), -1, dtype=torch.int64)
    episode = view.index.episode
    oldest.scatter_reduce_(0, episode[valid], view.lag[valid], "amax")
    length = torch.zeros(count, dtype=torch.int64).scatter_(0, episode, view.length)
    tokens, whole = _of_tokens(view, last), _of_episodes(view, last, oldest >= 0)
    found: dict[str, Tensor] = {}
    families = (
        ("lag", view.lag, oldest, LAGS),
        ("age", view.batch.age[episode], view.batch.age, AGES),
        ("length", view.length, length, LENGTHS),
    )
    for family, by_token, by_episode, edges in families:
        places = (_place(by_token, edges), _place(by_episode, edges))
        for number, low in enumerate(edges):
            for (name, numbers, mask), unit in (
                *((t, 0) for t in tokens),
                *((w, 1) for w in whole),
            ):
                chosen = mask & (places[unit][:, *([None] * (mask.dim() - 1))] == number)
                if bool(chosen.any()):
                    found[f"bucket/{family}_{low}/{name}"] = numbers[chosen]
    return found | dict(_mix(view.batch, oldest))


def _place(numbers: Tensor, edges: Sequence[int]) -> Tensor:
    """The number of each one's bucket; -1 below the first edge, and for NaN."""
    bounds = torch.tensor(edges, dtype=numbers.dtype)
    place = torch.bucketize(numbers, bounds, right=True) - 1
    return torch.where(numbers == numbers, place, -1)


Named = tuple[str, Tensor, Tensor]
"""A statistic's name, its values, and bool: where it has one."""


def _of_tokens(view: View, last: Last) -> list[Named]:
    batch, scores, valid = view.batch, view.scores, view.index.valid
    free = valid & ~batch.forced
    direct, known = _direct(view, last, free)
    read = free & (last.read > 0)
    found = [("advantage", view.advantage, valid), ("log_ratio_direct", direct, known)]
    found += [("kl", ratio.k3(direct), known), ("outside", last.outside, read)]
    if scores.old is not None:
        moved = ratio.update(current=last.current, old=scores.old.logprob, mask=read)
        found.append(("log_ratio_update", moved, read))
    if scores.sampled is not None:
        said = free & scores.sampled.logprob.isfinite()
        gap = ratio.engine(sampled=scores.sampled.logprob, behaviour=batch.behaviour, mask=said)
        found.append(("log_ratio_engine", gap, said))
    return found


def _of_episodes(view: View, last: Last, counted: Tensor) -> list[Named]:
    """Per episode [E], and the prefix products per episode and turn [E, K]."""
    batch, free = view.batch, view.index.valid & ~view.batch.forced
    direct, known = _direct(view, last, free)
    episode = view.index.episode
    gaps = torch.zeros(len(counted), dtype=torch.int64)
    gaps.index_add_(0, episode, (free & ~known).long())
    whole = counted & (gaps == 0)
    shape = (len(counted), int(batch.turn.max()) + 1)
    place = episode * shape[1] + batch.turn.clamp(min=0)
    sums, acts = (torch.zeros(shape[0] * shape[1], dtype=torch.float64) for _ in range(2))
    sums.index_add_(0, place, torch.where(free, direct.double(), 0.0))
    acts.index_add_(0, place, view.index.valid.double())
    logs, acted = sums.view(shape).cumsum(1), acts.view(shape) > 0
    return [
        ("reward", batch.score, counted & batch.score.isfinite()),
        ("weight", ratio.ratio(logs[:, -1]), whole),
        ("prefix_weight", ratio.ratio(logs), acted & whole[:, None]),
    ]


def _direct(view: View, last: Last, free: Tensor) -> tuple[Tensor, Tensor]:
    """log current / behaviour, and where it is known."""
    old = view.scores.old
    current, known = last.current, last.read > 0
    if old is not None and old.own:
        current, known = torch.where(known, current, old.logprob.double()), torch.ones_like(known)
    known = known & free
    return ratio.direct(current=current, behaviour=view.batch.behaviour, mask=known), known


def _mix(batch: Batch, oldest: Tensor) -> Iterator[tuple[str, Tensor]]:
    kinds = [labels(episode) for episode in batch.episodes]
    for name, chosen in (("accepted", oldest >= 0), ("fresh", oldest == 0)):
        picked = [kinds[i] for i in chosen.nonzero().flatten().tolist()]
        for label in sorted({label for each in picked for label in each}):
            yield f"mix/{name}/{label}", torch.tensor([label in each for each in picked])
