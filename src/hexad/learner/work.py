"""One update in progress: its fixed inputs, and what has been counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hexad.learner import buckets
from hexad.learner.batch import Batch, Credit, Scores
from hexad.learner.minibatch import index_of
from hexad.learner.objective import Objective
from hexad.learner.ranks import Ranks
from hexad.learner.report import Statistics, Trace, UpdateReport
from hexad.recipe.axes import Recipe
from hexad.update import ratio, unit
from hexad.update.reduce import Index


@dataclass(slots=True)
class Work:
    """``advantage`` float64 [T]; ``weight`` [T] corrects the policy term; ``unit`` [T] is that of
    the ratio; ``target`` and ``held`` [T] are those of a shared critic; ``length`` [T] the action
    tokens of the token's episode; ``lag`` [T] its age in versions; ``success`` bool [T]; ``direct``
    [E] sums log current / behaviour over one step. ``last`` watches what is read, for
    buckets where data may be ``stale``, and for a trace where the batch is ``traced``.
    """

    batch: Batch
    index: Index
    advantage: Tensor
    scores: Scores
    progress: float
    length: Tensor
    lag: Tensor
    success: Tensor
    direct: Tensor
    unit: Tensor | None = None
    weight: Tensor | None = None
    target: Tensor | None = None
    held: Tensor | None = None
    last: buckets.Last | None = None
    stale: bool = False
    traced: bool = False
    statistics: Statistics = field(default_factory=Statistics)
    steps: int = 0
    loss_tokens: int = 0
    train_tokens: int = 0
    forward_tokens: int = 0
    skipped_rows: int = 0
    rate: float | None = None

    @classmethod
    def begin(
        cls, batch: Batch, scores: Scores, credit: Credit, spec: Objective, at: tuple[int, float]
    ) -> Work:
        """``at`` is the learner's version and the used share of the budget."""
        version, progress = at
        valid = batch.action & (batch.weight > 0) & credit.counted[batch.token_episode]
        if not spec.forced:
            valid = valid & ~batch.forced
        index = index_of(batch, valid)
        lengths = torch.zeros(len(batch.episodes), dtype=torch.int64)
        lengths.index_add_(0, index.episode, batch.action.to(torch.int64))
        work = cls(
            batch,
            index,
            torch.where(valid, credit.advantage.detach(), 0.0),
            scores,
            progress,
            length=lengths[index.episode],
            lag=torch.where(batch.action, version - batch.version, 0),
            success=batch.success[batch.token_episode],
            direct=torch.zeros(len(batch.episodes), dtype=torch.float64),
            unit=unit.of(index, spec.unit) if spec.unit != "token" else None,
        )
        work.statistics.shared("length/action_tokens", lengths)
        if spec.ratio:
            work.statistics.shared("advantage", work.advantage[valid])
        work.observe_scores()
        return work

    def watch(self, recipe: Recipe, version: int) -> None:
        """Keep what the steps read of every token, where somebody asks for it."""
        every = recipe.run.traces
        self.stale = recipe.timing.mode == "asynchronous"
        self.traced = every is not None and version % every == 0
        if self.stale or self.traced:
            self.last = buckets.Last.of(len(self.batch.ids))

    def observe_scores(self) -> None:
        """Tally what the scoring passes said."""
        valid, scores, batch = self.index.valid & ~self.batch.forced, self.scores, self.batch
        # `old` may be `sampled` itself, whose passes count once.
        spoken = {id(r): r for r in (scores.sampled, scores.old, scores.reference) if r is not None}
        self.forward_tokens += sum(role.forward for role in spoken.values())
        if scores.old is not None and scores.old.entropy is not None:
            self.statistics.shared("entropy", scores.old.entropy[valid])
        if scores.old is not None and scores.old.own and scores.reference is not None:
            x = ratio.anchored(
                current=scores.old.logprob, reference=scores.reference.logprob, mask=valid
            )
            self.statistics.shared("kl_reference", ratio.k3(-x[valid]))
        if scores.sampled is not None:
            mask = valid & scores.sampled.logprob.isfinite()
            log = ratio.engine(sampled=scores.sampled.logprob, behaviour=batch.behaviour, mask=mask)
            self.statistics.shared("log_ratio/engine", log[mask])
            self.statistics.shared("mismatch/engine", log[mask].abs())
            self._observe_staleness(mask)
        if scores.old is not None and bool((self.lag[valid] > 0).any()):
            log = ratio.proximal(old=scores.old.logprob, behaviour=batch.behaviour, mask=valid)
            self.statistics.shared("log_ratio/proximal", log[valid])

    def _observe_staleness(self, mask: Tensor) -> None:
        """Where the sampling version spoke (bool [T]): old / sampled of its older tokens."""
        old, sampled = self.scores.old, self.scores.sampled
        stale = mask & (self.lag > 0)
        if old is not None and sampled is not None and old is not sampled and bool(stale.any()):
            log = ratio.staleness(old=old.logprob, sampled=sampled.logprob, mask=stale)
            self.statistics.shared("log_ratio/staleness", log[stale])

    def report(self, ranks: Ranks, roles: Mapping[str, str], *, stopped: bool) -> UpdateReport:
        """The end of it. Collective."""
        trace = None
        if self.last is not None:
            self.last.gather(ranks)
            if self.traced:
                trace = Trace.of(self.last, self.batch.behaviour, self.advantage, self.index.valid)
            about = (self.index, self.scores, self.advantage, self.lag, self.length)
            view = buckets.View(self.batch, *about)
            found = buckets.values(view, self.last) if self.stale else {}
            for name, values in found.items():
                self.statistics.shared(name, values)
        tallies = self.statistics.tallies(ranks)
        shown = ("loss", "grad_norm", "kl", "kl_reference")
        means = {name: tallies[name].mean for name in shown if name in tallies}
        scalars = {name: mean for name, mean in means.items() if mean is not None}
        if self.rate is not None:
            scalars["lr"] = self.rate
        return UpdateReport(
            optimizer_steps=self.steps,
            loss_tokens=self.loss_tokens,
            train_tokens=self.train_tokens,
            forward_tokens=self.forward_tokens,
            skipped_rows=self.skipped_rows,
            stopped=stopped,
            roles=roles,
            tallies=tallies,
            scalars=scalars,
            trace=trace,
        )
