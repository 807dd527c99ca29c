"""Closed-loop evaluation: the policy acts, an independent verifier judges, every use is counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexad.contract.episode import Episode
from hexad.contract.events import EpisodeDone, Evaluated, Sink, Timed, ignore
from hexad.contract.task import Split, Task
from hexad.evidence import journal
from hexad.evidence.exam import Evaluation, Rate, tabulate
from hexad.evidence.ledger import EVALUATION_PHASE
from hexad.evidence.tallies import exact
from hexad.rollout.collect import collect
from hexad.rollout.plan import plan_tasks
from hexad.rollout.world import World


@dataclass(frozen=True, slots=True)
class Question:
    """Which tasks are tried, how often, and with whose weights. ``seed`` is the run's seed.

    The random numbers depend on split, task number and seed only, so that two versions of a policy
    are compared on equal luck.
    """

    split: Split
    tasks: int
    version: int
    seed: int
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where an evaluation is booked: the run folder, and a sink for its events.

    At most ``rows`` episodes are live at once.
    """

    folder: Path
    rows: int = 256
    sink: Sink = ignore


@dataclass(frozen=True, slots=True)
class Played:
    """The tasks, the episodes in order, and when it began."""

    tasks: tuple[Task, ...]
    episodes: tuple[Episode, ...]
    started: float


Beside = Callable[[Split, Sequence[Task], Sequence[Episode]], Mapping[str, Any]]
"""``(split, tasks, their episodes) -> more entries of the row``."""


def nothing(split: Split, tasks: Sequence[Task], episodes: Sequence[Episode]) -> Mapping[str, Any]:
    """A ``Beside`` that adds no entry."""
    return {}


def together(*besides: Beside) -> Beside:
    """The entries of all ``besides``."""

    def all_of(
        split: Split, tasks: Sequence[Task], episodes: Sequence[Episode]
    ) -> Mapping[str, Any]:
        return {k: v for each in besides for k, v in each(split, tasks, episodes).items()}

    return all_of


def evaluate(
    question: Question,
    world: World,
    *,
    folder: Path,
    rows: int = 256,
    sink: Sink = ignore,
    beside: Beside = nothing,
) -> Evaluation:
    """Try each task ``attempts`` times and add a row to ``evaluation.jsonl`` in ``folder``.

    ``world.feedback`` must hold a verifier object of its own, never the one that training uses. A
    use of ``hidden`` is written to ``hidden.jsonl`` before it begins; that log is never rewound.
    At most ``rows`` episodes are live at once. ``beside`` may add entries to the row. ``sink``
    receives the episodes (purpose ``evaluation``), then the seconds and the result.
    Raises ``UserError`` when the split holds fewer tasks, ``ValueError`` without feedback.
    """
    place = Place(folder, rows, sink)
    played = attempts(question, world, question.attempts, place)
    split, version = str(question.split), question.version
    result = tabulate(split, version, played.episodes, world.prices)
    row = {**result.row(), **beside(question.split, played.tasks, played.episodes)}
    row["attempts"] = question.attempts
    booked(question, world, (row, result.rate), played, place)
    return result


def attempts(question: Question, world: World, size: int, place: Place) -> Played:
    """Try every task ``size`` times; a use of ``hidden`` is booked before it begins.

    Raises as :func:`evaluate` does.
    """
    if world.feedback is None:
        raise ValueError("an evaluation needs a verifier")
    started = time.perf_counter()
    split = str(question.split)
    tasks = world.family.tasks(question.split, question.tasks)
    if question.split is Split.HIDDEN:
        use = {"step": question.version, "tasks": len(tasks), "at": time.time()}
        journal.append(place.folder / journal.HIDDEN, use)
    name = world.family.name
    plans = plan_tasks(tasks, size, prefix=f"{split}-", seed=question.seed, environment=name)

    def done(episode: Episode) -> None:
        place.sink(EpisodeDone(question.version, episode, purpose="evaluation"))

    episodes = collect(plans, world, rows=place.rows, done=done)
    return Played(tuple(tasks), tuple(episodes), started)


def booked(
    question: Question,
    world: World,
    result: tuple[Mapping[str, Any], Rate],
    played: Played,
    place: Place,
) -> None:
    """Add the row of ``result`` to ``evaluation.jsonl``, and tell its rate and the seconds."""
    assert world.feedback is not None
    folder, sink, (told, rate) = place.folder, place.sink, result
    split, episodes = str(question.split), played.episodes
    times = [episode.times for episode in episodes if not episode.faulted]
    spent = exact([each.seconds - each.waited_seconds for each in times])
    seconds = time.perf_counter() - played.started
    row = dict(told) | {
        "verifier": world.feedback.digest,
        "temperature": world.sampling.temperature,
        # What differs between equal runs.
        "time": {
            "seconds": seconds,
            "at": time.time(),
            "hidden_uses": journal.hidden_uses(folder),
            "episode_seconds": spent,
        },
    }
    journal.append(folder / journal.EVALUATIONS, row)
    sink(Timed(question.version, EVALUATION_PHASE, seconds))
    sink(
        Evaluated(
            question.version,
            split,
            len(episodes),
            rate.scored,
            rate.success,
            rate.low,
            rate.high,
            told.get("measure", "success"),
        )
    )
