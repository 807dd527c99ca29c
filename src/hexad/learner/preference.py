"""Learning from preferences: pairs of episodes become optimiser steps, or single ones with KTO.

A pair is a group of two episodes: member 0 is the chosen side, member 1 the rejected one. KTO reads
single episodes: member 0 is desirable, member 1 is not.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hexad.contract.faults import ContractViolation, UserError
from hexad.learner.batch import Batch, Credit, RoleScore, Scores
from hexad.learner.comparison import Comparison, Sides, shares, whole
from hexad.learner.learner import WriteLease
from hexad.learner.minibatch import Order, index_of, minibatches
from hexad.learner.mismatch import mismatched
from hexad.learner.optimizer import Stepper
from hexad.learner.pack import Cut, Micro, dealt
from hexad.learner.ranks import Ranks, Single
from hexad.learner.report import NonFiniteUpdate, UpdateReport
from hexad.learner.root import Root
from hexad.policy.adapter import copied, load, moving
from hexad.policy.engine import Weights
from hexad.recipe.axes import Recipe
from hexad.update import preference
from hexad.update.preference import LOSSES, Loss
from hexad.update.reduce import Reduction, coefficients

if TYPE_CHECKING:
    from hexad.policy.policy import Policy

_CUT = Cut(raw=True, paired=True)
_REFERENCE = "reference/"
_FRESH = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 0.1}
"""Largest mean gap a token, in nats, between two forward passes of equal weights."""


class PreferenceLearner:
    """Trains ``policy`` on preferences. Every rank holds one, and calls it alike.

    The reference is a frozen copy of the policy that the run starts with, or with
    ``data.rounds.reference: round_start`` of the one that each round starts with; both are in
    evaluation mode, so there is no dropout. Its log-probs are scored once a batch, before the first
    step, and held through all epochs. Log-probs are raw: temperature 1, the whole vocabulary. The
    two sides of a pair are in one micro-batch, on one rank.

    ``lease`` (settable) guards the weights where an engine is bound to them.
    """

    def __init__(
        self,
        policy: Policy,
        recipe: Recipe,
        ranks: Ranks | None = None,
        lease: WriteLease | None = None,
    ) -> None:
        assert recipe.update.preference is not None
        self.policy, self.recipe, self.spec = policy, recipe, recipe.update.preference
        self.ranks: Ranks = ranks or Single()
        self.lease = lease
        self.loss: Loss = LOSSES[recipe.update.surrogate]
        self.numbers: dict[str, float] = self.spec.model_dump(
            include=set(self.loss.numbers), exclude_none=True
        )
        self.reduction = Reduction(recipe.action.denominator)
        self.root = Root(policy.model).eval()
        self.device = next(self.root.parameters()).device
        self.stepper = Stepper(policy.model, recipe.update.optimizer)
        self.version = 0
        self.lineage: str = policy.lineage()
        self.anchor, self.since = self.lineage, 0
        """Digest of the reference's weights, and the version that had them."""
        rounds = recipe.data.rounds
        self.follows = rounds is not None and rounds.reference == "round_start"
        self.reference: Root | None = None
        if self.loss.reference:
            self.reference = Root(copied(policy.model)).eval().requires_grad_(False)

    @property
    def steps(self) -> int:
        """Optimiser steps so far; ``version`` counts completed batches."""
        return self.stepper.steps

    def weights(self) -> Weights:
        """What the steps change of the model: live tensors, not a copy."""
        return self.policy.weights()

    def begin_round(self) -> None:
        """A round of data begins: its reference is the present policy, where the recipe says so."""
        if self.follows and self.reference is not None:
            load(self.reference.model, self.policy.weights())
            self.anchor, self.since = self.lineage, self.version

    # -- score -------------------------------------------------------------------------------

    def score(self, batch: Batch) -> Scores:
        """The reference's log-probs of every action; empty for a loss without a reference."""
        if self.reference is None:
            return Scores()
        logprob = self._evaluate(batch, self.reference, batch.action)
        forward = len(batch.ids)
        role = RoleScore(logprob, self.since, self.anchor, forward=forward, own=False)
        return Scores(reference=role)

    @torch.no_grad()
    def _evaluate(self, batch: Batch, root: Root, selected: Tensor) -> Tensor:
        """Raw log-probs [T] of the ``selected`` tokens, NaN elsewhere, on every rank."""
        dtype = torch.promote_types(self.policy.model.dtype, torch.float32)
        found = torch.zeros(len(batch.ids), dtype=dtype)
        for micro in self._micros(batch, selected):
            found[micro.tokens] = self._forward(micro, root).cpu()
        self.ranks.sum_([found])
        return torch.where(selected, found, torch.nan)

    # -- update ------------------------------------------------------------------------------

    def update(self, batch: Batch, scores: Scores, credit: Credit, progress: float) -> UpdateReport:
        """Make the batch's optimiser steps. ``progress`` in [0, 1] is the used share of the budget.

        A pair that lost a side (to admission, or to weights of 0) is in no term. Raises
        ``ContractViolation`` when no term is left, when the reference was not scored, or is not the
        policy that the run starts with; ``NonFiniteUpdate`` before a step on a loss or gradient
        that is not finite.
        """
        work = self._begin(batch, scores, credit, progress)
        update = self.recipe.update
        order = Order(self.recipe.run.seed, self.version, update.epochs, update.minibatches)
        for part in minibatches(work.index, order):
            self._step(work, part)
        self.version += 1
        self.lineage = self.policy.lineage()
        return work.report(self.ranks)

    def _begin(self, batch: Batch, scores: Scores, credit: Credit, progress: float) -> Comparison:
        valid = batch.action & (batch.weight > 0) & credit.counted[batch.token_episode]
        if self.loss.paired:
            valid = valid & whole(batch, valid)
        index = index_of(batch, valid)
        reference = torch.zeros(len(batch.ids), dtype=torch.float64)
        if scores.reference is not None:
            reference = scores.reference.logprob
        elif self.reference is not None:
            raise ContractViolation("`reference` is missing: score the batch first")
        term = index.group if self.loss.paired else index.episode
        work = Comparison(batch, index, shares(index, self.spec), reference, term, progress)
        work.forward_tokens = 0 if scores.reference is None else scores.reference.forward
        if not self.loss.paired:
            self._mismatch(work, credit.counted)
        lengths = torch.bincount(index.episode[valid])
        work.statistics.shared("length/action_tokens", lengths[lengths > 0])
        return work

    def _mismatch(self, work: Comparison, counted: Tensor) -> None:
        """Pair the batch's prompts with answers of other tasks, once, and score the reference."""
        assert self.reference is not None
        other = mismatched(work.batch, counted, self.recipe.task.limits.context_tokens)
        if other is not None:
            work.other = other, self._evaluate(other, self.reference, other.action)
            work.forward_tokens += len(other.ids)

    def _baseline(self, work: Comparison) -> Tensor:
        """KTO's z at the present weights, of the whole batch."""
        if work.other is None:
            return preference.mismatch(torch.zeros(0))
        batch, reference = work.other
        log = self._evaluate(batch, self.root, batch.action) - reference
        acted, count = batch.action, len(batch.episodes)
        found = preference.scores(
            log[acted], batch.token_episode[acted], batch.weight[acted], count, "sum"
        )
        work.forward_tokens += len(batch.ids)
        work.statistics.shared("preference/mismatch", found)
        return preference.mismatch(found)

    def _step(self, work: Comparison, part: Tensor) -> None:
        """One optimiser step on the tokens ``part`` (bool [T]) of whole terms.

        Its loss and gradient are sums over micro-batches and ranks: coefficients are global.
        """
        factor = torch.zeros(len(part), dtype=torch.float64)
        factor[part] = coefficients(work.index.take(part), self.reduction)
        baseline = None if self.loss.paired else self._baseline(work)
        self.stepper.zero()
        totals = torch.zeros(2, dtype=torch.float64)
        for micro in self._micros(work.batch, part):
            current = self._forward(micro, self.root)
            sides = work.sides(micro.tokens, current, factor, self.spec.reduction)
            loss = self._loss(work, sides, baseline)
            torch.autograd.backward(loss)
            totals += torch.stack([loss.detach().cpu(), sides.gap])
        self.ranks.sum_([totals])
        self.ranks.sum_(self.stepper.gradients())
        if work.steps == 0 and self.anchor == self.lineage:
            self._require_fresh(float(totals[1]) / int(part.sum()))
        norm = self.stepper.norm()
        if not (torch.isfinite(totals).all() and torch.isfinite(norm)):
            raise NonFiniteUpdate(
                f"optimiser step {self.steps} (batch {self.version}): loss {float(totals[0]):g}, "
                f"gradient norm {float(norm):g}; the weights were not stepped: "
                "lower update.optimizer.lr, or set its clip_norm"
            )
        with self.lease.writer() if self.lease is not None else nullcontext():
            work.rate = self.stepper.step(norm, work.progress)
        row = work.index.row
        seen = torch.isin(row, torch.unique(row[part]))
        work.steps += 1
        work.loss_tokens += int(part.sum())
        work.train_tokens += int((seen & work.batch.action).sum())
        work.forward_tokens += int(seen.sum())
        work.statistics.shared("loss", totals[:1])
        work.statistics.shared("grad_norm", norm)

    def _loss(self, work: Comparison, sides: Sides, baseline: Tensor | None) -> Tensor:
        """The weighted sum of the terms of one micro-batch."""
        if baseline is not None:
            good, z = sides.desirable, baseline.to(sides.score.device)
            work.observe(sides, None, self.spec)
            terms = self.loss.function(sides.score, good, z, **self.numbers)
            return (sides.weight * terms).sum()
        margin = sides.score[sides.chosen] - sides.score[sides.rejected]
        work.observe(sides, margin, self.spec)
        terms = self.loss.function(margin, **self.numbers)
        if self.spec.nll is not None:
            terms = terms - self.spec.nll * sides.likelihood[sides.chosen]
        return (sides.weight * terms).sum()

    def _require_fresh(self, gap: float) -> None:
        """Before the first step away from it, policy and reference say the same.

        So every loss begins at its neutral value: ln 2 (DPO), 1 / (4 beta^2) (IPO), 1 / 2 (KTO).
        """
        limit = _FRESH.get(self.policy.model.dtype, 0.1)
        if self.reference is None or gap <= limit:
            return
        raise ContractViolation(
            f"the reference is not the policy that it was copied from: their log-probs differ by "
            f"{gap:.3g} nats a token before the first step"
        )

    def _micros(self, batch: Batch, selected: Tensor) -> list[Micro]:
        """This rank's micro-batches of the rows with a ``selected`` token (bool [T])."""
        return dealt(batch, selected, self.ranks, self.recipe.system.micro_batch_tokens, _CUT)

    def _forward(self, micro: Micro, root: Root) -> Tensor:
        moved = micro.to(self.device)
        logprob: Tensor = root(moved.ids, moved.select, moved.targets, 1.0).logprob
        return logprob

    # -- state -------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """A copy of everything a resume needs, weights included.

        Of a reference that stays the policy that the recipe names only the digest is kept.
        """
        own: dict[str, Any] = {"version": self.version, "lineage": self.lineage}
        own |= {"anchor": self.anchor, "since": self.since}
        if self.follows and self.reference is not None:
            frozen = moving(self.reference.model)
            own |= {f"{_REFERENCE}{name}": value.clone() for name, value in frozen.items()}
        return {**own, **self.stepper.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken.

        Raises ``UserError`` when the policy that the recipe names is no longer the reference.
        """
        if self.follows and self.reference is not None:
            start = len(_REFERENCE)
            frozen = {n[start:]: v for n, v in state.items() if n.startswith(_REFERENCE)}
            load(self.reference.model, frozen)
            self.anchor, self.since = state["anchor"], state["since"]
        elif state["anchor"] != self.anchor:
            raise UserError(
                f"{self.recipe.policy.model} holds other weights than when the run began, and the "
                "reference is the policy that it began with",
                where="policy.model",
                fix="put the weights back, or start a new run",
            )
        with self.lease.writer() if self.lease is not None else nullcontext():
            self.stepper.restore(state)
        self.version, self.lineage = state["version"], state["lineage"]
        self.policy.require_lineage(self.lineage)
