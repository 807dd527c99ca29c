"""The one loop: the only module that wires the rooms together.

    harvest -> admit -> batch -> score -> credit -> update -> publish -> books

Timing is the choice of source. Every rank runs the same loop; rank 0 owns the source, the books and
the disk, and broadcasts what it harvested, so that each rank assembles the same batch.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from hexad.contract import crash
from hexad.contract.admission import Needs, admit, admit_group
from hexad.contract.arrow import from_ipc, to_ipc
from hexad.contract.episode import Episode
from hexad.contract.events import (
    BatchTrained,
    CheckpointWritten,
    Consumed,
    CriticTrained,
    EpisodeRefused,
    GroupJudged,
    Published,
    Sink,
    Timed,
)
from hexad.contract.faults import ContractViolation
from hexad.contract.lag import lag
from hexad.contract.store import Store
from hexad.evidence import selection, traces
from hexad.evidence.ledger import Ledger
from hexad.learner import checkpoint
from hexad.learner.assemble import assemble
from hexad.learner.assign import Assigner
from hexad.learner.batch import Batch, Credit, Scores
from hexad.learner.combine import Combiner
from hexad.learner.critic import Critic, SharedCritic
from hexad.learner.critic_report import judge
from hexad.learner.learner import Learner, UpdateReport
from hexad.learner.preference import PreferenceLearner
from hexad.learner.ranks import Ranks
from hexad.learner.registry import Registry
from hexad.learner.reward_learner import RewardLearner
from hexad.recipe.axes import Recipe
from hexad.schedule.source import Harvest, Source

_FLAGS, _BY_NAME = ("exhausted", "interrupted", "begins", "open"), ("greedy", "values", "ages")
"""What all ranks are told of a harvest beside its episodes."""
INTERRUPTED = "interrupted"
"""The reason of a run that was asked to stop."""
Evaluator = Callable[[str, int, int], float | None]
"""``(split, tasks, version) -> success``: a closed-loop evaluation, booked by the evaluator."""


class Lineage(Protocol):
    """Policy version -> digest of the weights it stood for, of this run alone."""

    digests: dict[int, str]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the loop wires. ``needs`` gives admission's demands at a learner version.

    ``store`` is ``None`` where the episodes are not the run's own (fixed data). Ranks other than 0
    pass ``None`` for ``source``, ``store`` and ``evaluate``.
    """

    recipe: Recipe
    run_dir: Path
    learner: Learner | PreferenceLearner | RewardLearner
    ranks: Ranks
    registry: Registry
    ledger: Ledger
    needs: Callable[[int], Needs]
    lineage: Lineage
    save_policy: Callable[[Path], None]
    logs: tuple[Path, ...] = ()
    critic: Critic | SharedCritic | None = None
    source: Source | None = None
    store: Store | None = None
    evaluate: Evaluator | None = None
    sink: Sink | None = None
    watch: Callable[[dict[str, Any]], None] | None = None


class Loop:
    """Runs batches until a budget, a target, the data or the user ends the run."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.emit: Sink = parts.sink or parts.ledger
        self.started = False
        self.success: float | None = None
        self.exhausted = self.open = False
        self.ended = ""
        self.assigner = Assigner(parts.recipe)
        self.combiner = Combiner(parts.recipe.feedback)
        parts.registry.register("loop", self)
        parts.registry.register("credit", self.assigner)
        if self.combiner.duals:
            parts.registry.register("duals", self.combiner)

    # -- state -------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What was evaluated, the last success on ``selection``, and how data and run ended."""
        return {
            "started": self.started,
            "success": self.success,
            "exhausted": self.exhausted,
            "open": self.open,
            "ended": self.ended,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where :meth:`state` was taken."""
        self.started, self.success = state["started"], state["success"]
        self.exhausted, self.ended = state["exhausted"], state["ended"]
        self.open = state["open"]

    # -- the run -----------------------------------------------------------------------------

    def run(self, interrupted: Callable[[], bool] = lambda: False) -> str:
        """Run to the end and return the reason. ``interrupted`` is asked between batches."""
        self._load()
        if self.ended:
            return self.ended
        if not self.started:
            self.started = True
            self._evaluate_final()
            self._evaluate_selection()
            self._checkpoint()
        while not (reason := self._agreed_reason(interrupted)):
            self.step()
        if reason != INTERRUPTED:
            self._finish(reason)
        self._checkpoint()
        return reason

    def _finish(self, reason: str) -> None:
        """Nothing more is sampled for training; what the run came to, and its last books."""
        parts = self.parts
        if parts.source is not None:
            parts.source.finish()
        self._evaluate_final()
        if parts.ranks.rank == 0:
            parts.ledger.close(parts.learner.version)
        self.ended = reason

    def step(self) -> None:
        """One batch: from harvest to published weights and closed books."""
        parts, version = self.parts, self.parts.learner.version
        before = parts.ledger.spent(parts.recipe.budget)
        with self._timed(version, "rollout"):
            harvest = self._harvest(version)
        if harvest.interrupted:
            return
        self.exhausted, self.open = harvest.exhausted, harvest.open
        if harvest.begins and isinstance(parts.learner, PreferenceLearner):
            parts.learner.begin_round()
        self._account(version, harvest)
        episodes = self._admit(version, harvest.episodes)
        if episodes:
            self._learn(version, harvest, episodes)
        elif not harvest.exhausted:
            raise ContractViolation(
                f"batch {version}: admission refused all {len(harvest.episodes)} episodes; "
                "ledger.jsonl lists the reasons"
            )
        if parts.store is not None:
            with self._timed(version, "store"):
                sampled = harvest.episodes if harvest.sampled is None else harvest.sampled
                if sampled:
                    parts.store.append(version, sampled)
        crash.point("loop:after-store")
        self._publish()
        crash.point("loop:after-publish")
        if parts.ranks.rank == 0:
            row = parts.ledger.commit(version)
            if parts.watch is not None:
                parts.watch(row)
        self._housekeeping(before)

    def _learn(self, version: int, harvest: Harvest, episodes: tuple[Episode, ...]) -> None:
        parts = self.parts
        learner, critic = parts.learner, parts.critic
        progress = parts.ranks.broadcast_float(parts.ledger.progress(parts.recipe.budget))
        told = self.combiner.step(self._measured(harvest))
        episodes = self.combiner(episodes, progress)
        batch = assemble(episodes, parts.recipe.feedback.weights, harvest.ages)
        pretrain = critic is not None and critic.pretraining
        with self._timed(version, "score"):
            scores = learner.score(batch)
            if critic is not None:
                scores = self._valued(batch, scores)
        penalty = learner.penalty(batch, scores) if isinstance(learner, Learner) else None
        greedy, values = harvest.greedy, harvest.values
        credit = self.assigner(
            batch, scores, penalty, greedy=greedy, values=values, pretrain=pretrain
        )
        decided = (*harvest.episodes, *(episode for episode, _ in harvest.dropped))
        self._judge_groups(version, decided, batch, credit)
        if critic is not None:
            credit = self._criticise(batch, scores, credit, (progress, penalty))
        with self._timed(version, "update"):
            update = learner.update
            if pretrain and isinstance(learner, Learner):
                update = learner.skip
            report = update(batch, scores, credit, progress)
        if report.trace is not None and parts.ranks.rank == 0:
            value = None if scores.value is None else scores.value.value
            traces.write(parts.run_dir, version, batch, report.trace, value)
        dynamic = parts.recipe.data.dynamic is not None
        event = _trained(version, batch, report, harvest, dynamic)
        self.emit(replace(event, scalars={**event.scalars, **told}))
        crash.point("loop:after-update")

    def _measured(self, harvest: Harvest) -> dict[str, float]:
        """The mean of every constrained quantity, before anything was filtered: rank 0's."""
        sampled = harvest.sampled
        if sampled is None:
            sampled = (*harvest.episodes, *(episode for episode, _ in harvest.dropped))
        found = self.combiner.measure({e.episode_id: e for e in sampled}.values())
        ranks = self.parts.ranks
        agreed = {
            name: ranks.broadcast_float(found.get(name, math.nan)) for name in self.combiner.duals
        }
        return {name: cost for name, cost in agreed.items() if math.isfinite(cost)}

    def _valued(self, batch: Batch, scores: Scores) -> Scores:
        """``scores`` with the values that the estimator reads, before any update on the batch."""
        critic, wanted = self.parts.critic, self.assigner.wanted(batch)
        assert critic is not None and wanted is not None
        return replace(scores, value=critic.score(batch, wanted))

    def _criticise(
        self, batch: Batch, scores: Scores, credit: Credit, given: tuple[float, Tensor | None]
    ) -> Credit:
        """Judge the critic by its values, then let it learn; the credit that the policy learns by.

        That is the credit from before the critic's update, unless the recipe rescores.
        """
        critic, version = self.parts.critic, self.parts.learner.version
        assert critic is not None and scores.value is not None
        assert credit.clock is not None and credit.target is not None
        steps, held = credit.clock, scores.value.value
        behind = self.parts.learner.steps - critic.seen
        counts = (critic.batches, critic.steps, behind)
        gamma = self.parts.recipe.credit.gamma
        event = judge(batch, steps, held, gamma=gamma, counts=counts)
        self.emit(replace(event, version=version))
        if not isinstance(critic, Critic):  # a shared one learns in the policy's own steps
            return credit
        progress, penalty = given
        before = held.roll(1)  # the value that a step's first token is decided by
        with self._timed(version, "critic"):
            done = critic.update(batch, before, credit.target, progress)
        critic.seen = self.parts.learner.steps
        self.emit(CriticTrained(version, done.steps, done.train_tokens, done.tallies))
        if not critic.spec.rescore:
            return credit
        again = self.assigner(batch, self._valued(batch, scores), penalty)
        return replace(credit, advantage=again.advantage)

    # -- stages ------------------------------------------------------------------------------

    def _harvest(self, version: int) -> Harvest:
        parts = self.parts
        if parts.ranks.size == 1:
            assert parts.source is not None
            return parts.source.next(version)
        payload = None
        if parts.source is not None:
            harvest = parts.source.next(version)
            facts = {name: getattr(harvest, name) for name in _FLAGS}
            facts |= {name: dict(getattr(harvest, name)) for name in _BY_NAME}
            head = json.dumps(facts).encode()
            payload = len(head).to_bytes(8, "big") + head + to_ipc(harvest.episodes)
        received = parts.ranks.broadcast_bytes(payload)
        edge = 8 + int.from_bytes(received[:8], "big")
        mine = Harvest(tuple(from_ipc(received[edge:])), **json.loads(received[8:edge]))
        return mine if parts.source is None else replace(harvest, episodes=mine.episodes)

    def _account(self, version: int, harvest: Harvest) -> None:
        """Tell the books what the source dropped, and how old is what waited for its batch."""
        out = {episode.episode_id for episode, _ in harvest.dropped}
        for episode, reason in harvest.dropped:
            name, age = episode.episode_id, harvest.ages.get(episode.episode_id)
            old, tokens = _lag(episode, version), episode.own_count
            self.emit(EpisodeRefused(version, name, (reason,), tokens, lag=old, age=age))
        for episode in harvest.episodes:
            name, old = episode.episode_id, lag(episode, version)
            if name in harvest.ages and name not in out and old is not None:
                self.emit(Consumed(version, name, episode.own_count, old, harvest.ages[name]))

    def _admit(self, version: int, episodes: tuple[Episode, ...]) -> tuple[Episode, ...]:
        needs = self.parts.needs(version)
        refused: dict[str, list[str]] = {}
        for episode in episodes:
            if violations := admit(episode, needs):
                refused[episode.episode_id] = [str(v.reason) for v in violations]
        admitted = tuple(e for e in episodes if e.episode_id not in refused)
        if across := admit_group(admitted, needs):
            shown = "; ".join(f"{v.reason} {v.where}: {v.detail}" for v in across[:3])
            raise ContractViolation(f"batch {version} does not fit together: {shown}")
        for episode in episodes:
            if reasons := refused.get(episode.episode_id):
                unique = tuple(dict.fromkeys(reasons))
                refusal = EpisodeRefused(version, episode.episode_id, unique, episode.own_count)
                self.emit(refusal)
        return admitted

    def _judge_groups(
        self, version: int, harvested: tuple[Episode, ...], batch: Batch, credit: Credit
    ) -> None:
        touched = (credit.advantage != 0) & batch.action
        signal = {batch.episodes[i].group_id for i in set(batch.token_episode[touched].tolist())}
        members: dict[str, list[Episode]] = {}
        for episode in {episode.episode_id: episode for episode in harvested}.values():
            members.setdefault(episode.group_id, []).append(episode)
        for group_id, group in members.items():
            scored = [e for e in group if e.scored]
            self.emit(
                GroupJudged(
                    version,
                    group_id=group_id,
                    kind=_group_kind(scored),
                    signal=group_id in signal,
                    scored=len(scored),
                    members=len(group),
                    sampled_tokens=sum(e.costs.sampled_tokens for e in group),
                )
            )

    def _load(self) -> None:
        """Let the engine load the learner's weights, and enter them in the lineage."""
        learner, source = self.parts.learner, self.parts.source
        self.parts.lineage.digests[learner.version] = learner.lineage
        if source is not None:
            source.publish(None, learner.version, learner.lineage)

    def _publish(self) -> None:
        learner = self.parts.learner
        with self._timed(learner.version, "publish"):
            self._load()
        self.emit(Published(learner.version, learner.lineage))

    # -- evidence, checkpoints, the end ---------------------------------------------------------

    def _housekeeping(self, before: float) -> None:
        """Evaluations and checkpoints that are due; ``before`` this batch that share was spent."""
        run, version = self.parts.recipe.run, self.parts.learner.version
        every, points = run.evaluation.every, run.evaluation.points
        after = self.parts.ledger.spent(self.parts.recipe.budget)
        if every and version % every == 0:
            self._evaluate_selection()
        elif points and int(points * before) < int(points * min(after, 1.0)):
            self._evaluate_selection()
        every = run.checkpoints.every
        if every and version % every == 0:
            self._checkpoint()

    def _evaluate_selection(self) -> None:
        evaluation = self.parts.recipe.run.evaluation
        if (evaluation.every or evaluation.points) and self.parts.evaluate is not None:
            version = self.parts.learner.version
            self.success = self.parts.evaluate("selection", evaluation.tasks, version)

    def _evaluate_final(self) -> None:
        final = self.parts.recipe.run.evaluation.final
        if final == "none" or self.parts.evaluate is None:
            return
        split = getattr(self.parts.recipe.task, final)
        self.parts.evaluate(final, split.count, self.parts.learner.version)

    def _checkpoint(self) -> None:
        parts = self.parts
        parts.ranks.barrier()
        if parts.ranks.rank != 0:
            return
        started = time.perf_counter()
        keep, version = parts.recipe.run.checkpoints.keep, parts.learner.version
        best = selection.best(parts.run_dir, version)
        written = checkpoint.write(
            parts.run_dir,
            version,
            parts.save_policy,
            parts.registry,
            checkpoint.Journal(parts.logs, parts.store, keep, best.step if best else None),
        )
        seconds = time.perf_counter() - started
        self.emit(Timed(parts.learner.version, "checkpoint", seconds))
        self.emit(CheckpointWritten(parts.learner.version, str(written)))

    def _agreed_reason(self, interrupted: Callable[[], bool]) -> str:
        """Why the run ends now, or the empty string; rank 0 decides for all."""
        reason = self._reason(interrupted) if self.parts.ranks.rank == 0 else ""
        if self.parts.ranks.size == 1:
            return reason
        return self.parts.ranks.broadcast_bytes(reason.encode()).decode()

    def _reason(self, interrupted: Callable[[], bool]) -> str:
        if interrupted():
            return INTERRUPTED
        if self.exhausted:
            return "no task is left"
        until = self.parts.recipe.run.evaluation.until
        if until and self.success is not None and self.success >= until.success:
            return f"success on selection reached {until.success:g}"
        ledger, budget = self.parts.ledger, self.parts.recipe.budget
        return ledger.exhausted(budget, samples=not self.open) or ""

    @contextmanager
    def _timed(self, version: int, phase: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.emit(Timed(version, phase, time.perf_counter() - started))


def _group_kind(scored: list[Episode]) -> str:
    """Kind of a group by the verdicts of its scored members."""
    if not scored:
        return "unscored"
    correct = sum(e.verdict is not None and e.verdict.success for e in scored)
    if correct == len(scored):
        return "all_correct"
    return "all_wrong" if correct == 0 else "mixed"


def _lag(episode: Episode, version: int) -> int | None:
    """Learner version minus the oldest one that sampled ``episode``, trained or not."""
    oldest = min((v for v, _ in episode.provenance.versions), default=None)
    return None if oldest is None else version - oldest


def _trained(
    version: int, batch: Batch, report: UpdateReport, harvest: Harvest, kept: bool
) -> BatchTrained:
    """The event of an update; ``kept``: the batch is a choice, so its success is another number.

    An episode that a gate dropped may be in the batch for its reward alone: it was not trained on.
    """
    out = {episode.episode_id for episode, _ in harvest.dropped} | harvest.reused
    trained = [episode for episode in batch.episodes if episode.episode_id not in out]
    scalars = dict(report.scalars)
    judged = [e.verdict.success for e in batch.episodes if e.scored and e.verdict is not None]
    if kept and judged:
        scalars["reward/kept_success"] = sum(judged) / len(judged)
    return BatchTrained(
        version,
        episodes=tuple(episode.episode_id for episode in trained),
        action_tokens=sum(episode.own_count for episode in trained),
        loss_tokens=report.loss_tokens,
        train_tokens=report.train_tokens,
        forward_tokens=report.forward_tokens,
        optimizer_steps=report.optimizer_steps,
        roles=report.roles,
        tallies=report.tallies,
        scalars=scalars,
    )
