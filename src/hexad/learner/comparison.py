"""One update on preferences in progress: sides, terms, and what is told of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from hexad.learner.batch import Batch
from hexad.learner.ranks import Ranks
from hexad.learner.report import Statistics, UpdateReport
from hexad.recipe.preference_axis import PreferenceSpec
from hexad.update import preference
from hexad.update.reduce import Index

CHOSEN, REJECTED = 0, 1
"""Members of a pair. With KTO: desirable, undesirable."""
_SHOWN = (
    "loss",
    "grad_norm",
    "preference/accuracy",
    "preference/margin",
    "preference/displacement",
)


@dataclass(slots=True)
class Comparison:
    """``share`` float64 [T]: what each token counts for in the score of its side. ``reference``
    [T]: its log-prob under the reference, 0 for a loss without one. ``term`` int64 [T] numbers the
    terms of the loss: pairs, or episodes. ``other``: KTO's answers under prompts of other tasks,
    with their reference log-probs.
    """

    batch: Batch
    index: Index
    share: Tensor
    reference: Tensor
    term: Tensor
    progress: float
    other: tuple[Batch, Tensor] | None = None
    statistics: Statistics = field(default_factory=Statistics)
    steps: int = 0
    loss_tokens: int = 0
    train_tokens: int = 0
    forward_tokens: int = 0
    rate: float = 0.0

    def sides(
        self, tokens: Tensor, current: Tensor, factor: Tensor, reduce: preference.Reduce
    ) -> Sides:
        """The sides that ``tokens`` [N] of whole terms make; ``current`` [N] is their log-prob,
        ``factor`` float64 [T] each token's share in the denominator.
        """
        place = current.device
        log = current.double() - self.reference[tokens].to(place, torch.float64)
        episodes, owner = torch.unique(self.index.episode[tokens], return_inverse=True)
        member = torch.tensor([self.batch.episodes[e].member for e in episodes.tolist()])
        number = self.batch.episode_group[episodes]
        first, second = (torch.nonzero(member == m).squeeze(1) for m in (CHOSEN, REJECTED))
        units, unit = torch.unique(self.term[tokens], return_inverse=True)
        weight = torch.zeros(len(units), dtype=torch.float64).index_add(0, unit, factor[tokens])
        own, count = owner.to(place), len(episodes)
        plain = self.index.weight[tokens]
        return Sides(
            score=preference.scores(log, own, self.share[tokens], count, reduce),
            moved=preference.scores(log, own, plain, count, "sum"),
            likelihood=preference.scores(current, own, plain, count, "mean"),
            desirable=(member == CHOSEN).to(place),
            chosen=first[number[first].argsort()].to(place),
            rejected=second[number[second].argsort()].to(place),
            weight=weight.to(place),
            gap=log.detach().abs().sum().cpu(),
        )

    def observe(self, sides: Sides, margin: Tensor | None, spec: PreferenceSpec) -> None:
        """Tally rewards, margins and the displacement of the chosen side.

        A reward is ``beta`` times a side's score; ``displacement`` is the change of the chosen
        side's summed log-prob since the reference: it may fall while the margin grows.
        """
        note, score = self.statistics.local, spec.beta * sides.score.detach()
        note("preference/chosen", score[sides.desirable])
        note("preference/rejected", score[~sides.desirable])
        note("preference/displacement", sides.moved.detach()[sides.desirable])
        note("nll", -sides.likelihood.detach()[sides.desirable])
        if margin is not None:
            won = margin.detach()
            note("preference/margin", spec.beta * won)
            note("preference/accuracy", (won > 0).double())

    def report(self, ranks: Ranks) -> UpdateReport:
        """The end of it. Collective."""
        tallies = self.statistics.tallies(ranks)
        means = {name: tallies[name].mean for name in _SHOWN if name in tallies}
        scalars = {name: mean for name, mean in means.items() if mean is not None}
        return UpdateReport(
            optimizer_steps=self.steps,
            loss_tokens=self.loss_tokens,
            train_tokens=self.train_tokens,
            forward_tokens=self.forward_tokens,
            skipped_rows=0,
            stopped=False,
            tallies=tallies,
            scalars=scalars | {"lr": self.rate},
        )


class Sides(NamedTuple):
    """S sides of P terms. ``score``, ``moved`` (summed log-ratio) and ``likelihood`` (mean
    log-prob) float64 [S]; ``desirable`` bool [S]; ``chosen`` and ``rejected`` int64 [P] index the
    sides of each pair; ``weight`` float64 [P] is its share in the loss; ``gap`` sums
    ``|log pi - log ref|`` over tokens.
    """

    score: Tensor
    moved: Tensor
    likelihood: Tensor
    desirable: Tensor
    chosen: Tensor
    rejected: Tensor
    weight: Tensor
    gap: Tensor


def shares(index: Index, spec: PreferenceSpec) -> Tensor:
    """float64 [T]: what each token counts for in the score of its side; 0 where not valid."""
    share = torch.zeros(len(index.valid), dtype=torch.float64)
    inside = index.take(index.valid)
    found = inside.weight.double()
    if spec.excess is not None:
        found = found * preference.beyond(inside.episode, inside.group, spec.excess)
    if spec.decay is not None:
        found = found * preference.decayed(inside.episode, _turns(inside), spec.decay)
    share[index.valid] = found
    return share


def _turns(inside: Index) -> Tensor:
    """int64 [N]: the turn of each token, counted from the first one that its side weighs."""
    owner = torch.unique(inside.episode, return_inverse=True)[1]
    first = torch.zeros(int(owner.max()) + 1, dtype=inside.turn.dtype)
    first = first.scatter_reduce(0, owner, inside.turn, "amin", include_self=False)
    return inside.turn - first[owner]


def whole(batch: Batch, valid: Tensor) -> Tensor:
    """bool [T]: of a pair whose two sides, and nobody else, have a ``valid`` (bool [T]) token."""
    live = torch.unique(batch.token_episode[valid])
    places = [(int(batch.episode_group[e]), batch.episodes[e].member) for e in live.tolist()]
    kept = [g for g in {g for g, _ in places} if {(g, CHOSEN), (g, REJECTED)} <= set(places)]
    groups = batch.episode_group[batch.token_episode]
    return torch.isin(groups, torch.tensor(kept, dtype=torch.int64))
