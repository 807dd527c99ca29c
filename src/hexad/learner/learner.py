"""The learner: scores a batch, and turns it into optimiser steps."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from hexad.contract.faults import ContractViolation
from hexad.contract.tally import Tally
from hexad.credit.group_relative import usable
from hexad.learner.batch import Batch, Credit, RoleScore, Scores
from hexad.learner.minibatch import Order, index_of, minibatches
from hexad.learner.objective import Objective, movement, objective
from hexad.learner.optimizer import Stepper
from hexad.learner.pack import Micro, dealt
from hexad.learner.ranks import Ranks, Single
from hexad.learner.report import NonFiniteUpdate, Statistics, UpdateReport
from hexad.learner.root import Root
from hexad.policy.engine import Weights
from hexad.policy.transforms import require_replayable
from hexad.recipe.axes import Recipe
from hexad.update import ratio
from hexad.update.reduce import Index, Reduction, coefficients

if TYPE_CHECKING:
    from hexad.policy.policy import Policy

__all__ = ["Learner", "UpdateReport"]


class WriteLease(Protocol):
    """What a bound engine hands out: weights may change only inside ``writer()``."""

    def writer(self) -> AbstractContextManager[Any]:
        """Wait until no request is open, and keep new ones out."""
        ...


@dataclass(slots=True)
class _Work:
    """One update in progress: the batch, its fixed inputs and what has been counted."""

    batch: Batch
    index: Index
    advantage: Tensor
    old: Tensor | None
    progress: float
    statistics: Statistics = field(default_factory=Statistics)
    steps: int = 0
    loss_tokens: int = 0
    train_tokens: int = 0
    forward_tokens: int = 0
    skipped_rows: int = 0
    rate: float | None = None


class Learner:
    """Trains ``policy`` as ``recipe`` says. Every rank holds one, and calls it alike.

    ``old`` is always evaluated by the learner, never taken from the engine's record: in
    :meth:`score` before the batch's first step, or, when the batch is one single step, in that
    step's own forward pass, where old and current are the same weights. Where sampling cut the
    vocabulary, every role is normalised over the recorded sets, and tokens that were forced (a set
    of one) stay in the denominators but out of policy statistics. The model is in evaluation
    mode throughout: dropout would put the learner's policy beside the one that sampled.

    ``lease`` (settable) guards the weights where an engine is bound to them.
    """

    def __init__(
        self,
        policy: Policy,
        recipe: Recipe,
        ranks: Ranks | None = None,
        lease: WriteLease | None = None,
    ) -> None:
        self.policy, self.recipe = policy, recipe
        self.ranks: Ranks = ranks or Single()
        self.lease = lease
        self.root = Root(policy.model).eval()
        self.device = next(self.root.parameters()).device
        self.objective: Objective = objective(recipe.update)
        self.reduction = Reduction(
            recipe.action.denominator, recipe.action.inner, recipe.action.length
        )
        self.stepper = Stepper(policy.model, recipe.update.optimizer)
        self.temperature = _temperature(recipe) if self.objective.ratio else 1.0
        self.version = 0
        self.lineage: str = policy.lineage()

    @property
    def steps(self) -> int:
        """Optimiser steps so far; ``version`` counts completed batches."""
        return self.stepper.steps

    def weights(self) -> Weights:
        """The model's state dict: live tensors, not a copy."""
        weights: Weights = self.policy.model.state_dict()
        return weights

    # -- score -------------------------------------------------------------------------------

    def score(self, batch: Batch) -> Scores:
        """Evaluate ``old`` and, where this very version sampled, ``sampled``, before any step.

        Empty when nothing needs it: imitation, or a batch that is one single step (see the class).
        """
        if not self.objective.ratio or self._single_step:
            return Scores()
        logprob, entropy = self._evaluate(batch)
        old = RoleScore(logprob, self.version, self.lineage, entropy)
        mine = batch.action & (batch.version == self.version)
        if not bool(mine.any()):
            return Scores(old=old)
        sampled = torch.where(mine, logprob, torch.nan)
        return Scores(RoleScore(sampled, self.version, self.lineage), old)

    @property
    def _single_step(self) -> bool:
        return self.recipe.update.epochs == 1 and self.recipe.update.minibatches == 1

    @torch.no_grad()
    def _evaluate(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Log-prob and entropy [T] of every action token, NaN elsewhere, on every rank."""
        dtype = torch.promote_types(self.policy.model.dtype, torch.float32)
        found = torch.zeros((2, len(batch.ids)), dtype=dtype)
        for micro in self._micros(batch, batch.action):
            logprob, entropy = self._forward(micro)
            found[0, micro.tokens], found[1, micro.tokens] = logprob.cpu(), entropy.cpu()
        self.ranks.sum_([found])
        found = torch.where(batch.action, found, torch.nan)
        return found[0], found[1]

    # -- update ------------------------------------------------------------------------------

    def update(self, batch: Batch, scores: Scores, credit: Credit, progress: float) -> UpdateReport:
        """Make the batch's optimiser steps. ``progress`` in [0, 1] is the used share of the budget.

        Raises ``ContractViolation`` when a denominator is zero or a role is missing,
        ``NonFiniteUpdate`` before a step on a loss or gradient that is not finite.
        """
        work = self._work(batch, scores, credit, progress)
        update = self.recipe.update
        order = Order(self.recipe.run.seed, self.version, update.epochs, update.minibatches)
        stopped = False
        for part in minibatches(work.index, order):
            stopped = not self._step(work, part)
            if stopped:
                break
        roles = self._roles(batch, scores)
        self.version += 1
        self.lineage = self.policy.lineage()
        return self._report(work, roles, stopped)

    def _work(self, batch: Batch, scores: Scores, credit: Credit, progress: float) -> _Work:
        spec = self.objective
        if spec.ratio and scores.old is None and not self._single_step:
            raise ContractViolation("`old` is missing: score the batch before its first step")
        faulted = torch.tensor([e.faulted for e in batch.episodes], dtype=torch.bool)
        counted = usable(batch.score, batch.scored) if spec.ratio else ~faulted
        valid = batch.action & (batch.weight > 0) & counted[batch.token_episode]
        index = index_of(batch, valid)
        old = scores.old.logprob if scores.old is not None else None
        advantage = torch.where(valid, credit.advantage.detach(), 0.0)
        work = _Work(batch, index, advantage, old, progress)
        lengths = torch.zeros(len(batch.episodes), dtype=torch.int64)
        lengths.index_add_(0, index.episode, batch.action.to(torch.int64))
        work.statistics.shared("length/action_tokens", lengths)
        if spec.ratio:
            work.statistics.shared("advantage", work.advantage[valid])
        if scores.old is not None:
            work.forward_tokens += len(batch.ids)
            if scores.old.entropy is not None:
                work.statistics.shared("entropy", scores.old.entropy[valid & ~batch.forced])
        if scores.sampled is not None:
            mask = valid & ~batch.forced & scores.sampled.logprob.isfinite()
            log = ratio.engine(sampled=scores.sampled.logprob, behaviour=batch.behaviour, mask=mask)
            work.statistics.shared("log_ratio/engine", log[mask])
            work.statistics.shared("mismatch/engine", log[mask].abs())
        return work

    def _step(self, work: _Work, part: Tensor) -> bool:
        """One optimiser step on the tokens ``part`` (bool [T]); false if ``target_kl`` forbids it.

        The step's loss and gradient are sums over micro-batches and ranks: coefficients are global.
        """
        coefficient = torch.zeros(len(part), dtype=torch.float64)
        coefficient[part] = coefficients(work.index.take(part), self.reduction)
        rows, live = self._live(work, part, coefficient)
        lively, idle = (part & torch.isin(work.index.row, rows[which]) for which in (live, ~live))
        self.stepper.zero()
        totals = torch.zeros(3, dtype=torch.float64)
        for micro in self._micros(work.batch, lively):
            totals += self._accumulate(work, micro, coefficient)
        if self._observes_idle:
            with torch.no_grad():
                for micro in self._micros(work.batch, idle):
                    totals += self._accumulate(work, micro, coefficient)
        self.ranks.sum_([totals])
        self.ranks.sum_(self.stepper.gradients())
        loss, kl, count = totals.tolist()
        norm = self.stepper.norm()
        if not (torch.isfinite(totals).all() and torch.isfinite(norm)):
            raise NonFiniteUpdate(
                f"optimiser step {self.steps} (batch {self.version}): loss {loss:g}, gradient norm "
                f"{float(norm):g}; the weights were not stepped"
            )
        limit = self.recipe.update.target_kl
        self._count(work, part, lively, len(rows) - int(live.sum()))
        if limit is not None and count and kl / count > limit:
            return False
        with self.lease.writer() if self.lease is not None else nullcontext():
            work.rate = self.stepper.step(norm, work.progress)
        work.steps += 1
        work.loss_tokens += int(part.sum())
        work.statistics.shared("loss", torch.tensor([loss], dtype=torch.float64))
        work.statistics.shared("grad_norm", norm)
        return True

    def _live(self, work: _Work, part: Tensor, coefficient: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of ``part``, and bool: some token's coefficient times advantage is not zero.

        The others' gradient is exactly zero; their tokens are in the denominators all the same.
        """
        rows = torch.unique(work.index.row[part])
        pushes = coefficient * work.advantage != 0 if self.objective.ratio else coefficient != 0
        return rows, torch.isin(rows, torch.unique(work.index.row[pushes]))

    @property
    def _observes_idle(self) -> bool:
        """Whether rows without a gradient still get a forward pass, for their statistics.

        They do where the result depends on it (``target_kl``) and where no scoring pass has seen
        them. Otherwise statistics of the update ratio cover the rows with a gradient.
        """
        return self.recipe.update.target_kl is not None or self._single_step

    def _accumulate(self, work: _Work, micro: Micro, coefficient: Tensor) -> Tensor:
        """Add a micro-batch to the gradient; float64 [3]: loss, sum of k3, tokens in that sum."""
        current, entropy = self._forward(micro)
        statistics, tokens = work.statistics, micro.tokens
        advantage = work.advantage[tokens].to(current)
        reference = current.detach() if work.old is None else work.old[tokens].to(current)
        if self.objective.ratio:
            every = torch.ones_like(current, dtype=torch.bool)
            log_ratio = ratio.update(current=current, old=reference, mask=every)
        else:
            log_ratio = torch.zeros_like(current)
        terms = self.objective.loss(current, log_ratio, advantage)
        loss = (coefficient[tokens].to(current) * terms).sum()
        if loss.requires_grad:
            torch.autograd.backward(loss)
        value = float(loss.detach())
        free = ~work.batch.forced[tokens].to(current.device)
        if work.old is None:
            statistics.local("entropy", entropy[free])
        if not self.objective.ratio:
            statistics.local("nll", terms)
            return torch.tensor([value, 0.0, 0.0], dtype=torch.float64)
        moved = movement(self.objective, log_ratio[free], advantage[free])
        for name, values in moved.items():
            statistics.local(name, values)
        if work.old is None:
            self._engine_gap(work, reference.cpu(), tokens)
        kl = moved["kl"].sum(dtype=torch.float64)
        return torch.tensor([value, float(kl), int(free.sum())], dtype=torch.float64)

    def _engine_gap(self, work: _Work, sampled: Tensor, tokens: Tensor) -> None:
        """Engine ratio where this version sampled; in a single step ``sampled`` is current."""
        mine = work.batch.version[tokens] == self.version
        mask = mine & ~work.batch.forced[tokens]
        log = ratio.engine(sampled=sampled, behaviour=work.batch.behaviour[tokens], mask=mask)
        work.statistics.local("log_ratio/engine", log[mask])
        work.statistics.local("mismatch/engine", log[mask].abs())

    def _count(self, work: _Work, part: Tensor, lively: Tensor, idle_rows: int) -> None:
        row, batch = work.index.row, work.batch
        trained = torch.isin(row, torch.unique(row[lively]))
        seen = torch.isin(row, torch.unique(row[part])) if self._observes_idle else trained
        work.train_tokens += int((trained & batch.action).sum())
        work.forward_tokens += int(seen.sum())
        work.skipped_rows += idle_rows

    # -- forward -----------------------------------------------------------------------------

    def _micros(self, batch: Batch, selected: Tensor) -> list[Micro]:
        """This rank's micro-batches of the rows with a ``selected`` token (bool [T])."""
        limit, raw = self.recipe.system.micro_batch_tokens, not self.objective.ratio
        return dealt(batch, selected, self.ranks, limit, raw=raw)

    def _forward(self, micro: Micro) -> tuple[Tensor, Tensor]:
        moved = micro.to(self.device)
        inputs = (moved.ids, moved.select, moved.targets, self.temperature, moved.sets)
        logprob, entropy = self.root(*inputs)
        return logprob, entropy

    # -- report ------------------------------------------------------------------------------

    def _roles(self, batch: Batch, scores: Scores) -> dict[str, str]:
        """Who played each role, before the version moves on."""
        pairs = sorted({pair for e in batch.episodes for pair in e.provenance.versions})
        roles = {"behaviour": ",".join(f"{v}:{d}" for v, d in pairs)} if pairs else {}
        if self.objective.ratio:
            roles["old"] = f"{self.version}:{self.lineage}"
        if scores.sampled is not None:
            roles["sampled"] = f"{scores.sampled.version}:{scores.sampled.digest}"
        if scores.reference is not None:
            roles["reference"] = f"{scores.reference.version}:{scores.reference.digest}"
        return roles

    def _report(self, work: _Work, roles: dict[str, str], stopped: bool) -> UpdateReport:
        tallies: dict[str, Tally] = work.statistics.tallies(self.ranks)
        shown: tuple[str, ...] = ("loss", "grad_norm", "kl")
        means = {name: tallies[name].mean for name in shown if name in tallies}
        scalars = {name: mean for name, mean in means.items() if mean is not None}
        if work.rate is not None:
            scalars["lr"] = work.rate
        return UpdateReport(
            optimizer_steps=work.steps,
            loss_tokens=work.loss_tokens,
            train_tokens=work.train_tokens,
            forward_tokens=work.forward_tokens,
            skipped_rows=work.skipped_rows,
            stopped=stopped,
            roles=roles,
            tallies=tallies,
            scalars=scalars,
        )

    # -- state -------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """A copy of everything a resume needs, weights included; minibatch order needs no RNG."""
        return {"version": self.version, "lineage": self.lineage, **self.stepper.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken."""
        with self.lease.writer() if self.lease is not None else nullcontext():
            self.stepper.restore(state)
        self.version, self.lineage = state["version"], state["lineage"]


def _temperature(recipe: Recipe) -> float:
    """The temperature of every policy role: that of the behaviour distribution."""
    sampling = recipe.policy.sampling.build()
    require_replayable(sampling)
    return sampling.temperature
