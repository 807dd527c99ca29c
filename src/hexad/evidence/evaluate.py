"""Closed-loop evaluation: the policy acts, an independent verifier judges, every use is counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from hexad.contract.episode import Episode
from hexad.contract.events import EpisodeDone, Evaluated, Sink, Timed, ignore
from hexad.contract.task import Split
from hexad.evidence import journal
from hexad.evidence.exam import Evaluation, tabulate
from hexad.evidence.ledger import EVALUATION_PHASE
from hexad.rollout.plan import EpisodePlan, plan_tasks
from hexad.rollout.world import World

Collect: TypeAlias = Callable[[Sequence[EpisodePlan], World], Sequence[Episode]]
"""Runs plans to their ends and returns the episodes in the order of the plans."""


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
    question: Question, world: World, collect: Collect, *, folder: Path, sink: Sink = ignore
) -> Evaluation:
    """Try the tasks once each and add a row to ``evaluation.jsonl`` in ``folder``.

    ``world.feedback`` must hold a verifier object of its own, never the one that training uses. A
    use of ``hidden`` is written to ``hidden.jsonl`` before it begins; that log is never rewound.
    ``sink`` receives the episodes (purpose ``evaluation``), the seconds and the result. Raises
    ``UserError`` when the split holds fewer tasks, ``ValueError`` without feedback.
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
    episodes = collect(plans, world)
    key = getattr(world.family, "stratum", "stratum")
    strata = {t.task_id: f"{key} {t.data[key]}" for t in tasks if key in t.data}
    result = tabulate(split, question.version, episodes, strata)
    for episode in episodes:
        sink(EpisodeDone(question.version, episode, purpose="evaluation"))
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
