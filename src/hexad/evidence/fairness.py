"""The fair-comparison manifest: what is equal in all arms, what differs, and what nobody knows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hexad.contract.digest import canonical_json
from hexad.evidence.conditions import conditions
from hexad.evidence.folder import leaves
from hexad.evidence.ran import OVERSHOOT, Ran, Side
from hexad.recipe.axes import Recipe
from hexad.recipe.dump import tree

FIXED, DIFFERENT, UNKNOWN = "fixed", "different", "unknown"
_NO_AXIS = frozenset({"name", "method", "run", "system", "budget"})
Fact = Callable[[Ran], Any]
"""A measured fact of a run; ``None`` where nobody knows."""


def _made_by(*names: str) -> Fact:
    def fact(run: Ran) -> Any:
        found = run.provenance
        return {name: found[name] for name in names} if found else None

    return fact


def _protocol(run: Ran) -> Any:
    row = run.row
    told = {key: row.get(key) for key in ("episodes", "temperature", "verifier")}
    return told | {"attempts": row.get("attempts", 1)}


@dataclass(frozen=True, slots=True)
class Item:
    """One line: keys of the recipe, and measured facts that must agree as well."""

    name: str
    keys: tuple[str, ...] = ()
    fact: Fact | None = None
    by_seed: bool = False
    """The fact may differ from seed to seed; arms are compared seed by seed."""
    beside: Callable[[Ran], dict[str, Any]] = lambda run: {}
    """Further decisions of its recipe, by dotted key."""


ITEMS = (
    Item("start checkpoint", ("policy.model",), lambda run: run.start, by_seed=True),
    Item("tasks and environment", ("task",), _made_by("environment", "tools")),
    Item("prompts and parser", (), _made_by("tokenizer", "template")),
    Item("verifier and reward", ("feedback",), _made_by("verifier")),
    Item("sampling", ("policy.sampling", "task.limits"), _made_by("sampler")),
    Item(
        "group size, filtering, replay",
        tuple(
            f"data.{key}"
            for key in ("regime", "origin", "groups", "group_size", "dynamic", "rounds", "size")
        ),
    ),
    Item("updates and epochs", ("update.epochs", "update.minibatches", "update.target_kl")),
    Item("optimiser", ("update.optimizer",)),
    Item("reduction", ("action.denominator", "action.inner", "action.length", "action.gated")),
    Item(
        "evaluation and repeats",
        ("run.evaluation",),
        _protocol,
        beside=lambda run: conditions(run.part.recipe, run.split),
    ),
    Item(
        "engine and precision", ("system.dtype", "system.engine"), _made_by("engine", "precision")
    ),
    Item("parallelism", ("system.device", "system.threads", "system.engine_rows", "timing")),
)
"""Contract, section 5.5, as far as recipes and stored facts tell; the rest is measured below."""


def manifest(sides: Sequence[Side], budget: tuple[str, float] | None) -> list[dict[str, str]]:
    """A row an item: ``item``, ``state`` (fixed, different, unknown) and ``detail``."""
    rows = [_row(item, sides) for item in ITEMS]
    return [*rows, _budget(sides, budget), *_measured(sides)]


def axes(recipe: Recipe, base: Recipe, tuned: Collection[str] = ()) -> dict[str, list[str]]:
    """Axes in which a recipe differs from the base, with the dotted keys that do.

    What only moves speed, names, budgets and protocol is no axis, and neither are the ``tuned``
    keys: the manifest shows them.
    """
    ours, theirs = leaves(tree(recipe)), leaves(tree(base))
    found: dict[str, list[str]] = {}
    for key in sorted({*ours, *theirs}.difference(tuned)):
        axis = key.split(".")[0]
        if axis not in _NO_AXIS and ours.get(key) != theirs.get(key):
            found.setdefault(axis, []).append(key)
    return found


def _decisions(run: Ran) -> dict[str, Any]:
    return leaves(tree(run.part.recipe))


def _row(item: Item, sides: Sequence[Side]) -> dict[str, str]:
    stated = {side.name: _stated(item, side) for side in sides}
    moved = sorted({key for values in stated.values() for key in values})
    unlike = [
        key for key in moved if len({canonical_json(v.get(key)) for v in stated.values()}) > 1
    ]
    if unlike:
        shown = "; ".join(
            f"{name}: " + ", ".join(f"{key} {_short(values.get(key))}" for key in unlike[:4])
            for name, values in stated.items()
        )
        return {"item": item.name, "state": DIFFERENT, "detail": shown}
    if item.fact is None:
        return {"item": item.name, "state": FIXED, "detail": "the recipes agree"}
    return _facts(item, item.fact, sides)


def _stated(item: Item, side: Side) -> dict[str, Any]:
    found = _decisions(side.runs[0])
    return item.beside(side.runs[0]) | {
        key: value
        for key, value in found.items()
        if any(key == start or key.startswith(f"{start}.") for start in item.keys)
    }


def _facts(item: Item, fact: Fact, sides: Sequence[Side]) -> dict[str, str]:
    """Whether what was measured agrees, of all runs or of those with one seed."""
    found: dict[int, list[Any]] = {}
    for side in sides:
        for run in side.runs:
            found.setdefault(run.seed if item.by_seed else 0, []).append(fact(run))
    known = [value for values in found.values() for value in values]
    lacking = sum(value is None for value in known)
    if any(len({canonical_json(v) for v in vs if v is not None}) > 1 for vs in found.values()):
        return {"item": item.name, "state": DIFFERENT, "detail": "what the runs recorded differs"}
    if lacking:
        what = f"{lacking} of {len(known)} runs did not record it"
        return {"item": item.name, "state": UNKNOWN, "detail": what}
    return {"item": item.name, "state": FIXED, "detail": "recipes and records agree"}


def _budget(sides: Sequence[Side], budget: tuple[str, float] | None) -> dict[str, str]:
    if budget is None:
        return _line("matched budget", DIFFERENT, "the recipes have no single budget in common")
    key, size = budget
    shown = _each(sides, lambda run: run.spent[key], "{:,.0f}")
    used = [run.spent[key] / size for side in sides for run in side.runs]
    even = all(side.matched for side in sides) and max(abs(u - 1.0) for u in used) <= OVERSHOOT
    return _line(
        "matched budget", FIXED if even else DIFFERENT, f"{key} {size:,.0f}; spent {shown}"
    )


def _measured(sides: Sequence[Side]) -> list[dict[str, str]]:
    """What arms differ in by nature is reported; what was not measured is said to be unknown."""
    rows = [
        _line(name, DIFFERENT, _each(sides, lambda run, key=key: run.spent[key], "{:,.0f}"))  # type: ignore[misc]
        for name, key in (
            ("rollout tokens", "rollout_tokens"),
            ("train tokens", "train_tokens"),
            ("wall-clock seconds", "seconds"),
        )
    ]
    rows.append(_known("hyper-parameter search", {s.name: s.trials for s in sides}, "trials"))
    rows.append(_known("hardware", {side.name: side.machine for side in sides}, ""))
    memory = {
        side.name: None if any(r.memory is None for r in side.runs) else _mebibytes(side)
        for side in sides
    }
    rows.append(_known("peak memory", memory, "MiB"))
    rows.append(_known("failed runs", {side.name: side.failed for side in sides}, ""))
    attempts = {run.row.get("attempts", 1) for side in sides for run in side.runs}
    many = min(attempts) > 1
    detail = f"{min(attempts)} attempts a task" if many else "one attempt a task"
    rows.append(_line("pass@k", FIXED if many and len(attempts) == 1 else UNKNOWN, detail))
    rows.append(_line("diversity", UNKNOWN, "not measured"))
    rows.append(_line("safety", UNKNOWN, "not measured"))
    return rows


def _mebibytes(side: Side) -> int:
    return round(max(run.memory or 0 for run in side.runs) / 2**20)


def _known(item: str, values: Mapping[str, Any], unit: str) -> dict[str, str]:
    if any(value is None for value in values.values()):
        return _line(item, UNKNOWN, "not recorded")
    if len(set(values.values())) == 1:
        return _line(item, FIXED, f"{next(iter(values.values()))} {unit}".strip())
    shown = "; ".join(f"{name} {value} {unit}".strip() for name, value in values.items())
    return _line(item, DIFFERENT, shown)


def _each(sides: Sequence[Side], of: Callable[[Ran], float], form: str) -> str:
    means = {side.name: sum(of(run) for run in side.runs) / len(side.runs) for side in sides}
    return "; ".join(f"{name} {form.format(value)}" for name, value in means.items())


def _line(item: str, state: str, detail: str) -> dict[str, str]:
    return {"item": item, "state": state, "detail": detail}


def _short(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 24 else f"{text[:21]}..."
