"""``hexad diagnose``: what fails in a run, since when, why, and what to try."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hexad.evidence.diagnosis.diagnose import diagnose
from hexad.evidence.folder import parts

Row = dict[str, Any]


def show(run_dir: Path, console: Console) -> Row:
    """Diagnose every stage of the run in ``run_dir``."""
    with console.status("reading curves and stored episodes"):
        stages = [diagnose(part) for part in parts(run_dir)]
    for stage in stages:
        _print(stage, console)
    return {"run": str(run_dir), "stages": stages}


def _print(stage: Row, console: Console) -> None:
    findings, facts = stage["findings"], stage["facts"]
    if not findings:
        count = len(stage["symptoms"])
        which = (
            f"of the {count} symptoms, none that could be checked"
            if stage["not_checked"]
            else (f"none of {count} symptoms")
        )
        told = f"{stage['stage']}: {which} is seen in {facts['batches']} batches"
        console.print(told, highlight=False)
    for finding in findings:
        since = "" if finding["since"] is None else f", since batch {finding['since']}"
        head = f"{finding['axis']}: {finding['what']}{since} ({finding['confidence']:.0%} sure)"
        console.print(Text(f"{stage['stage']}: {head}", style="bold"))
        for line in finding["evidence"]:
            console.print(Text(f"  seen: {line}"))
        console.print(Text(f"  why:  {finding['causes']}"))
        for number, line in enumerate(finding["tries"], start=1):
            console.print(Text(f"  try {number}: {line}"))
    if "endings" in facts:
        console.print(_facts(facts))
    for line in stage["not_checked"]:
        console.print(Text(f"not checked: {line}"))


def _facts(facts: Row) -> Table:
    """What the newest stored episodes are."""
    title = f"The newest {facts['episodes']} stored episodes, from batch {facts['since_batch']} on"
    table = Table(title=title, title_justify="left", show_header=False)
    for kind, row in facts["endings"].items():
        success = f", success {row['success']:.1%}" if "success" in row else ""
        told = f"{row['episodes']:,} episodes, {row['turns']:.1f} turns{success}"
        table.add_row(f"ending {kind}", told)
    for name, share in facts.get("longest_quarter", {}).items():
        table.add_row(f"longest quarter, denominator {name}", f"{share:.1%} of the loss")
    if facts.get("score_by_length") is not None:
        table.add_row("score and length within groups", f"r = {facts['score_by_length']:+.2f}")
    cells = facts.get("quadrants")
    if cells is not None:
        counts = ", ".join(f"{name} {cells[name]:,}" for name in list(cells)[:4])
        table.add_row("reward - independent outcome", counts)
    return table
