"""Closed-loop evaluation: the policy acts, an independent verifier judges, every use is counted."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from hexad.contract.episode import Episode
from hexad.contract.events import EpisodeDone, Evaluated, Sink, Timed, ignore
from hexad.contract.task import Split
from hexad.evidence import journal
from hexad.evidence.exam import Evaluation, tabulate
from hexad.evidence.ledger import EVALUATION_PHASE
from hexad.rollout.collect import collect
from hexad.rollout.plan import plan_tasks
from hexad.rollout.world import World


@dataclass(frozen=True, slots=True)
class Question:
    """Which tasks are tried, and with whose weights. ``seed`` is the run's seed.

    The random numbers depend on split, task number and seed only, so that two versions of a policy
    are compared on equal luck.
    """

    split: Split
    tasks: int
    version: int
    seed: int


def evaluate(
    question: Question, world: World, *, folder: Path, rows: int = 256, sink: Sink = ignore
) -> Evaluation:
    """Try the tasks once each and add a row to ``evaluation.jsonl`` in ``folder``.

    ``world.feedback`` must hold a verifier object of its own, never the one that training uses. A
    use of ``hidden`` is written to ``hidden.jsonl`` before it begins; that log is never rewound.
    At most ``rows`` episodes are live at once. ``sink`` receives the episodes (purpose
    ``evaluation``), then the seconds and the result. ``family.stratum`` may name the key of a
    task's data by which success is broken down. Raises ``UserError`` when the split holds fewer
    tasks, ``ValueError`` without feedback.
    """
    if world.feedback is None:
        raise ValueError("an evaluation needs a verifier")
    started = time.perf_counter()
    split = str(question.split)
    tasks = world.family.tasks(question.split, question.tasks)
    if question.split is Split.HIDDEN:
        use = {"step": question.version, "tasks": len(tasks), "at": time.time()}
        journal.append(folder / journal.HIDDEN, use)
    name = world.family.name
    plans = plan_tasks(tasks, 1, prefix=f"{split}-", seed=question.seed, environment=name)

    def done(episode: Episode) -> None:
        sink(EpisodeDone(question.version, episode, purpose="evaluation"))

    episodes = collect(plans, world, rows=rows, done=done)
    key = getattr(world.family, "stratum", "stratum")
    strata = {t.task_id: f"{key} {t.data[key]}" for t in tasks if key in t.data}
    result = tabulate(split, question.version, episodes, strata)
    seconds = time.perf_counter() - started
    row = result.row() | {
        "verifier": world.feedback.digest,
        "temperature": world.sampling.temperature,
        # What differs between equal runs.
        "time": {"seconds": seconds, "at": time.time(), "hidden_uses": journal.hidden_uses(folder)},
    }
    journal.append(folder / journal.EVALUATIONS, row)
    sink(Timed(question.version, EVALUATION_PHASE, seconds))
    rate = result.rate
    sink(
        Evaluated(
            question.version, split, len(episodes), rate.scored, rate.success, rate.low, rate.high
        )
    )
    return result
