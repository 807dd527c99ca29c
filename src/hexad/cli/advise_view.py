"""The advice for people: tables and short lists, in the order in which they are used."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hexad.advice.advise import Advice


def view(advice: Advice) -> Group:
    """Everything that advice says, the recipe apart."""
    found: list[RenderableType] = [*_disagreements(advice), *_start(advice)]
    shapes = [f"{shape.task}: {shape.design}" for shape in advice.shapes]
    found += _list("Shapes of the task", shapes)
    found += _list("The recipe does not carry", advice.draft.remarks)
    found += _list("Must come with it", advice.companions)
    found += _list("Not measured yet", [f"{m.what}: {m.how}" for m in advice.missing])
    return Group(*found, _triggers(advice), _alternatives(advice), _steps(advice))


def _disagreements(advice: Advice) -> Iterable[RenderableType]:
    """Contradictions, and what was stated and measured otherwise."""
    for row in advice.contradictions:
        both = " with ".join(
            f"{key}: {'/'.join(str(v) for v in values)}" for key, values in row.answers.items()
        )
        followed = ", ".join(f"{key}: {value}" for key, value in row.followed.items())
        tail = f"; followed: {followed}" if followed else ""
        yield Text(f"Contradiction: {both}: {row.reason}{tail}", style="yellow")
    for each in advice.differences:
        yield Text(
            f"Measured, not as stated: {each.key}: {each.stated}, but {each.measured} "
            f"({each.source})",
            style="yellow",
        )
    for text in advice.unused:
        yield Text(f"Not used: {text}", style="yellow")


def _start(advice: Advice) -> Iterable[RenderableType]:
    path = advice.path
    if not path.steps:
        yield Text(f"No start for {advice.name} yet", style="bold red")
    else:
        names = " -> ".join(step.method for step in path.steps)
        kind = "Start with" if len(path.steps) == 1 else "Staged path"
        yield Text(f"{kind}: {names}", style="bold green")
    for step in path.steps:
        yield from _list(step.method, step.reasons)
    for start in advice.starts:
        row = (start.data, f"new rollouts: {start.rollouts}", f"critic: {start.critic}")
        yield from _list(
            f"What {start.key} is", (*row, start.credit, start.synchronisation, start.suits)
        )
    if advice.refusals:
        yield from _list("No recipe", advice.refusals)
    if path.later:
        yield from _list(
            "Later: " + " -> ".join(step.method for step in path.later) + ", but first", path.first
        )


def _list(title: str, lines: Iterable[str]) -> list[RenderableType]:
    shown = [Text(f"  - {line}") for line in lines]
    return [Text(title, style="bold"), *shown] if shown else []


def _triggers(advice: Advice) -> RenderableType:
    table = Table(title="Change direction when", title_justify="left")
    for column in ("sign", "fires when", "then"):
        table.add_column(column)
    for trigger in advice.triggers:
        table.add_row(Text(trigger.what), Text(trigger.text), Text(trigger.then))
    return table if advice.triggers else Text("")


def _alternatives(advice: Advice) -> RenderableType:
    table = Table(title="Not the start (this is no ranking)", title_justify="left")
    for column in ("start", "", "assumes that ...", "but"):
        table.add_column(column)
    for each in advice.alternatives:
        assumed = "; ".join(b.assumption for b in each.broken)
        table.add_row(each.key, each.verdict, Text(assumed), Text(each.because))
    return table


def _steps(advice: Advice) -> RenderableType:
    table = Table(title="Order of work", title_justify="left")
    for column in ("", "step", "state", "because"):
        table.add_column(column)
    for item in advice.steps:
        table.add_row(str(item.number), Text(item.title), item.state, Text(item.because))
    return table
