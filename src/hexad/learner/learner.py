"""The learner: scores a batch, and turns it into optimiser steps."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from hexad.contract.faults import ContractViolation
from hexad.learner.batch import Batch, Credit, RoleScore, Scores
from hexad.learner.critic import SharedCritic
from hexad.learner.minibatch import Order, minibatches
from hexad.learner.objective import Facts, Objective, adaptive, corrected, penalty, temperature
from hexad.learner.optimizer import Stepper
from hexad.learner.pack import Cut, Micro, dealt
from hexad.learner.ranks import Ranks, Single
from hexad.learner.report import NonFiniteUpdate, UpdateReport
from hexad.learner.roles import Live, Roles, demand, masters, played
from hexad.learner.root import NOTHING_MORE, Read, Root, Wants
from hexad.learner.work import Work
from hexad.policy.adapter import copied, trained
from hexad.policy.engine import Weights
from hexad.recipe.axes import Recipe
from hexad.update import effective, kl, ratio, surrogate
from hexad.update.adaptive import AdaptiveCoefficient
from hexad.update.positive import positive
from hexad.update.reduce import Reduction, coefficients

if TYPE_CHECKING:
    from hexad.policy.policy import Policy

__all__ = ["Learner", "UpdateReport"]


class WriteLease(Protocol):
    """What a bound engine hands out: weights may change only inside ``writer()``."""

    def writer(self) -> AbstractContextManager[Any]:
        """Wait until no request is open, and keep new ones out."""
        ...


class Factors(NamedTuple):
    """Coefficients float64 [T] of the policy's terms, the NLL of successes and shared values."""

    policy: Tensor
    success: Tensor | None
    value: Tensor | None


class Learner:
    """Trains ``policy`` as ``recipe`` says. Every rank holds one, and calls it alike.

    ``old`` is evaluated by the learner in :meth:`score` before the batch's first step, or, when the
    batch is one single step, in that step's own forward pass, where old and current are the same
    weights; ``update.old`` may name another (:class:`hexad.learner.roles.Roles`). Where sampling
    cut the vocabulary, every role is normalised over the recorded sets, and forced tokens (a set of
    one) stay in the denominators but out of policy statistics. The model is in evaluation
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
        self.objective = Objective(recipe)
        self.reduction = Reduction(
            recipe.action.denominator, recipe.action.inner, recipe.action.length
        )
        self.shared: SharedCritic | None = None
        stepped = policy.model
        if recipe.critic is not None and recipe.critic.trunk == "shared":
            self.shared = SharedCritic(policy, recipe, self.ranks)
            stepped = nn.ModuleDict({"policy": policy.model, "head": self.shared.net.head})
        self.stepper = Stepper(stepped, recipe.update.optimizer)
        self.roles = Roles(
            policy.model, recipe, masters(self.stepper.masters, shared=self.shared is not None)
        )
        self.temperature = temperature(recipe) if self.objective.ratio else 1.0
        self.version = 0
        self.lineage: str = policy.lineage()
        self.reference: Root | None = None
        self.kl: AdaptiveCoefficient | None = None
        if recipe.update.kl is not None:
            self.reference = Root(copied(policy.model)).eval().requires_grad_(False)
            self.anchor = self.lineage
            self.kl = adaptive(recipe.update.kl)

    @property
    def steps(self) -> int:
        """Optimiser steps so far; ``version`` counts completed batches."""
        return self.stepper.steps

    def weights(self) -> Weights:
        """What the steps change of the model: live tensors, not a copy."""
        return self.policy.weights()

    # -- score -------------------------------------------------------------------------------

    def score(self, batch: Batch) -> Scores:
        """Evaluate the roles that the recipe reads, before any step.

        ``old`` and ``sampled`` as :class:`Roles` says; ``reference`` under a KL penalty.
        Empty when nothing needs it: imitation, or a batch that is one single step (see the class).
        """
        if not self.objective.ratio or (self._single_step and not self._reads_old):
            return Scores()
        old, sampled = self.roles.score(batch, self._now, self._evaluate)
        reference = None
        if self.reference is not None:
            logprob, _ = self._evaluate(batch, self.reference, batch.action)
            reference = RoleScore(logprob, 0, self.anchor, forward=len(batch.ids), own=False)
        return Scores(sampled, old, reference)

    def penalty(self, batch: Batch, scores: Scores) -> Tensor | None:
        """float64 [T]: what a KL in the reward takes off each action; ``None`` without one.

        Raises ``ContractViolation`` when the reference was not scored.
        """
        spec = self.recipe.update.kl
        if spec is None or spec.placement != "reward":
            return None
        if scores.reference is None or self.kl is None:
            raise ContractViolation("`reference` is missing: score the batch first")
        free = batch.action & ~batch.forced
        return kl.penalty(
            behaviour=batch.behaviour,
            reference=scores.reference.logprob,
            mask=free & batch.behaviour.isfinite(),
            coefficient=self.kl.coefficient,
        ).double()

    @property
    def _single_step(self) -> bool:
        return self.recipe.update.epochs == 1 and self.recipe.update.minibatches == 1

    @property
    def _reads_old(self) -> bool:
        """Whether something but the surrogate needs scores from before the first step."""
        update = self.recipe.update
        extra = (update.correction, update.kl, self.roles.extra)
        return any(extra) or self.recipe.credit.estimator == "vtrace"

    @property
    def _now(self) -> Live:
        return Live(self.root, self.version, self.lineage)

    @torch.no_grad()
    def _evaluate(self, batch: Batch, root: Root, selected: Tensor) -> tuple[Tensor, Tensor]:
        """Log-prob and entropy [T] of every ``selected`` token, NaN elsewhere, on every rank."""
        dtype = torch.promote_types(self.policy.model.dtype, torch.float32)
        found = torch.zeros((2, len(batch.ids)), dtype=dtype)
        for micro in self._micros(batch, selected):
            read = self._forward(micro, root)
            found[0, micro.tokens], found[1, micro.tokens] = (
                read.logprob.cpu(),
                read.entropy.cpu(),
            )
        self.ranks.sum_([found])
        found = torch.where(selected, found, torch.nan)
        return found[0], found[1]

    # -- update ------------------------------------------------------------------------------

    def update(self, batch: Batch, scores: Scores, credit: Credit, progress: float) -> UpdateReport:
        """Make the batch's optimiser steps. ``progress`` in [0, 1] is the used share of the budget.

        Raises ``ContractViolation`` when a denominator is zero or a role is missing,
        ``NonFiniteUpdate`` before a step on a loss or gradient that is not finite.
        """
        work = self._begin(batch, scores, credit, progress)
        update = self.recipe.update
        order = Order(self.recipe.run.seed, self.version, update.epochs, update.minibatches)
        stopped = False
        for part in minibatches(work.index, order):
            stopped = not self._step(work, part)
            if stopped:
                break
        self._adapt(work)
        return self._end(work, stopped=stopped)

    def skip(self, batch: Batch, scores: Scores, credit: Credit, progress: float) -> UpdateReport:
        """Complete a batch without a step of the policy: the critic alone learns from it."""
        work = self._begin(batch, scores, credit, progress)
        if self.shared is not None:
            update = self.recipe.update
            order = Order(self.recipe.run.seed, self.version, update.epochs, update.minibatches)
            for part in minibatches(work.index, order):
                self._step(work, part)
        return self._end(work, stopped=False)

    def _end(self, work: Work, *, stopped: bool) -> UpdateReport:
        if self.shared is not None:
            self.shared.batches += 1
            self.shared.steps += work.steps
            self.shared.seen = self.steps
        roles = played(work.scores, work.batch, self._now if self.objective.ratio else None)
        self.version += 1
        self.lineage = self.policy.lineage()
        return work.report(self.ranks, roles, stopped=stopped)

    def _begin(self, batch: Batch, scores: Scores, credit: Credit, progress: float) -> Work:
        needed = self.objective.ratio and (not self._single_step or self._reads_old)
        self.roles.begin(self._now, trained(self.policy.model))
        at = (self.version, progress)
        work = Work.begin(batch, scores, credit, self.objective, at)
        if self.objective.ratio:
            work.watch(self.recipe, self.version)
        demand(scores, work.index.valid, old=needed, reference=self.reference is not None)
        if self.shared is not None:
            if credit.target is None or scores.value is None:
                raise ContractViolation("the shared critic has no targets: its values are missing")
            work.target, work.held = credit.target, scores.value.value.roll(1)
        spec = self.recipe.update.correction
        if spec is not None:
            found = corrected(spec, batch, scores, work.index, work.advantage)
            counted = work.index.valid & ~batch.forced
            work.weight = torch.where(counted, found.weight, 1.0)
            known = counted & ~found.missing
            work.statistics.shared("correction/weight", found.weight[known])
            work.statistics.shared("correction/kept", found.keep[known])
            if spec.missing is not None:
                work.statistics.shared("correction/missing", found.missing[counted])
        return work

    def _adapt(self, work: Work) -> None:
        """Move an adaptive KL coefficient by the divergence that this batch was sampled at."""
        spec = self.recipe.update.kl
        if spec is None or self.kl is None:
            return
        work.statistics.shared("kl_coefficient", torch.tensor([self.kl.coefficient]))
        scores, valid = work.scores, work.index.valid & ~work.batch.forced
        if spec.target is not None and scores.old is not None and scores.reference is not None:
            x = ratio.anchored(
                current=scores.old.logprob, reference=scores.reference.logprob, mask=valid
            )
            self.kl.update(float(kl.k3(x[valid]).double().mean()), len(work.batch.episodes))

    def _step(self, work: Work, part: Tensor) -> bool:
        """One optimiser step on the tokens ``part`` (bool [T]); false if ``target_kl`` forbids it.

        The step's loss and gradient are sums over micro-batches and ranks: coefficients are global.
        """
        factors = self._factors(work, part)
        rows, live = self._live(work, part, factors)
        lively, idle = (part & torch.isin(work.index.row, rows[which]) for which in (live, ~live))
        self.stepper.zero()
        work.direct.zero_()
        if work.last is not None:
            work.last.begin(part)
        totals = torch.zeros(3, dtype=torch.float64)
        for micro in self._micros(work.batch, lively):
            totals += self._accumulate(work, micro, factors)
        if self._observes_idle:
            with torch.no_grad():
                for micro in self._micros(work.batch, idle):
                    totals += self._accumulate(work, micro, factors)
        self.ranks.sum_([totals])
        self.ranks.sum_(self.stepper.gradients())
        loss, divergence, count = totals.tolist()
        norm = self.stepper.norm()
        if not (torch.isfinite(totals).all() and torch.isfinite(norm)):
            raise NonFiniteUpdate(
                f"optimiser step {self.steps} (batch {self.version}): loss {loss:g}, gradient norm "
                f"{float(norm):g}; the weights were not stepped: "
                "lower update.optimizer.lr, or set its clip_norm"
            )
        limit = self.recipe.update.target_kl
        self._count(work, part, lively, len(rows) - int(live.sum()))
        if limit is not None and count and divergence / count > limit:
            return False
        scale = self._scale(work, part)
        with self.lease.writer() if self.lease is not None else nullcontext():
            work.rate = self.stepper.step(norm, work.progress, scale)
        self.roles.stepped()
        work.steps += 1
        work.loss_tokens += int(part.sum())
        work.statistics.shared("loss", torch.tensor([loss], dtype=torch.float64))
        work.statistics.shared("grad_norm", norm)
        return True

    def _factors(self, work: Work, part: Tensor) -> Factors:
        """What each token's terms are multiplied by in this step."""
        index, spread = work.index.take(part), torch.zeros(len(part), dtype=torch.float64)
        policy = spread.clone()
        counted = part if self.objective.gated else self._open(work, part)
        policy[counted] = coefficients(work.index.take(counted), self.reduction)
        success = None
        early = self.shared is not None and self.shared.pretraining
        if self.recipe.update.positive_nll is not None and not early:
            success = spread.clone()
            success[part] = positive(index, work.success[part])
        value = None
        if self.shared is not None and work.target is not None:
            value, stands = spread.clone(), part & work.target.isfinite()
            reduction = Reduction(self.shared.spec.denominator)
            value[stands] = coefficients(work.index.take(stands), reduction)
            policy = torch.zeros_like(policy) if early else policy
        return Factors(policy, success, value)

    def _open(self, work: Work, part: Tensor) -> Tensor:
        """bool [T]: the tokens of ``part`` that no gate has closed, at the present weights."""
        if work.weight is not None:
            part = part & (work.weight != 0)
        if self.objective.surrogate.closed is None:
            return part
        current, _ = self._evaluate(work.batch, self.root, part)
        row, tokens = work.index.row, part.nonzero().squeeze(1)
        work.forward_tokens += int(torch.isin(row, torch.unique(row[part])).sum())
        found, part = (
            self.objective.closed(self._facts(work, current[tokens], tokens)),
            part.clone(),
        )
        part[tokens[found]] = False
        return part

    def _live(self, work: Work, part: Tensor, factors: Factors) -> tuple[Tensor, Tensor]:
        """The rows of ``part``, and bool: some term of the row has a factor that is not zero.

        The others' gradient is exactly zero; their tokens are in the denominators all the same.
        """
        rows = torch.unique(work.index.row[part])
        pushes = factors.policy != 0
        if self.objective.idle:
            pushes = pushes & (work.advantage != 0)
            if work.weight is not None:
                pushes = pushes & (work.weight != 0)
        for more in (factors.success, factors.value):
            pushes = pushes if more is None else pushes | (more != 0)
        live = torch.isin(rows, torch.unique(work.index.row[pushes]))
        if self.objective.unit != "token":  # a unit's ratio may be made of several rows
            episode = work.batch.row_episode
            live = torch.isin(episode[rows], torch.unique(episode[rows[live]]))
        return rows, live

    @property
    def _observes_idle(self) -> bool:
        """Whether rows without a gradient still get a forward pass, for their statistics.

        They do where the result depends on it (``target_kl``, a rate that follows the weights) and
        where no scoring pass has seen them. Otherwise statistics of the update ratio cover the rows
        with a gradient.
        """
        update = self.recipe.update
        whole = update.target_kl is not None or update.ess is not None
        return whole or (self._single_step and not self._reads_old)

    def _facts(self, work: Work, current: Tensor, tokens: Tensor) -> Facts:
        old = work.scores.old
        place = current.device
        return Facts(
            current=current,
            old=current.detach() if old is None else old.logprob[tokens].to(current),
            behaviour=work.batch.behaviour[tokens].to(current),
            advantage=work.advantage[tokens].to(current),
            free=~work.batch.forced[tokens].to(place),
            unit=None if work.unit is None else work.unit[tokens].to(place),
        )

    def _accumulate(self, work: Work, micro: Micro, factors: Factors) -> Tensor:
        """Add a micro-batch to the gradient; float64 [3]: loss, sum of k3, tokens in that sum."""
        tokens, update = micro.tokens, self.recipe.update
        wants = Wants(
            update.entropy is not None, factors.success is not None, factors.value is not None
        )
        read = self._forward(micro, self.root, wants)
        if not self.objective.ratio:
            return self._imitate(work, read, factors.policy[tokens])
        facts = self._facts(work, read.logprob, tokens)
        log = self.objective.log_ratio(facts)
        terms = self.objective.terms(facts, log)
        if work.weight is not None:
            terms = terms * work.weight[tokens].to(terms)
        if update.kl is not None and update.kl.placement == "loss":
            assert self.kl is not None and work.scores.reference is not None
            anchor = work.scores.reference.logprob[tokens].to(terms)
            away = penalty(update.kl.estimator, update.kl.weighted, facts, anchor)
            terms = terms + self.kl.coefficient * away
        if update.entropy is not None:
            terms = terms - update.entropy * torch.where(facts.free, read.entropy, 0.0)
        loss = (factors.policy[tokens].to(terms) * terms).sum()
        if factors.success is not None and read.raw is not None:
            own = factors.success[tokens].to(terms) * surrogate.nll(read.raw)
            assert update.positive_nll is not None
            loss = loss + update.positive_nll * own.sum()
            work.statistics.local("positive_nll", surrogate.nll(read.raw)[work.success[tokens]])
        if factors.value is not None and read.hidden is not None:
            loss = loss + self._value_loss(work, read.hidden, tokens, factors.value[tokens])
        if loss.requires_grad:
            torch.autograd.backward(loss)
        self._observe(work, tokens, facts, log, read)
        moved = ratio.update(current=facts.current, old=facts.old, mask=facts.free).detach()
        total = ratio.k3(moved[facts.free]).sum(dtype=torch.float64)
        return torch.tensor(
            [float(loss.detach()), float(total), int(facts.free.sum())], dtype=torch.float64
        )

    def _value_loss(self, work: Work, hidden: Tensor, tokens: Tensor, factor: Tensor) -> Tensor:
        """The shared critic's loss on the tokens that have a target, times its coefficient."""
        assert self.shared is not None and work.target is not None and work.held is not None
        stands = factor != 0
        raw = self.shared.raw(hidden[stands.to(hidden.device)])
        goal, held = (x[tokens[stands]].to(raw) for x in (work.target, work.held))
        terms = self.shared.head.loss(raw, goal, held)
        work.statistics.local("critic/loss", terms)
        return self.shared.spec.coefficient * (factor[stands].to(raw) * terms).sum()

    def _imitate(self, work: Work, read: Read, factor: Tensor) -> Tensor:
        terms = surrogate.nll(read.logprob)
        loss = (factor.to(terms) * terms).sum()
        if loss.requires_grad:
            torch.autograd.backward(loss)
        work.statistics.local("entropy", read.entropy)
        work.statistics.local("nll", terms)
        return torch.tensor([float(loss.detach()), 0.0, 0.0], dtype=torch.float64)

    def _observe(self, work: Work, tokens: Tensor, facts: Facts, log: Tensor, read: Read) -> None:
        """Statistics of a micro-batch, and the step's ratio to the behaviour policy."""
        lengths, lags = work.length[tokens].to(log.device), work.lag[tokens].to(log.device)
        for name, values in self.objective.movement(facts, log, lengths, lags).items():
            work.statistics.local(name, values)
        if work.last is not None:
            work.last.see(tokens, facts.current, self.objective.outside(facts, log))
        if read.outside is not None:
            work.statistics.local("support/outside", read.outside[facts.free])
        if work.scores.old is None or work.scores.old.entropy is None:
            work.statistics.local("entropy", read.entropy[facts.free])
        if work.scores.old is None and self.recipe.update.sampled != "none":
            mine = (work.batch.version[tokens] == self.version).to(facts.free.device)
            mask = mine & facts.free
            gap = ratio.engine(sampled=facts.current, behaviour=facts.behaviour, mask=mask)
            work.statistics.local("log_ratio/engine", gap[mask])
            work.statistics.local("mismatch/engine", gap[mask].abs())
        away = ratio.direct(current=facts.current, behaviour=facts.behaviour, mask=facts.free)
        work.direct.index_add_(0, work.index.episode[tokens], away.detach().cpu().double())

    def _scale(self, work: Work, part: Tensor) -> float:
        """Factor of the learning rate: 1, or by the effective sample size of this step."""
        if not (self.objective.ratio and self._observes_idle):
            return 1.0  # the rows without a gradient have not been looked at
        self.ranks.sum_([work.direct])
        chosen = torch.unique(work.index.episode[part])
        share = effective.share(work.direct[chosen])
        work.statistics.shared("ess", torch.tensor([share], dtype=torch.float64))
        spec = self.recipe.update.ess
        return 1.0 if spec is None else effective.rate_scale(share, spec.base, spec.rule)

    def _count(self, work: Work, part: Tensor, lively: Tensor, idle_rows: int) -> None:
        row, batch = work.index.row, work.batch
        trained = torch.isin(row, torch.unique(row[lively]))
        seen = torch.isin(row, torch.unique(row[part])) if self._observes_idle else trained
        work.train_tokens += int((trained & batch.action).sum())
        work.forward_tokens += int(seen.sum())
        work.skipped_rows += idle_rows

    # -- forward -----------------------------------------------------------------------------

    def _micros(self, batch: Batch, selected: Tensor) -> list[Micro]:
        """This rank's micro-batches of the rows with a ``selected`` token (bool [T])."""
        cut = Cut(raw=not self.objective.ratio, whole=self.objective.unit != "token")
        return dealt(batch, selected, self.ranks, self.recipe.system.micro_batch_tokens, cut)

    def _forward(self, micro: Micro, root: Root, wants: Wants = NOTHING_MORE) -> Read:
        moved = micro.to(self.device)
        inputs = (moved.ids, moved.select, moved.targets, self.temperature, moved.sets, wants)
        read: Read = root(*inputs)
        return read

    # -- state -------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """A copy of everything a resume needs, weights included; minibatch order needs no RNG."""
        kl_state = {"kl": self.kl.state()} if self.kl is not None else {}
        own = {"version": self.version, "lineage": self.lineage, **kl_state}
        return {**own, **self.stepper.state(), **self.roles.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken; ``UserError`` on another base."""
        with self.lease.writer() if self.lease is not None else nullcontext():
            self.stepper.restore(state)
        self.version, self.lineage = state["version"], state["lineage"]
        self.policy.require_lineage(self.lineage)
        self.roles.restore(state)
        if self.kl is not None:
            self.kl.restore(state["kl"])
