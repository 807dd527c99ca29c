"""The end of a run in at most ten lines: what the overview page says, for a terminal."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence

from hexad.contract.ending import FAULTED
from hexad.contract.verdict import VerdictStatus
from hexad.evidence import selection
from hexad.evidence.conduct import CELLS
from hexad.evidence.folder import Row
from hexad.evidence.summary import MEASURES, PROFILE, rate, signs, times
from hexad.view.facts import Facts
from hexad.view.lights import AMBER, GREEN, OFF, RED, UNKNOWN, decisive, lights

_VERIFIER = VerdictStatus.VERIFIER_ERROR
"""The one fault that is no ending; the verdicts of endings that faulted repeat them."""
_SPENT = ("episodes", "rollout_tokens", "train_tokens")
_NONE = "none"


def states(stages: Sequence[Facts]) -> list[Row]:
    """One entry a stage and axis: its colour, and the finding that decides it."""
    found = []
    for facts in stages:
        for light in lights(facts):
            least = decisive(light)
            entry = {"stage": facts.part.name, "axis": light.axis, "state": light.state}
            found.append(entry | {"name": least.name, "value": least.value, "rule": least.rule})
    return found


def brief(summary: Row) -> list[str]:
    """The lines of ``summary``: that of ``evidence.summary`` with ``reason`` and ``axes``.

    ``axes`` are :func:`states`. A line about which the run has nothing to say is left out.
    """
    stages = summary["stages"]
    lines = {
        f"{summary['run']}:": _ended(summary),
        "hidden": _success(stages, "hidden", f", used {times(summary['hidden_uses'])}"),
        "selection": _success(stages, "selection", _best(stages[-1])),
        "spent": _spent(stages),
        "lost": _lost(stages),
        "axes": _colours(summary["axes"], several=len(stages) > 1),
        "because": _causes(summary["axes"], several=len(stages) > 1),
        "signs": "; ".join(line for stage in stages for line in signs(stage)),
        "unmeasured": _unmeasured(summary),
        "next": _next(summary),
    }
    width = max(len(name) for name in lines if not name.endswith(":")) + 2
    return [
        f"{name} {text}" if name.endswith(":") else f"{name:<{width}}{text}"
        for name, text in lines.items()
        if text
    ]


def _ended(summary: Row) -> str:
    batches = sum(stage["batches"] for stage in summary["stages"])
    return f"{summary['reason']}, after {batches:,} batches"


def _success(stages: Sequence[Row], split: str, note: str) -> str:
    """From the first evaluation to the last of each stage, with 95 % Wilson intervals."""
    seen = [stage for stage in stages if split in stage]
    if not seen:
        return ""
    first = seen[0][split]
    points = [] if first["start"] == first["end"] else [rate(first["start"])]
    for stage in seen:
        name = f"{stage['name']} " if len(stages) > 1 else ""
        points.append(name + rate(stage[split]["end"]))
    what = MEASURES[seen[-1][split]["end"]["measure"]]
    return f"{what} {' -> '.join(points)}{note}"


def _best(stage: Row) -> str:
    """The best checkpoint, where the last version is not the best one."""
    chosen = stage["checkpoint"] or {}
    kept, last = chosen.get("best"), stage.get("selection", {}).get("end", {})
    if kept is None or kept["step"] == last.get("step"):
        return ""
    return f"; best {selection.line(chosen)}"


def _spent(stages: Sequence[Row]) -> str:
    limits = stages[0]["budget"] if len(stages) == 1 else {}
    used: Counter[str] = Counter()
    for stage in stages:
        used.update({key: stage.get("consumed", {}).get(key, 0) for key in _SPENT})
    told = [_of(key, used[key], limits) for key in _SPENT if used[key]]
    updates = sum(stage["funnel"]["updates"] for stage in stages if "funnel" in stage)
    seconds = sum(sum(stage.get("seconds", {}).values()) for stage in stages)
    return ", ".join([*told, f"{updates:,} optimiser steps", f"{seconds:,.0f} s"])


def _of(key: str, used: float, limits: Row) -> str:
    limit = f" of {limits[key]['limit']:,.0f}" if key in limits else ""
    return f"{used:,.0f}{limit} {key.replace('_', ' ')}"


def _lost(stages: Sequence[Row]) -> str:
    """What was not trained on, by reason, what faulted, by kind, and what was not permitted."""
    dropped, faults, rows, tokens = Counter[str](), Counter[str](), Counter[str](), 0
    for stage in (each for each in stages if "funnel" in each):
        funnel = stage["funnel"]
        dropped.update(funnel["valid"]["lost"])
        dropped.update(funnel["accepted"]["lost"])
        tokens += sum(stage["books"]["dropped"].values())
        kinds, unscored = funnel["ended"]["kinds"], funnel["rewarded"]["lost"]
        faults.update({kind: n for kind, n in kinds.items() if kind in FAULTED})
        faults.update({kind: n for kind, n in unscored.items() if kind == _VERIFIER})
        rows.update(stage.get("rows", {}).get("dropped", {}))
    told = [f"episodes dropped: {_counts(dropped)}", f"tokens dropped: {tokens:,}"]
    told += [f"rows dropped: {_counts(rows)}"] if rows else []
    conduct = [stage["conduct"] for stage in stages if "conduct" in stage]
    if broken := sum(row["violating"] for row in conduct):
        paid = sum(row["cells"].get(CELLS[2], 0) for row in conduct)
        told.append(f"episodes with a violation: {broken:,}, {paid:,} of them successful")
    return "; ".join([*told, f"faults: {_counts(faults)}"])


def _counts(found: Counter[str]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in found.most_common()) or _NONE


def _colours(axes: Sequence[Row], *, several: bool) -> str:
    """Every axis under its colour, stage by stage."""
    told = []
    for stage in dict.fromkeys(each["stage"] for each in axes):
        mine = [each for each in axes if each["stage"] == stage]
        order = (RED, AMBER, GREEN, UNKNOWN, OFF)
        under = {s: [each["axis"] for each in mine if each["state"] == s] for s in order}
        text = "; ".join(f"{state}: {', '.join(names)}" for state, names in under.items() if names)
        told.append(f"{stage} ({text})" if several else text)
    return ", ".join(told)


def _causes(axes: Sequence[Row], *, several: bool) -> str:
    """The rule that fired on each axis that is not green, red ones first."""
    fired = [each for state in (RED, AMBER) for each in axes if each["state"] == state]
    return "; ".join(
        f"{each['stage'] + ' ' if several else ''}{each['axis']}: "
        f"{each['name']} {each['value']} ({each['rule']})"
        for each in fired
    )


def _unmeasured(summary: Row) -> str:
    """Evidence that the run lacks; whoever trained asynchronously without a profile is named."""
    blind = ", ".join(stage["name"] for stage in summary["stages"] if stage.get("unprofiled"))
    return ", ".join(
        f"{name} ({blind} is asynchronous)" if blind and name == PROFILE else name
        for name in summary["not_measured"]
    )


def _next(summary: Row) -> str:
    run = shlex.quote(summary["run"])
    curve = f"; curve: {summary['curve']}" if "curve" in summary else ""
    return f"hexad diagnose {run}; hexad view {run}; all tables: hexad report {run}{curve}"
