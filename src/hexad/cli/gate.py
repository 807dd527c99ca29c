"""``hexad gate``: may this policy be let out? The exit code says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hexad.cli.evaluate import evaluate
from hexad.contract.faults import UserError
from hexad.recipe.gate import GateFile
from hexad.recipe.load import read_as

Row = dict[str, Any]


def gate(run_dir: Path, file: Path, console: Console, which: str = "last") -> Row:
    """Evaluate the checkpoint ``which`` on the gate tasks and hold it to what ``file`` asks.

    ``passed`` is true where every demand is met; one that could not be measured is not. Raises
    ``UserError`` for a file that asks nothing and for what :func:`evaluate` refuses.
    """
    asked = read_as(GateFile, file)
    if not asked.asks:
        fix = "ask for something: success, invalid, violations, unauthorised, unscored, p95"
        raise UserError("this gate asks nothing, so all would pass", where=str(file), fix=fix)
    row = evaluate(run_dir, "gate", asked.tasks, console, which=which)
    demands = held(asked, row)
    passed = all(demand["met"] for demand in demands)
    console.print(_table(demands, passed))
    return {"run": str(run_dir), "gate": str(file), "passed": passed, "demands": demands, **row}


def held(asked: GateFile, row: Row) -> list[Row]:
    """Each demand with what was measured (``None`` where nothing was) and whether it is met."""
    demands = []
    if asked.success is not None:
        demands.append(_least("success, lower bound", row.get("low"), asked.success))
    invalid = row["verdicts"].get("invalid", 0) + row["endings"].get("invalid_action", 0)
    if asked.invalid is not None:
        demands.append(_most("invalid", invalid, asked.invalid))
    demands += [
        _most(name, row[name], limit)
        for name in ("violations", "unauthorised", "unscored")
        if (limit := getattr(asked, name)) is not None
    ]
    spent = row | {"seconds": row.get("time", {}).get("episode_seconds", {})}
    for name, limit in asked.p95.model_dump(exclude_none=True).items():
        demands.append(_most(f"{name}, p95", spent.get(name, {}).get("p95"), limit))
    return demands


def _least(name: str, measured: float | None, limit: float) -> Row:
    met = measured is not None and measured >= limit
    return {"demand": name, "measured": measured, "at_least": limit, "met": met}


def _most(name: str, measured: float | None, limit: float) -> Row:
    met = measured is not None and measured <= limit
    return {"demand": name, "measured": measured, "at_most": limit, "met": met}


def _table(demands: list[Row], passed: bool) -> Table:
    shown = Table(title="gate passed" if passed else "gate closed", title_justify="left")
    for column in ("demand", "measured", "asked", ""):
        shown.add_column(column, justify="left" if column == "demand" else "right")
    for row in demands:
        measured = "nothing" if row["measured"] is None else f"{row['measured']:.4g}"
        sign, limit = (">=", row["at_least"]) if "at_least" in row else ("<=", row["at_most"])
        shown.add_row(row["demand"], measured, f"{sign} {limit:g}", "" if row["met"] else "missed")
    return shown
