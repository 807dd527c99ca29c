"""``hexad check``: a small real batch, then a simulation: is asynchronous training worth it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from rich.console import Console, RenderableType

from hexad.cli import check_card, check_verifier
from hexad.cli import check_tables as tables
from hexad.contract.faults import UserError
from hexad.evidence import annotate, profiles
from hexad.evidence.barrier import Profile, barrier, quantiles
from hexad.evidence.forecast import Forecast, Machine, Schedule, floor_seconds
from hexad.evidence.simulate import simulate
from hexad.preflight import Measured, Played, cores, measure, play
from hexad.recipe.axes import Recipe
from hexad.recipe.load import load

LAGS = (1, 2, 4, 8)
"""Lag limits that are tried beside the recipe's own."""
CLUSTER = 2048
"""Workers of the cluster that is simulated by default."""


Seen = TypeVar("Seen", bound=Played, contravariant=True)
"""What a section is made of."""


@dataclass(frozen=True, slots=True)
class Order:
    """What the user asked for. ``None`` takes the recipe's own, or the default."""

    recipe: Path
    overrides: tuple[str, ...] = ()
    workers: int | None = None
    cluster: int = CLUSTER
    out: Path | None = None
    labels: Path | None = None


@dataclass(frozen=True, slots=True)
class Section(Generic[Seen]):
    """A part of the report: ``document`` makes its JSON, ``render`` shows that to people."""

    name: str
    document: Callable[[Seen, Order], dict[str, Any]]
    render: Callable[[dict[str, Any]], RenderableType]


def check(order: Order, console: Console) -> dict[str, Any]:
    """Measure, simulate, print, and write the profile. Raises ``UserError``.

    A recipe that samples in rounds has no barrier of a batch: its episodes and its verifier are
    measured, and nothing is trained.
    """
    recipe = load(order.recipe, list(order.overrides))
    if not isinstance(recipe, Recipe):
        stages = ", ".join(stage.name for stage in recipe.stages)
        raise UserError(
            f"a staged recipe is checked stage by stage: {stages}",
            where=str(order.recipe),
            fix="give the stage's own recipe file, and policy.model=runs/NAME/STAGE",
        )
    document: dict[str, Any] = {
        "recipe": recipe.name,
        "key": profiles.key(recipe),
        "of": profiles.subject(recipe),
    }
    if recipe.data.regime == "online":
        with console.status("playing and training two small batches"):
            measured = measure(recipe)
        _tell((*BELIEF, *BARRIER), measured, order, console, document)
    else:
        with console.status("playing a few tasks"):
            played = play(recipe)
        _tell(BELIEF, played, order, console, document)
    path = profiles.place(recipe, order.out)
    profiles.write(document, path)
    console.print(f"written to {path}", highlight=False)
    return {**document, "written": str(path)}


def _tell(
    sections: Sequence[Section[Seen]],
    seen: Seen,
    order: Order,
    console: Console,
    document: dict[str, Any],
) -> None:
    """Print ``sections`` and keep them in ``document``."""
    for section in sections:
        with console.status(section.name):
            document[section.name] = section.document(seen, order)
        console.print(section.render(document[section.name]))


def _batch(measured: Measured, order: Order) -> dict[str, Any]:
    """What was measured."""
    profile, company = measured.profile, measured.company
    groups = [[profile.seconds(path, company) for path in group] for group in profile.groups]
    phases = {name: {"wall": w, "cpu": c} for name, (w, c) in measured.phases.items()}
    rollout = measured.phases["rollout"][0]
    learner = measured.learner_seconds
    faulted = sum(episode.faulted for episode in measured.episodes)
    return {
        "groups": measured.groups,
        "episodes": len(measured.episodes),
        "faulted": faulted,
        "episode_seconds": quantiles([seconds for group in groups for seconds in group]),
        "turn_tokens": quantiles([float(t.tokens) for p in profile.paths for t in p.turns]),
        "environment_seconds": {name: quantiles(spent) for name, spent in measured.waits.items()},
        "barrier": barrier(groups).row(),
        "phases": phases,
        "learner_seconds": learner,
        "learner_use": learner / (rollout + learner),
        "rollout_use": rollout / (rollout + learner),
        "company": company,
        "step_seconds": profile.step_seconds,
        "row_seconds": profile.row_seconds,
        "streaming": asdict(profile.streaming) if profile.streaming is not None else None,
        "signal": measured.signal,
        "groups_by_verdict": dict(measured.kinds),
        "profile": asdict(profile),
    }


def _here(measured: Measured, order: Order) -> dict[str, Any]:
    """This machine: Hexad's synchronous source, the same without ticks, and the lag limits."""
    recipe, profile = measured.recipe, measured.profile
    spec, rows = recipe.timing.workers, recipe.system.engine_rows
    workers = order.workers or (spec.count if spec is not None else 1)
    data = recipe.data
    alone, crew = Machine(cores(), 1, rows), Machine(cores(), workers, rows)
    shape = (data.groups, data.group_size)
    plan = Schedule(*shape, ticks=True)
    synchronous = simulate(profile, alone, plan, recipe.run.seed)
    found = {
        "synchronous": _row(synchronous, synchronous, alone, measured, plan),
        "without ticks": _try(measured, alone, Schedule(*shape), synchronous),
    }
    for lag in _lags(recipe):
        plan = Schedule(*shape, max_lag=lag, batches=lag + 25)
        found[f"max_lag {lag}"] = _try(measured, crew, plan, synchronous)
    played = Schedule(measured.groups, data.group_size, ticks=True, batches=8)
    again = simulate(replace(profile, latency=None), alone, played, recipe.run.seed)
    return {
        "machine": asdict(crew),
        "batch": {"groups": data.groups, "group_size": data.group_size},
        "schedules": found,
        "self_check": {
            "simulated_rollout": again.batch_seconds - profile.learner_seconds,
            "measured_rollout": measured.phases["rollout"][0],
        },
    }


def _cluster(measured: Measured, order: Order) -> dict[str, Any]:
    """Weak scaling: a batch of an episode a worker, and a learner that keeps its seconds."""
    recipe, size = measured.recipe, measured.recipe.data.group_size
    groups = max(1, order.cluster // size)
    machine = Machine(order.cluster + cores(), order.cluster, recipe.system.engine_rows)
    base = Schedule(groups, size, batches=5)
    synchronous = simulate(measured.profile, machine, base, recipe.run.seed)
    found = {"synchronous": _row(synchronous, synchronous, machine, measured, base)}
    for lag in sorted({recipe.timing.max_lag or LAGS[0], LAGS[2]}):
        plan = Schedule(groups, size, max_lag=lag, batches=lag + 5)
        found[f"max_lag {lag}"] = _try(measured, machine, plan, synchronous)
    return {
        "machine": asdict(machine),
        "batch": {"groups": groups, "group_size": size},
        "schedules": found,
    }


def _episode(measured: Played, order: Order) -> dict[str, Any]:
    """One annotated episode."""
    episode, tokenizer = annotate.chosen(measured.episodes), measured.policy.tokenizer
    assert episode is not None  # else nothing was measured
    return annotate.annotate(episode, lambda ids: str(tokenizer.decode(ids.tolist())))


def _card(measured: Played, order: Order) -> dict[str, Any]:
    """The task's card, tried out."""
    return check_card.rehearsed(measured.recipe)


def _verifiers(measured: Played, order: Order) -> dict[str, Any]:
    """The cards of the recipe's verifiers."""
    return check_verifier.cards(measured.recipe)


def _qualification(measured: Played, order: Order) -> dict[str, Any]:
    """Whether the training verifier deserves belief, on the batch and on demonstrations."""
    return check_verifier.qualified(measured, order.labels)


def _lags(recipe: Recipe) -> list[int]:
    return sorted({*LAGS, *([recipe.timing.max_lag] if recipe.timing.max_lag else [])})


def _try(measured: Measured, machine: Machine, plan: Schedule, against: Forecast) -> dict[str, Any]:
    found = simulate(_profile(measured, plan), machine, plan, measured.recipe.run.seed)
    return _row(found, against, machine, measured, plan)


def _profile(measured: Measured, plan: Schedule) -> Profile:
    """The costs of workers that stream, where the schedule has some.

    The learner reads a batch of the recipe: in a cluster it grows with the batch.
    """
    if plan.max_lag == 0:
        return measured.profile
    data = measured.recipe.data
    return measured.profile.streamed(data.groups * data.group_size)


def _row(
    found: Forecast, against: Forecast, machine: Machine, measured: Measured, plan: Schedule
) -> dict[str, Any]:
    """JSON; ``speedup`` is the ratio of accepted episodes a second to the synchronous ones."""
    return {
        **found.row(),
        "lags": {str(lag): count for lag, count in found.lags.items()},
        "speedup": found.accepted_per_second / against.accepted_per_second,
        "floor_seconds": floor_seconds(_profile(measured, plan), machine, plan),
    }


BELIEF: tuple[Section[Played], ...] = (
    Section("episode", _episode, annotate.table),
    Section("task card", _card, check_card.table),
    Section("verifiers", _verifiers, check_verifier.table),
    Section("qualification", _qualification, check_verifier.qualification),
)
"""What is known of any recipe that samples."""
BARRIER: tuple[Section[Measured], ...] = (
    Section("measured", _batch, tables.batch),
    Section("here", _here, tables.here),
    Section("cluster", _cluster, tables.cluster),
)
"""What batches of an online recipe cost, now and otherwise timed."""
