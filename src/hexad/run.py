"""Composition: from a resolved recipe to a running loop, and from a run folder to an evaluation."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hexad.contract.admission import Needs
from hexad.contract.events import Event, Sink, WorkLost, ignore
from hexad.contract.faults import UserError
from hexad.contract.store import Store
from hexad.contract.task import Split
from hexad.evidence import journal, losses, qualify, traces, verifiers
from hexad.evidence.chosen import LAST, chosen
from hexad.evidence.evaluate import Beside, Place, Question, together
from hexad.evidence.evaluate import evaluate as evaluate_world
from hexad.evidence.folder import parts
from hexad.evidence.imitation import Imitation
from hexad.evidence.ledger import Ledger
from hexad.evidence.ranking import Ranking, Rewards, rank
from hexad.evidence.triggers import Watch
from hexad.evidence.visits import Visits
from hexad.evidence.watcher import Blind, Watcher
from hexad.feedback.registry import require_apart
from hexad.learner import checkpoint
from hexad.learner.critic import Critic, SharedCritic
from hexad.learner.held_out import token_loss
from hexad.learner.learner import Learner, WriteLease
from hexad.learner.preference import PreferenceLearner
from hexad.learner.ranks import Ranks, Single, from_environment
from hexad.learner.registry import Registry
from hexad.learner.reward_learner import RewardLearner
from hexad.learner.reward_model import FOLDER, RewardModel
from hexad.loop import INTERRUPTED, Evaluator, Loop, Parts
from hexad.policy.local import LocalEngine
from hexad.policy.policy import Policy
from hexad.recipe import legal
from hexad.recipe.axes import Recipe
from hexad.recipe.dump import write
from hexad.recipe.methods import method
from hexad.recipe.staged import PREVIOUS, Gate, Staged
from hexad.rollout.build import Lineage, family_of, independent, judges, policy_of, world_of
from hexad.rollout.dialogues import Chats
from hexad.rollout.guarded import require_safe
from hexad.rollout.world import World
from hexad.schedule.asynchronous import AsynchronousSource, Supply
from hexad.schedule.backend import Backend
from hexad.schedule.flights import kept
from hexad.schedule.held_rows import held_out
from hexad.schedule.made import pair_rule
from hexad.schedule.pairs import PAIRS, PairSource, RoundSource, data_states, stored_pairs
from hexad.schedule.processes import Processes
from hexad.schedule.rows import row_source
from hexad.schedule.source import Source
from hexad.schedule.stored import ExpertShelf, FolderShelf, StoredSource, by_advantage
from hexad.schedule.synchronous import SynchronousSource
from hexad.schedule.visited import VisitedSource
from hexad.schedule.wal import Wal

Interrupted = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Order:
    """How a run is to be run: what is the same for all its stages."""

    run_dir: Path
    resume: bool
    watcher: Watcher
    interrupted: Interrupted
    ranks: Ranks


def train(
    recipe: Recipe | Staged,
    run_dir: Path,
    *,
    resume: bool = False,
    watcher: Watcher | None = None,
    interrupted: Interrupted = lambda: False,
) -> dict[str, Any]:
    """Train ``recipe`` in ``run_dir``, a folder that was claimed for it, and say why it ended.

    A staged path trains each recipe in a folder of its own, and goes on only past its gate. Raises
    ``UserError`` for what the user can mend; faults beyond the recipe's limits and bugs stop the
    run with an exception of their own. What was committed before stays resumable.
    """
    ranks = from_environment()
    looks = watcher if watcher is not None and ranks.rank == 0 else Blind()
    order = Order(run_dir, resume, looks, interrupted, ranks)
    if isinstance(recipe, Staged):
        outcome = _train_stages(recipe, order)
    else:
        outcome = {"reason": _train_one(recipe, run_dir, order)}
    # Not after an error: the other ranks would learn of a lost neighbour before its cause is told.
    ranks.close()
    return outcome


def evaluate(
    run_dir: Path,
    split: Split,
    *,
    tasks: int | None = None,
    attempts: int = 1,
    which: str = LAST,
    watcher: Watcher | None = None,
) -> dict[str, Any]:
    """Evaluate a checkpoint in ``run_dir`` and return the row that was written.

    ``tasks`` defaults to the count in the run's recipe, each tried ``attempts`` times. ``which`` is
    ``last`` (the newest whole one), ``best`` (on ``selection``) or a version. Raises ``UserError``
    when there is none.
    """
    (part,) = parts(run_dir)
    recipe, found = part.recipe, chosen(run_dir, which)
    _tell_damage(found, watcher or Blind())
    count = tasks or getattr(recipe.task, str(split)).count
    if count is None:
        fix = "say how many with --tasks"
        raise UserError(f"the split {split} has no count", where=f"task.{split}", fix=fix)
    model = recipe.policy.model_copy(update={"model": str(found.policy)})
    recipe = recipe.model_copy(update={"policy": model})
    policy = policy_of(recipe)
    engine = LocalEngine(policy, rows=recipe.system.engine_rows)
    asyncio.run(engine.publish(None, found.step))
    lineage = policy.lineage()
    question = Question(split, count, found.step, recipe.run.seed, attempts)
    place = Place(run_dir, recipe.system.engine_rows)
    with ExitStack() as held:
        held.callback(lambda: asyncio.run(engine.close()))
        world = world_of(recipe, policy, engine, lambda version: lineage, held)
        require_safe(recipe, world.family)
        world = independent(world, recipe, held)
        if (found.path / FOLDER).is_dir():
            if attempts != 1:
                fix = "leave --attempts out; data.group_size of its recipe says how many"
                raise UserError("a reward model ranks pairs", where=str(run_dir), fix=fix)
            rewarder = RewardModel.open(found.path / FOLDER)
            asked = partial(rewarder.rewards, limit=recipe.system.micro_batch_tokens)
            _ranked(question, world, asked, recipe, place)
        else:
            beside = _beside(recipe, policy, world, run_dir)
            evaluate_world(question, world, folder=run_dir, rows=place.rows, beside=beside)
    return journal.rows(run_dir / journal.EVALUATIONS)[-1]


@contextmanager
def compose(
    recipe: Recipe,
    run_dir: Path,
    watcher: Watcher | None = None,
    ranks: Ranks | None = None,
    prepare: Callable[[World], World] = lambda world: world,
    interrupted: Interrupted = lambda: False,
) -> Iterator[Loop]:
    """Every part that ``recipe`` names, wired into a loop; released when the block ends.

    With several ``ranks`` each process composes its own; rank 0 owns source, books and disk.
    ``prepare`` may replace the world of training episodes by one that is watched. ``interrupted``
    is asked by a source that waits for workers.
    """
    with ExitStack() as held:
        around = _Around(watcher or Blind(), ranks or Single(), held, prepare, interrupted)
        yield _wire(recipe, run_dir, around)


@dataclass(frozen=True, slots=True)
class _Around:
    """What a loop is wired into; ``held`` gets what must be released."""

    watcher: Watcher
    ranks: Ranks
    held: ExitStack
    prepare: Callable[[World], World]
    interrupted: Interrupted


def _wire(recipe: Recipe, run_dir: Path, around: _Around) -> Loop:
    """The loop of ``recipe``."""
    _require_runnable(recipe)
    ranks, held = around.ranks, around.held
    if recipe.system.threads is not None:
        torch.set_num_threads(recipe.system.threads)
    policy = policy_of(recipe)
    engine = LocalEngine(policy, rows=recipe.system.engine_rows)
    learner = _learner(policy, recipe, ranks, engine.lease())
    critic: Critic | SharedCritic | None = learner.shared if isinstance(learner, Learner) else None
    if critic is None and recipe.critic is not None:
        critic = Critic(policy, recipe, ranks)
    ledger, registry, lineage = Ledger(run_dir), Registry(), Lineage()
    sink = _both(ledger, around.watcher)
    world = around.prepare(world_of(recipe, policy, engine, lineage.of, held))
    first, needs = ranks.rank == 0, _needs(recipe, world, lineage, policy.max_context)
    source: Source | None = None
    if first and recipe.timing.mode == "asynchronous":
        backend, folder = _backend(recipe, run_dir), run_dir / "wal"
        supply = Supply(backend, learner.weights, needs, folder, around.interrupted)
        source = AsynchronousSource(world, recipe, supply, sink)
    elif first:
        source = _source(recipe, world, Chats(policy.chat), (run_dir, sink))
    if source is not None:
        held.callback(source.close)
    watch = Watch(recipe, run_dir, sink)
    place = Place(run_dir, recipe.system.engine_rows, _both(sink, watch.heard))
    examiner = _examiner(world, recipe, run_dir, held) if first else None
    loop = Loop(
        Parts(
            recipe=recipe,
            run_dir=run_dir,
            learner=learner,
            ranks=ranks,
            registry=registry,
            ledger=ledger,
            needs=needs,
            lineage=lineage,
            critic=critic,
            save_policy=learner.save if isinstance(learner, RewardLearner) else policy.save,
            logs=(*ledger.logs, run_dir / journal.EVALUATIONS, *_audits(recipe, run_dir))
            if first
            else (),
            source=source,
            store=Store(run_dir / "episodes") if first and recipe.data.regime != "fixed" else None,
            evaluate=_evaluator(learner, examiner, place) if examiner else None,
            sink=sink if first else ignore,
            watch=watch if first else None,
        )
    )
    registry.register("learner", learner)
    if critic is not None:
        registry.register("critic", critic)
    registry.register("ledger", ledger)
    registry.register("lineage", lineage)
    registry.register("source", source or Elsewhere())
    return loop


def _examiner(world: World, recipe: Recipe, run_dir: Path, held: ExitStack) -> World:
    """The world of evaluations; the cards of both verifiers are kept in the run folder.

    Raises ``UserError`` where training is judged by the evaluator.
    """
    examiner = independent(world, recipe, held)
    trained, judging = world.feedback, examiner.feedback
    if trained is not None and judging is not None:
        require_apart(world.family, trained.verifier, judging.verifier)
    verifiers.write(run_dir, trained, judging)
    return examiner


class Elsewhere:
    """Stands in the registry for a part that another rank owns."""

    def state(self) -> dict[str, Any]:
        """Nothing: only rank 0 writes checkpoints."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Nothing to restore here."""


def _train_one(recipe: Recipe, folder: Path, order: Order, gate: Gate | None = None) -> str:
    """Run one recipe, past its gate if it has one, and return the reason why it ended."""
    begun = order.resume and (folder / "checkpoints").is_dir()
    asked = order.interrupted
    if gate is not None:
        with ExitStack() as held:
            require_safe(recipe, family_of(recipe, held))  # the gate plays when all is trained
    if recipe.feedback.qualify is not None:
        with ExitStack() as held:
            made = judges(recipe, held)
            if "training" in made:
                qualify.require(recipe, folder, made["training"].digest)
    with compose(recipe, folder, order.watcher, order.ranks, interrupted=asked) as loop:
        order.watcher.stage(recipe.name, recipe, loop.parts.ledger)
        if begun:
            _resume(loop, order.watcher)
            if order.ranks.rank == 0:
                traces.rewind(folder, loop.parts.learner.version)
        reason = loop.run(order.interrupted)
        if gate is not None and reason != INTERRUPTED:
            _pass(gate, loop)
    return reason


def _train_stages(staged: Staged, order: Order) -> dict[str, Any]:
    reason, previous = "", PREVIOUS
    for stage in staged.stages:
        folder, recipe = order.run_dir / stage.name, stage.recipe
        if recipe.policy.model == PREVIOUS:
            model = recipe.policy.model_copy(update={"model": previous})
            recipe = recipe.model_copy(update={"policy": model})
        folder.mkdir(parents=True, exist_ok=True)
        if order.ranks.rank == 0:
            write(recipe, folder / "recipe.yaml")  # a stage's folder is a run folder of its own
        reason = _train_one(recipe, folder, order, stage.gate)
        order.ranks.barrier()  # the next stage reads what rank 0 has written
        if reason == INTERRUPTED:
            break
        previous = str(folder)
    return {"reason": reason}


def _pass(gate: Gate, loop: Loop) -> None:
    """Let the path go on, or refuse with the measured success; rank 0 measures for all."""
    parts_ = loop.parts
    success = loop.success if gate.split == "selection" else None
    if success is None and parts_.evaluate is not None:
        count = getattr(parts_.recipe.task, gate.split).count
        success = parts_.evaluate(gate.split, count, parts_.learner.version)
    agreed = parts_.ranks.broadcast_float(math.nan if success is None else success)
    if not agreed >= gate.success:
        shown = "nothing was scored" if math.isnan(agreed) else f"{agreed:.3f}"
        raise UserError(
            f"stage {parts_.recipe.name} did not pass its gate: success on {gate.split} is "
            f"{shown}, {gate.success:g} is asked",
            where=str(parts_.run_dir),
            fix="give the stage a larger budget, or lower its gate",
        )


def _resume(loop: Loop, watcher: Watcher) -> None:
    """Rewind the run to its newest whole checkpoint; without one it starts again from nothing."""
    parts_ = loop.parts
    first = parts_.ranks.rank == 0
    logs = checkpoint.Journal(parts_.logs, parts_.store) if first else None
    found = checkpoint.newest(parts_.run_dir)
    if found is None:
        for path in parts_.logs:
            path.unlink(missing_ok=True)
        return
    _tell_damage(found, watcher)
    mark = found.manifest.store
    if parts_.store is None or mark is None:
        checkpoint.resume(found, parts_.registry, logs)
        return
    names, more = _unsaved(found, parts_)
    with losses.booked(parts_.run_dir, parts_.store, mark.last_step, names, more):
        rewound = checkpoint.resume(found, parts_.registry, logs)
    for path in rewound.torn:
        watcher.note(f"episodes that could not be read were set aside: {path}")
    # What the checkpoint's own ledger knows of was booked before it was written.
    lost = losses.total(parts_.run_dir) - losses.Loss(**parts_.ledger.killed)
    if lost != losses.NOTHING:
        loop.emit(WorkLost(parts_.learner.version, lost.episodes, lost.sampled_tokens))


def _unsaved(found: checkpoint.Checkpoint, parts_: Parts) -> tuple[dict[str, int], losses.Loss]:
    """Tokens by episode in a checkpoint's queue, and what workers sampled that no batch took."""
    if parts_.recipe.timing.mode != "asynchronous" or parts_.store is None:
        return {}, losses.NOTHING
    names = kept(parts_.registry.read(found.path / "state", "source"))
    stored = losses.names(parts_.store)
    return names, losses.Loss(*Wal(parts_.run_dir / "wal").beyond(names, stored))


def _tell_damage(found: checkpoint.Checkpoint, watcher: Watcher) -> None:
    for skipped in found.skipped:
        watcher.note(
            f"checkpoint {skipped.path.name} is not whole: {skipped.why}; {found.path.name} is used"
        )


def _require_runnable(recipe: Recipe) -> None:
    """Raise ``UserError`` for a valid recipe that Hexad cannot run as it says yet."""
    if lacks := method(recipe.method).missing:
        raise UserError(
            f"this recipe is valid, but it needs {lacks}, which Hexad does not have yet",
            where=f"method: {recipe.method}",
            fix="choose a method that `hexad methods` marks as running, such as ppo",
        )


def _backend(recipe: Recipe, run_dir: Path) -> Backend:
    """The workers that the recipe asks for."""
    spec = recipe.timing.workers
    if spec is not None and spec.backend == "ray":
        from hexad.schedule.rays import Rays  # ray is an extra, and slow to import

        return Rays(recipe, run_dir)
    return Processes(recipe, run_dir)


def _learner(
    policy: Policy, recipe: Recipe, ranks: Ranks, lease: WriteLease
) -> Learner | PreferenceLearner | RewardLearner:
    if rule := legal.PREFERENCES.get(recipe.update.surrogate):
        if rule.head:
            return RewardLearner(policy, recipe, ranks)
        return PreferenceLearner(policy, recipe, ranks, lease)
    return Learner(policy, recipe, ranks, lease)


def _audits(recipe: Recipe, run_dir: Path) -> tuple[Path, ...]:
    """The log of what was made of episodes, where something is."""
    data = recipe.data
    makes = any(each is not None for each in (data.rounds, data.pairs, data.preferences))
    return (run_dir / PAIRS,) if makes else ()


def _source(recipe: Recipe, world: World, chats: Chats, given: tuple[Path, Sink]) -> Source:
    """The source of batches. ``given``: the run's folder, and who hears what it does."""
    run_dir, sink = given
    if recipe.data.regime == "online":
        return SynchronousSource(world, recipe, sink)
    if recipe.data.rounds is not None:
        rounds = VisitedSource if recipe.data.rounds.keep == "expert" else RoundSource
        return rounds(world, recipe, run_dir, sink)
    if recipe.data.origin == "data_set":
        return row_source(recipe, world, chats, run_dir, sink)
    if recipe.feedback.source == "preferences":
        return PairSource(stored_pairs(recipe), world, recipe, run_dir, sink)
    if recipe.data.origin == "expert":
        return StoredSource(ExpertShelf(world, recipe), world, recipe, sink)
    shelf = FolderShelf(Path(recipe.data.origin), size=recipe.data.size)
    weighed = recipe.data.advantage is not None
    return StoredSource(by_advantage(shelf, recipe) if weighed else shelf, world, recipe, sink)


def _needs(
    recipe: Recipe, world: World, lineage: Lineage, positions: int
) -> Callable[[int], Needs]:
    record = method(recipe.method)
    expected = {"tokenizer": world.policy.tokenizer, "template": world.policy.template}
    if recipe.data.regime == "online":
        expected["sampler"] = world.sampling.digest()
    ratio = record.needs.get("logprob", True)
    lag = (recipe.timing.max_lag or 0) if ratio else None

    def needs(version: int) -> Needs:
        demands = Needs(
            max_lag=lag,
            learner_version=version,
            lineage=lineage.digests if ratio else None,
            expected=expected,
            final_observation=legal.estimator(recipe.credit.estimator).critic,
            stop_ids=frozenset(world.stop_ids),
            positions=positions,
            support=not world.sampling.full_support if recipe.data.regime == "online" else None,
        )
        wanted: dict[str, Any] = dict(record.needs)
        return replace(demands, **wanted)

    return needs


def _evaluator(
    learner: Learner | PreferenceLearner | RewardLearner, independent: World, place: Place
) -> Evaluator:
    """Success of the policy, or how a reward model ranks its attempts; that the model keeps."""
    beside = _beside(learner.recipe, learner.policy, independent, place.folder)

    def run(split: str, tasks: int, version: int) -> float | None:
        recipe = learner.recipe
        question = Question(Split(split), tasks, version, recipe.run.seed)
        if isinstance(learner, RewardLearner):
            learner.model.measured = _ranked(question, independent, learner.rewards, recipe, place)
            return learner.model.measured.get("success")
        folder, rows, sink = place.folder, place.rows, place.sink
        result = evaluate_world(
            question, independent, folder=folder, rows=rows, sink=sink, beside=beside
        )
        return result.rate.success

    return run


def _ranked(
    question: Question, world: World, rewards: Rewards, recipe: Recipe, place: Place
) -> dict[str, Any]:
    """The row of an evaluation of a reward model."""
    return rank(question, world, Ranking(rewards, pair_rule(recipe), recipe.data.group_size), place)


def _beside(recipe: Recipe, policy: Policy, world: World, folder: Path) -> Beside:
    """What an evaluation says beside success: what it visits, and of imitation, how it errs."""
    visits = Visits(partial(data_states, recipe))
    if recipe.update.surrogate != "nll":
        return visits
    loss = partial(token_loss, policy, limit=recipe.system.micro_batch_tokens)
    rows = held_out(recipe, world, Chats(policy.chat), folder)
    imitation = Imitation(world, loss, policy.max_context, rows.items, rows.flaws)
    return together(visits, imitation)


def _both(first: Sink, second: Sink) -> Sink:
    def sink(event: Event) -> None:
        first(event)
        second(event)

    return sink
