"""Learning a reward model from pairs. The policy samples them and is left as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hexad.contract.episode import Episode
from hexad.learner.batch import Batch, Credit, Scores
from hexad.learner.comparison import CHOSEN, whole
from hexad.learner.minibatch import Order, index_of, minibatches
from hexad.learner.optimizer import Stepper
from hexad.learner.pack import Cut, Micro, dealt
from hexad.learner.ranks import Ranks, Single
from hexad.learner.report import NonFiniteUpdate, Statistics, UpdateReport
from hexad.learner.reward_model import FOLDER, RewardModel, ends
from hexad.policy.engine import Weights
from hexad.recipe.axes import Recipe
from hexad.update.preference import bradley_terry
from hexad.update.reduce import Index, Reduction, coefficients

if TYPE_CHECKING:
    from hexad.policy.policy import Policy

_CUT = Cut(ahead=0, paired=True)
_SHOWN = ("loss", "grad_norm", "preference/accuracy", "preference/margin")


@dataclass(slots=True)
class _Work:
    """One batch in progress. ``index``: the last action of both sides of every whole pair."""

    batch: Batch
    index: Index
    progress: float
    statistics: Statistics = field(default_factory=Statistics)
    steps: int = 0
    sides: int = 0
    train_tokens: int = 0
    forward_tokens: int = 0
    rate: float = 0.0


class RewardLearner:
    """Trains a Bradley-Terry reward model beside ``policy``. Every rank holds one, called alike.

    The head begins at zero, so the first loss is ln 2. The trunk is in evaluation mode: no dropout.
    The two sides of a pair are in one micro-batch, on one rank. ``version`` counts batches; the
    policy's weights, and so ``lineage``, never change.
    """

    def __init__(self, policy: Policy, recipe: Recipe, ranks: Ranks | None = None) -> None:
        self.policy, self.recipe = policy, recipe
        self.ranks: Ranks = ranks or Single()
        self.model = RewardModel.beside(policy)
        self.device = self.model.net.head.weight.device
        self.stepper = Stepper(self.model.net, recipe.update.optimizer)
        self.reduction = Reduction(recipe.action.denominator)
        self.version = 0
        self.lineage: str = policy.lineage()

    @property
    def steps(self) -> int:
        """Optimiser steps so far."""
        return self.stepper.steps

    def weights(self) -> Weights:
        """The sampling policy's weights."""
        return self.policy.weights()

    def rewards(self, episodes: Sequence[Episode]) -> list[float]:
        """See :meth:`RewardModel.rewards`."""
        return self.model.rewards(episodes, self.recipe.system.micro_batch_tokens)

    def save(self, folder: Path) -> None:
        """Write the sampling policy into ``folder``, and the reward model beside it."""
        self.policy.save(folder)
        self.model.save(folder.parent / FOLDER)

    def score(self, batch: Batch) -> Scores:
        """Nothing: no policy's log-prob is in the loss."""
        return Scores()

    def update(self, batch: Batch, scores: Scores, credit: Credit, progress: float) -> UpdateReport:
        """Make the batch's optimiser steps. ``progress`` in [0, 1] is the used share of the budget.

        A pair that lost a side (to admission, or to weights of 0) is in no term. Raises
        ``ContractViolation`` when no pair is left, ``NonFiniteUpdate`` before a step on a loss or
        gradient that is not finite.
        """
        weighed = torch.zeros(len(batch.episodes), dtype=torch.bool)
        weighed[batch.token_episode[batch.action & (batch.weight > 0)]] = True
        valid = ends(batch, weighed & credit.counted)
        index = index_of(batch, valid & whole(batch, valid))
        work = _Work(batch, replace(index, weight=torch.ones(len(valid))), progress)
        update = self.recipe.update
        order = Order(self.recipe.run.seed, self.version, update.epochs, update.minibatches)
        for part in minibatches(work.index, order):
            self._step(work, part)
        self.version += 1
        return self._report(work)

    def _step(self, work: _Work, part: Tensor) -> None:
        """One optimiser step on whole pairs: the sides that end at the tokens ``part`` (bool [T]).

        Its loss and gradient are sums over micro-batches and ranks: coefficients are global.
        """
        factor = torch.zeros(len(part), dtype=torch.float64)
        factor[part] = coefficients(work.index.take(part), self.reduction)
        self.stepper.zero()
        total = torch.zeros(1, dtype=torch.float64)
        limit = self.recipe.system.micro_batch_tokens
        for micro in dealt(work.batch, part, self.ranks, limit, _CUT):
            loss = self._loss(work, micro, factor)
            torch.autograd.backward(loss)
            total += loss.detach().cpu()
        self.ranks.sum_([total])
        self.ranks.sum_(self.stepper.gradients())
        norm = self.stepper.norm()
        if not (torch.isfinite(total).all() and torch.isfinite(norm)):
            raise NonFiniteUpdate(
                f"reward model step {self.steps} (batch {self.version}): loss {float(total):g}, "
                f"gradient norm {float(norm):g}; the weights were not stepped: "
                "lower update.optimizer.lr, or set its clip_norm"
            )
        work.rate = self.stepper.step(norm, work.progress)
        work.steps += 1
        seen = torch.isin(work.index.row, torch.unique(work.index.row[part]))
        work.sides += int(part.sum())
        work.train_tokens += int((seen & work.batch.action).sum())
        work.forward_tokens += int(seen.sum())
        work.statistics.shared("loss", total)
        work.statistics.shared("grad_norm", norm)

    def _loss(self, work: _Work, micro: Micro, factor: Tensor) -> Tensor:
        """The weighted sum of the pairs of one micro-batch."""
        moved, tokens = micro.to(self.device), micro.tokens
        reward = self.model.net(moved.ids, moved.select).squeeze(-1).double()
        owner, pair = work.index.episode[tokens], work.index.group[tokens]
        good = torch.tensor([work.batch.episodes[e].member == CHOSEN for e in owner.tolist()])
        first, second = (torch.nonzero(side).squeeze(1) for side in (good, ~good))
        first, second = (side[pair[side].argsort()] for side in (first, second))
        weight = factor[tokens[first]] + factor[tokens[second]]
        margin = reward[first.to(self.device)] - reward[second.to(self.device)]
        note = work.statistics.local
        note("preference/chosen", reward[first.to(self.device)])
        note("preference/rejected", reward[second.to(self.device)])
        note("preference/margin", margin)
        note("preference/accuracy", (margin > 0).double())
        return (weight.to(self.device) * bradley_terry(margin)).sum()

    def _report(self, work: _Work) -> UpdateReport:
        tallies = work.statistics.tallies(self.ranks)
        means = {name: tallies[name].mean for name in _SHOWN if name in tallies}
        return UpdateReport(
            optimizer_steps=work.steps,
            loss_tokens=work.sides,
            train_tokens=work.train_tokens,
            forward_tokens=work.forward_tokens,
            skipped_rows=0,
            stopped=False,
            tallies=tallies,
            scalars={n: m for n, m in means.items() if m is not None} | {"lr": work.rate},
        )

    # -- state -------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """A copy of everything a resume needs, the reward model's weights included."""
        own = {"version": self.version, "lineage": self.lineage, "measured": self.model.measured}
        return {**own, **self.stepper.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken.

        Raises ``UserError`` when the policy that samples is another than when the run began.
        """
        self.policy.require_lineage(state["lineage"])
        self.stepper.restore(state)
        self.version, self.model.measured = state["version"], state["measured"]
