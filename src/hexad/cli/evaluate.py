"""``hexad evaluate``: closed-loop success of a finished or interrupted run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hexad.contract.faults import UserError
from hexad.contract.task import Split


def evaluate(
    run_dir: Path,
    split: str,
    tasks: int | None,
    console: Console,
    attempts: int = 1,
    which: str = "last",
) -> dict[str, Any]:
    """Evaluate a checkpoint on ``split``; ``tasks`` defaults to all of the recipe's.

    ``which`` is ``last`` (the newest), ``best`` (on selection; what did better and has no
    checkpoint is told) or a version. Raises ``UserError`` for an unknown split and for a folder
    that is not a run.
    """
    names = [str(known) for known in Split]
    if split not in names:
        fix = f"choose one of {', '.join(names)}"
        raise UserError(f"there is no split {split!r}", where="--split", fix=fix)
    from hexad.evidence import selection
    from hexad.evidence.folder import parts

    saved = [part for part in parts(run_dir) if any(part.folder.glob("checkpoints/step_*"))]
    if not saved:
        fix = "train first, or resume the run until its first checkpoint"
        raise UserError("this run has no checkpoint yet", where=str(run_dir), fix=fix)
    part = saved[-1]
    better = selection.unsaved(part.folder) if which == "best" else None

    from hexad import run
    from hexad.cli.progress import Watcher

    row = run.evaluate(
        part.folder,
        Split(split),
        tasks=tasks,
        attempts=attempts,
        which=which,
        watcher=Watcher(console),
    )
    console.print(table(row, part.name))
    if better is not None:
        console.print(f"of selection: {selection.line({'unsaved': better.row()})}", highlight=False)
    uses = part.hidden_uses
    if split == "hidden":
        console.print(f"hidden tasks were used {uses} times in this run folder", highlight=False)
    return {**row, "run": str(run_dir), "hidden_uses": uses}


def table(row: dict[str, Any], name: str) -> Table:
    """The evaluation as a rich table."""
    from hexad.evidence.summary import rate

    shown = Table(title=f"{name}, step {row['step']}, on {row['split']}", title_justify="left")
    shown.add_column("")
    shown.add_column("", justify="right")
    label = "pairs ranked right" if row.get("measure") == "pairs" else "success"
    shown.add_row(label, rate(row) if "success" in row else "nothing was scored")
    if "agreement" in row:
        shown.add_row(f"right and wrong parted at {row['cut']:.3g}", rate(row["agreement"]))
    shown.add_row("episodes, not scored", f"{row['episodes']}, {row['unscored']}")
    shown.add_row(
        "violating, correct but unauthorised", f"{row['violations']}, {row['unauthorised']}"
    )
    for title, key in (("verdict", "verdicts"), ("ending", "endings"), ("fault", "faults")):
        for kind, count in sorted(row[key].items()):
            shown.add_row(f"{title} {kind}", str(count))
    for key in ("turns", "sampled_tokens", "tool_calls", "cost"):
        if key in row:
            shown.add_row(f"{key.replace('_', ' ')} per episode", f"{row[key]['mean']:.1f}")
    for stratum, inner in row["strata"].items():
        shown.add_row(stratum, rate(inner) if "success" in inner else "nothing was scored")
    return shown
