"""``hexad diagnose``: what fails in a run, since when, why, and what to try."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hexad.evidence.diagnosis import words
from hexad.evidence.diagnosis.diagnose import diagnose
from hexad.evidence.folder import parts

Row = dict[str, Any]


def show(run_dir: Path, console: Console, *, sample: bool = True) -> Row:
    """Diagnose every stage of the run in ``run_dir``, with a temperature probe where it helps."""
    with console.status("reading curves and stored episodes"):
        stages = [diagnose(part, sample=sample) for part in parts(run_dir)]
    for stage in stages:
        _print(stage, console)
    return {"run": str(run_dir), "stages": stages}


def _print(stage: Row, console: Console) -> None:
    findings, facts = stage["findings"], stage["facts"]
    if not findings:
        console.print(f"{stage['stage']}: {words.nothing(stage)}", highlight=False, markup=False)
    for finding in findings:
        console.print(Text(f"{stage['stage']}: {words.heading(finding)}", style="bold"))
        for line in finding["evidence"]:
            console.print(Text(f"  seen: {line}"))
        console.print(Text(f"  why:  {finding['causes']}"))
        for number, line in enumerate(finding["tries"], start=1):
            console.print(Text(f"  try {number}: {line}"))
    if rows := words.looked_at(facts):
        table = Table(title=words.title(facts), title_justify="left", show_header=False)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for line in stage["not_checked"]:
        console.print(Text(f"not checked: {line}"))
