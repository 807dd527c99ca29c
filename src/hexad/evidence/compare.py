"""Arms against a base: success with intervals, what each spent, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hexad.contract.faults import UserError
from hexad.evidence import crossed
from hexad.evidence.attempts import pass_at_k, pass_hat_k, score_of
from hexad.evidence.conditions import incomparable
from hexad.evidence.crossed import Scores, Variance
from hexad.evidence.fairness import axes, manifest
from hexad.evidence.ran import BUDGETS, OVERSHOOT, Ran, Side, hidden_uses
from hexad.evidence.verdict import ALPHA, LEAST_SEEDS, OPEN, UNLIKE, holm, judge
from hexad.recipe.falsify import Offer

POWER = 0.8


@dataclass(frozen=True, slots=True)
class Ask:
    """What is compared: fixed before anything is looked at. ``budget`` is ``(key, size)``."""

    name: str
    metric: str
    margin: float
    split: str
    budget: tuple[str, float] | None
    points: int = 4
    offers: tuple[Offer, ...] = ()
    changes: tuple[str, ...] = ()
    """Keys of the study file that were changed after it began."""


def compare(sides: Sequence[Side], ask: Ask) -> dict[str, Any]:
    """The comparison of ``sides`` with the first of them, as JSON.

    ``absent`` are those without a finished run: nothing is said of them but that. Raises
    ``UserError`` without a second arm or any run, and where the metric needs attempts or outcomes
    that the runs do not have.
    """
    if len(sides) < 2 or not any(each.runs for each in sides):
        names = ", ".join(f"{each.name} ({len(each.runs)} runs)" for each in sides) or "none"
        fix = "give finished runs of at least two arms"
        raise UserError(f"there is nothing to compare: {names}", where=ask.name, fix=fix)
    base, *others = sides
    whole = [each for each in sides if each.runs]
    absent = [{"name": s.name, "failed": s.failed} for s in sides if not s.runs]
    found = [_contrast(side, base, ask) for side in others]
    _decide(found, ask.margin)
    arms = [_arm(side, ask) | {"axes": _axes(side, base)} for side in whole]
    return {
        "study": ask.name,
        "base": base.name,
        "metric": {"name": ask.metric, "split": ask.split, "margin": ask.margin},
        "budget": None
        if ask.budget is None
        else dict(zip(("key", "size"), ask.budget, strict=True)),
        "method": {
            "interval": "percentile bootstrap of seeds crossed with tasks, paired by both",
            "confidence": crossed.CONFIDENCE,
            "draws": crossed.DRAWS,
            "seed": crossed.DRAW_SEED,
            "test": "t over seeds and tasks (Hillis 2007), Holm over arms",
            "alpha": ALPHA,
            "power": POWER,
        },
        "arms": arms,
        "absent": absent,
        "contrasts": found,
        "curve": [] if ask.budget is None else _curve(whole, ask),
        "manifest": manifest(whole, ask.budget),
        "offers": [asdict(offer) for offer in ask.offers],
        "hidden_uses": hidden_uses(sides),
        "notes": [*_missing(absent), *_unlike(found), *_notes(whole, ask)],
    }


# -- scores ------------------------------------------------------------------------------------


def _scores(runs: Sequence[Ran], tasks: Sequence[str], metric: str) -> Scores:
    """The metric of every task [S, T], or of whole runs [S, 1] where outcomes were not kept."""
    if not tasks:
        return np.array([[float(run.row["success"])] for run in runs])
    score, _ = score_of(metric)
    rows = [[score(n, c) for c, n in map(run.outcomes.__getitem__, tasks)] for run in runs]
    return np.array(rows)


def _tasks(runs: Sequence[Ran], metric: str) -> list[str]:
    """Tasks that every run scored often enough, sorted; none where a run kept no outcomes.

    Raises ``UserError`` where that leaves a metric of several attempts nothing to be computed of.
    """
    needed = score_of(metric)[1]
    fit = [{task for task, (_, n) in run.outcomes.items() if n >= needed} for run in runs]
    shared = sorted(set.intersection(*fit))
    if not shared and (needed > 1 or all(run.outcomes for run in runs)):
        raise UserError(
            f"no task has {needed} scored attempts in every run, as {metric} needs",
            where=", ".join(str(run.folder) for run in runs),
            fix=f"hexad evaluate RUN --split {runs[0].split} --attempts {needed}",
        )
    return shared


def _span(scores: Scores) -> tuple[float, float]:
    return crossed.interval(crossed.bootstrap(scores))


# -- one arm -----------------------------------------------------------------------------------


def _arm(side: Side, ask: Ask) -> dict[str, Any]:
    runs = side.runs
    tasks = _tasks(runs, ask.metric)
    scores = _scores(runs, tasks, ask.metric)
    low, high = _span(scores)
    memory = [run.memory for run in runs if run.memory is not None]
    return {
        "name": side.name,
        "method": runs[0].part.recipe.method,
        "runs": [str(run.folder) for run in runs],
        "seeds": [run.seed for run in runs],
        "each": scores.mean(axis=1).tolist(),
        "value": float(scores.mean()),
        "low": low,
        "high": high,
        "tasks": len(tasks) or None,
        "coverage": float(np.mean([run.row["scored"] / run.row["episodes"] for run in runs])),
        "iqm": crossed.interquartile_mean(scores),
        "passes": _passes(runs),
        "spent": _means([run.spent for run in runs]),
        "rates": _means([run.rates for run in runs]),
        "updates": float(np.mean([run.books["funnel"]["updates"] for run in runs])),
        "evaluation_seconds": float(
            np.mean([run.books["time"].get("evaluation", 0.0) for run in runs])
        ),
        "peak_memory": max(memory) if len(memory) == len(runs) else None,
        "failed": side.failed,
        "trials": side.trials,
        "chosen": side.chosen,
    }


def _axes(side: Side, base: Side) -> dict[str, list[str]]:
    if not base.runs:
        return {}
    ours, theirs = (each.runs[0].part.recipe for each in (side, base))
    return axes(ours, theirs, {*side.chosen, *base.chosen})


def _passes(runs: Sequence[Ran]) -> dict[str, float]:
    """pass@k and pass^k of the tasks that all runs tried ``k`` times, k up to the attempts."""
    least = min((n for run in runs for _, n in run.outcomes.values() if n), default=0)
    found: dict[str, float] = {}
    if least < 2 or not all(run.outcomes for run in runs):
        return found
    pairs = [pair for run in runs for pair in run.outcomes.values() if pair[1]]
    for k in dict.fromkeys([*(2**i for i in range(least.bit_length())), least]):
        found[f"pass@{k}"] = float(np.mean([pass_at_k(n, c, k) for c, n in pairs]))
        found[f"pass^{k}"] = float(np.mean([pass_hat_k(n, c, k) for c, n in pairs]))
    return found


def _means(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Mean of every key that all rows have."""
    keys = [key for key in rows[0] if all(key in row for row in rows)]
    return {key: float(np.mean([row[key] for row in rows])) for key in keys}


# -- two arms ----------------------------------------------------------------------------------


def _contrast(side: Side, base: Side, ask: Ask) -> dict[str, Any]:
    """The difference over shared seeds and tasks; without two shared seeds only its value.

    ``unlike``: what keeps the two from being compared.
    """
    ours, theirs = side.by_seed(), base.by_seed()
    seeds = sorted(set(ours) & set(theirs))
    found: dict[str, Any] = {"arm": side.name, "base": base.name, "seeds": seeds, "tasks": None}
    if not seeds:
        return found
    found["unlike"] = incomparable(side, base)
    pairs = [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]
    tasks = _tasks([*pairs[0], *pairs[1]], ask.metric)
    mine, other = (_scores(runs, tasks, ask.metric) for runs in pairs)
    difference = mine - other
    low, high = _span(difference)
    each = difference.mean(axis=1).tolist()
    found |= {"tasks": len(tasks) or None, "each": each, "low": low, "high": high}
    found |= {"difference": float(difference.mean())}
    found["improvement"] = crossed.probability_of_improvement(mine, other)
    if len(seeds) > 1:
        variance = Variance.of(difference)
        result = crossed.test(variance, ask.margin)
        found |= {"error": result.error, "different": result.different, "within": result.within}
        found["variance"] = {"seeds": variance.seeds, "tasks": variance.tasks}
    return found


def _decide(contrasts: list[dict[str, Any]], margin: float) -> None:
    """Add to every contrast Holm's p-values, the verdict and the seeds that it needs.

    What cannot be compared is not tested, and is no test that Holm's adjustment would count.
    """
    tested = [each for each in contrasts if "different" in each and not each["unlike"]]
    for key in ("different", "within"):
        for each, value in zip(tested, holm([row[key] for row in tested]), strict=True):
            each[f"{key}_holm"] = value
    for each in contrasts:
        each["seeds_needed"], each["verdict"] = None, UNLIKE if each.get("unlike") else OPEN
        parts = each.pop("variance", None)
        if "different_holm" not in each:
            continue
        span, seeds = (each["low"], each["high"]), len(each["seeds"])
        each["verdict"] = judge(seeds, span, margin, each["different_holm"], each["within_holm"])
        shape = seeds, each["tasks"] or 1
        variance = Variance(each["difference"], parts["seeds"], parts["tasks"], shape)
        alpha = ALPHA / len(tested)
        each["seeds_needed"] = crossed.seeds_needed(variance, margin, alpha, POWER)


# -- around it ---------------------------------------------------------------------------------


def _curve(sides: Sequence[Side], ask: Ask) -> list[dict[str, Any]]:
    """Success on selection at equal shares of the budget: where all runs of an arm have it."""
    assert ask.budget is not None
    key, size = ask.budget
    rows = []
    for point in range(ask.points + 1):
        for side in sides:
            amount, end = size * point / ask.points, point == ask.points
            seen = [run.at(key, amount, end=end) for run in side.runs]
            known = [each for each in seen if each is not None]
            if len(known) < len(seen):
                continue
            success, spent = (float(np.mean(values)) for values in zip(*known, strict=True))
            share = point / ask.points
            rows.append({"arm": side.name, "share": share, "success": success, "spent": spent})
    return rows


def _missing(absent: Sequence[dict[str, Any]]) -> list[str]:
    """Arms of which nothing is known."""
    tried = [f" ({side['failed']} failed attempts)" if side["failed"] else "" for side in absent]
    return [
        f"{side['name']} has no finished run{many}: it is left out"
        for side, many in zip(absent, tried, strict=True)
    ]


def _unlike(contrasts: Sequence[dict[str, Any]]) -> list[str]:
    """Arms that are given no verdict, and why."""
    return [
        f"{row['arm']} was evaluated under other conditions ({', '.join(row['unlike'])}): "
        "no verdict"
        for row in contrasts
        if row.get("unlike")
    ]


def _notes(sides: Sequence[Side], ask: Ask) -> list[str]:
    """What a reader must know before believing the table."""
    notes = []
    if ask.changes:
        notes.append(f"changed after the study began: {', '.join(ask.changes)}")
    few = [side.name for side in sides if len(side.runs) < LEAST_SEEDS]
    if few:
        notes.append(f"fewer than {LEAST_SEEDS} seeds, so no verdict: {', '.join(few)}")
    if any(not run.outcomes for side in sides for run in side.runs):
        notes.append(
            "outcomes of single tasks were not kept by every run: intervals are over seeds alone, "
            "for these tasks only"
        )
    seeds = {tuple(run.seed for run in side.runs) for side in sides}
    if len(seeds) > 1:
        notes.append("arms were run with unlike seeds: only those that both have are compared")
    if ask.budget is None:
        notes.append("no budget is the same in all recipes: nothing is matched")
        return notes
    key, size = ask.budget
    for side in sides:
        used = [run.spent[key] / size for run in side.runs]
        if not any(run.books["funnel"]["updates"] for run in side.runs):
            notes.append(f"{side.name} was not trained: it spent nothing of the budget")
        elif not side.matched:
            notes.append(f"{side.name} was given another budget than {key}: it is not matched")
        elif max(abs(share - 1.0) for share in used) > OVERSHOOT:
            spent = ", ".join(f"{share:.0%}" for share in used)
            notes.append(f"{side.name} spent {spent} of the budget {key}: it is not matched")
    return notes


def common_budget(sides: Sequence[Side]) -> tuple[str, float] | None:
    """Key and size of the one budget that all recipes have in common, if there is one."""
    limits = [run.part.recipe.budget.model_dump() for side in sides for run in side.runs]
    shared = [
        (key, float(limits[0][key]))
        for key in BUDGETS
        if limits[0][key] is not None and all(row[key] == limits[0][key] for row in limits)
    ]
    return shared[0] if len(shared) == 1 else None
