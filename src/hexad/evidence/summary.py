"""The short end of a run: what was reached, what it cost, and what is not known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from hexad.evidence import (
    audit,
    conduct,
    imitation_report,
    profiles,
    qualify,
    selection,
    verifiers,
    visits,
)
from hexad.evidence.critic import order
from hexad.evidence.folder import Part, Row, parts
from hexad.evidence.staleness_report import staleness_report
from hexad.evidence.triggers import fired
from hexad.evidence.utilisation import lines as together
from hexad.evidence.utilisation import utilisation

PROFILE = "barrier profile"
AGREEMENT = "verifier agreement"
MEASURES = {"success": "success", "pairs": "pairs ranked right"}
"""What the rate of an evaluation is of."""
NOT_MEASURED = (AGREEMENT, PROFILE)
"""Evidence that a careful reader would ask for and that this run does not have."""


def summarize(run_dir: Path) -> dict[str, Any]:
    """The run in ``run_dir`` as JSON; what was not measured is absent or said to be so.

    Raises ``UserError`` when the folder is not a run.
    """
    found = parts(run_dir)
    stages = [_stage(part) for part in found]
    curve = run_dir / "curve.png"
    return {
        "run": str(run_dir),
        "stages": stages,
        "hidden_uses": sum(stage["hidden_uses"] for stage in stages),
        "not_measured": [name for name in NOT_MEASURED if not _EVIDENCE[name](found)],
        **({"curve": str(curve)} if curve.exists() else {}),
    }


def _stage(part: Part) -> dict[str, Any]:
    books = part.ledger or {}
    budget = part.recipe.budget.model_dump(exclude_none=True)
    consumed: Row = {**books.get("consumed", {}), "seconds": books.get("time", {}).get("train", 0)}
    stage: dict[str, Any] = {
        "name": part.name,
        "method": part.recipe.method,
        "batches": len(part.metrics),
        "budget": {k: {"used": consumed.get(k, 0), "limit": v} for k, v in budget.items()},
        "hidden_uses": part.hidden_uses,
        "verifiers": verifiers.read(part.folder),
        "audit": audit.read(part.folder),
        "visits": visits.lines(part.evaluations),
        "checkpoint": selection.told(part.folder),
        **{split: _span(part.on(split)) for split in ("hidden", "selection") if part.on(split)},
    }
    if part.recipe.timing.mode == "asynchronous" and not profiles.known(part.recipe, part.folder):
        stage["unprofiled"] = True
    if held := _constraints(part):
        stage["constraints"] = held
    if ends := imitation_report.ends(part.on("selection") or part.on("hidden")):
        stage["imitation"] = ends
    if signs := fired(part.recipe, part.metrics, part.on("selection")):
        stage["signs"] = signs
    if part.gate is not None:
        stage["gate"] = part.gate.model_dump()
    if books:
        seconds = {k: v for k, v in books["time"].items() if k != "train"}
        kept = {key: books[key] for key in ("consumed", "funnel", "books", "groups", "killed")}
        stage |= {**kept, "auxiliary": books["auxiliary"], "seconds": seconds}
        ended = books["funnel"]["ended"]
        if ended["count"]:
            stage["fault_rate"] = ended.get("failed", 0) / ended["count"]
        judged = sum(_groups(books, kind) for kind in ("all_correct", "all_wrong", "mixed"))
        if judged:
            stage["mixed_groups"] = _groups(books, "mixed") / judged
        further = ("critic", "staleness", "drops", "rows", "conduct")
        stage |= {key: books[key] for key in further if key in books}
        if (found := utilisation(part.metrics)) is not None:
            stage["utilisation"] = found
    return stage


def _constraints(part: Part) -> dict[str, Row]:
    """Multiplier, cost and limit of each constraint at the last batch."""
    last = part.metrics[-1] if part.metrics else {}
    keys = ("multiplier", "cost", "limit")
    return {
        name: {key: last[f"constraint/{name}/{key}"] for key in keys}
        for name in part.recipe.feedback.constraints
        if f"constraint/{name}/cost" in last
    }


def _profiled(found: Sequence[Part]) -> bool:
    """Whether every stage that samples has a profile (``hexad check``)."""
    online = [part for part in found if part.recipe.data.regime == "online"]
    return bool(online) and all(profiles.known(part.recipe, part.folder) for part in online)


def _qualified(found: Sequence[Part]) -> bool:
    """Whether the training verifier of every stage that samples was measured."""
    trained = [(part, verifiers.read(part.folder).get("training")) for part in found]
    shares = [
        kept is not None and qualify.agreement(part.recipe, part.folder, kept["digest"]) is not None
        for part, kept in trained
        if part.recipe.data.regime != "fixed"
    ]
    return bool(shares) and all(shares)


_EVIDENCE = {PROFILE: _profiled, AGREEMENT: _qualified}


def _groups(books: Row, kind: str) -> int:
    return int(books["groups"].get(kind, {}).get("groups", 0))


def _span(rows: list[Row]) -> dict[str, Any]:
    keys = ("step", "success", "low", "high", "scored", "correct")
    return {
        name: {key: row[key] for key in keys} | {"measure": row.get("measure", "success")}
        for name, row in (("start", rows[0]), ("end", rows[-1]))
    }


def render(summary: dict[str, Any]) -> Group:
    """The summary as a rich renderable: a table with one column a stage, and a few lines."""
    table = Table(title=f"Summary of {summary['run']}", title_justify="left", title_style="bold")
    table.add_column("")
    for stage in summary["stages"]:
        name, method = stage["name"], stage["method"]
        table.add_column(name if name == method else f"{name} ({method})", justify="right")
    shown = [_lines(stage) for stage in summary["stages"]]
    for label in dict.fromkeys(label for lines in shown for label in lines):
        table.add_row(label, *(lines.get(label, "") for lines in shown))
    notes = [
        Text(f"hidden tasks were used {times(summary['hidden_uses'])} in this run folder"),
        Text("not measured: " + ", ".join(summary["not_measured"])),
    ]
    notes += [Text(line) for stage in summary["stages"] for line in signs(stage)]
    notes += [
        Text(f"{stage['name']}: asynchronous without a measured {PROFILE}")
        for stage in summary["stages"]
        if stage.get("unprofiled")
    ]
    cards = [line for stage in summary["stages"] for line in verifiers.lines(stage["verifiers"])]
    notes += [Text(line) for line in dict.fromkeys(cards)]
    notes += [Text(audit.line(s["audit"])) for s in summary["stages"] if s["audit"] is not None]
    if "curve" in summary:
        notes.append(Text(f"curve: {summary['curve']}"))
    reports = [critic_report(stage) for stage in summary["stages"] if "critic" in stage]
    stale = [part for stage in summary["stages"] for part in staleness_report(stage)]
    return Group(table, *reports, *stale, *notes)


def signs(stage: dict[str, Any]) -> list[str]:
    """Signs to change direction: the newest stretch of each, and how many there were before."""
    found = stage.get("signs", [])
    newest = {sign["key"]: sign for sign in found}
    lines = []
    for key, sign in newest.items():
        before = sum(each["key"] == key for each in found) - 1
        again = f", {times(before)} before" if before else ""
        state = f"since batch {sign['step']}" if sign["holds"] else f"at batch {sign['step']}"
        lines.append(f"{stage['name']}: {state}{again}: {sign['what']}: {sign['then']}")
    return lines


def critic_report(stage: dict[str, Any]) -> Table:
    """Does the critic deserve belief? Its values on the last batch against realised returns."""
    critic = stage["critic"]
    table = Table(
        title=f"Critic of {stage['name']}, on its last batch",
        title_justify="left",
        caption=f"{critic['batches']} updates of {critic['steps']} steps before it, "
        f"{critic['behind']} policy steps behind; {critic['bootstrapped']} episodes bootstrapped "
        f"at a cut, {critic['missing']} without a state there; undefined: the returns do not vary",
        caption_justify="left",
    )
    for column in ("clock steps", "n", "explained variance", "return", "value", "bias"):
        table.add_column(column, justify="left" if column == "clock steps" else "right")
    for name in sorted(critic["slices"], key=order):  # JSON has sorted them by letter
        row = critic["slices"][name]
        spread = f"{_number(row['return_mean'])} ± {_number(row['return_std'])}"
        table.add_row(
            name,
            f"{row['n']:,}",
            _number(row["explained_variance"]),
            spread,
            _number(row["value_mean"]),
            _number(row["bias"]),
        )
    return table


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"


def _lines(stage: dict[str, Any]) -> dict[str, str]:
    lines = {}
    for split in ("hidden", "selection"):
        for end in ("start", "end"):
            if split in stage:
                measured = stage[split][end]
                lines[f"{split} {MEASURES[measured['measure']]}, {end}"] = rate(measured)
    lines |= selection.lines(stage["checkpoint"])
    lines["batches"] = str(stage["batches"])
    for key, spent in stage["budget"].items():
        used, limit = spent["used"], spent["limit"]
        lines[f"budget {key}"] = f"{used:,.0f} of {limit:,.0f} ({used / limit:.0%})"
    if "funnel" not in stage:
        return lines
    funnel, books = stage["funnel"], stage["books"]
    lines["tasks > started > ended"] = _chain(
        funnel["tasks"], funnel["started"], funnel["ended"]["count"]
    )
    lines["rewarded > valid > accepted"] = _chain(
        *(funnel[name]["count"] for name in ("rewarded", "valid", "accepted"))
    )
    lines["action tokens > updates"] = _chain(funnel["tokens"]["action"], funnel["updates"])
    lines |= imitation_report.lines(stage.get("imitation", ())) | _rows(stage)
    lines |= stage.get("visits", {})
    lines["dropped tokens"] = f"{sum(books['dropped'].values()):,}"
    lines |= together(stage.get("utilisation"))
    lines |= conduct.lines(stage.get("conduct", {}))
    lines |= _held(stage.get("constraints", {}))
    if "mixed_groups" in stage:
        lines["mixed groups"] = f"{stage['mixed_groups']:.1%}"
    if "fault_rate" in stage:
        lines["faulted episodes"] = f"{stage['fault_rate']:.2%}"
    if stage["killed"]["episodes"]:
        lines["episodes done twice"] = f"{stage['killed']['episodes']:,}"
    for phase, seconds in sorted(stage["seconds"].items(), key=lambda item: -item[1]):
        lines[f"seconds {phase}"] = f"{seconds:,.1f}"
    return lines


def _held(constraints: dict[str, Row]) -> dict[str, str]:
    return {
        f"constraint {name}": f"{row['cost']:.3g} of {row['limit']:.3g}, "
        f"multiplier {row['multiplier']:.3g}"
        for name, row in constraints.items()
    }


def _rows(stage: dict[str, Any]) -> dict[str, str]:
    """How many rows of a data set are used."""
    if "rows" not in stage:
        return {}
    read, dropped = stage["rows"]["read"], stage["rows"]["dropped"]
    return {"rows read > used": _chain(read, read - sum(dropped.values()))}


def rate(row: Row) -> str:
    """``93.0 % [90.1, 95.1] of 400``: success, its 95 % Wilson interval, and of how many."""
    low, high = 100 * row["low"], 100 * row["high"]
    return f"{100 * row['success']:.1f} % [{low:.1f}, {high:.1f}] of {row['scored']}"


def _chain(*counts: int) -> str:
    return " > ".join(f"{count:,}" for count in counts)


def times(count: int) -> str:
    """``never``, ``once``, ``twice``, ``3 times``."""
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")
