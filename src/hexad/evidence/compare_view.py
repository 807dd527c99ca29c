"""A comparison for people: the same tables on the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hexad.contract.durable import disk_errors, write_whole

Document = dict[str, Any]
_LABELS = {"seconds": "wall-clock seconds"}


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table: its first column names the rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: bool = False
    """Cells are text, to be read from the left."""


def sheets(found: Document) -> list[Sheet]:
    """The tables of a comparison, those without rows left out."""
    made = [_verdicts(found), _arms(found), _curve(found), _axes(found), _manifest(found)]
    return [sheet for sheet in (*made, _offers(found)) if sheet.rows]


def render(found: Document) -> Group:
    """The comparison on the terminal."""
    shown: list[RenderableType] = [Text(line) for line in headlines(found)]
    for sheet in sheets(found):
        table = Table(title=sheet.title, title_justify="left", title_style="bold")
        for index, column in enumerate(sheet.columns):
            table.add_column(column, justify="left" if sheet.words or not index else "right")
        for row in sheet.rows:
            table.add_row(*(Text(cell) for cell in row))
        shown.append(table)
    return Group(*shown, *(Text(f"note: {note}") for note in found["notes"]))


def markdown(found: Document) -> str:
    """The comparison as a Markdown page."""
    lines = [f"# {found['study']}", "", *(f"{line}\n" for line in headlines(found))]
    for sheet in sheets(found):
        align = [
            ":--" if sheet.words or not index else "--:" for index in range(len(sheet.columns))
        ]
        lines += [f"## {sheet.title}", "", _cells(sheet.columns), _cells(align)]
        lines += [*(_cells(row) for row in sheet.rows), ""]
    if found["notes"]:
        lines += ["## Notes", "", *(f"- {_escaped(note)}" for note in found["notes"]), ""]
    return "\n".join(lines)


def write(found: Document, folder: Path, text: str) -> None:
    """Write ``comparison.md``, and ``text`` (the document as JSON) to ``comparison.json``."""
    with disk_errors("write the comparison", folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "comparison.md", markdown(found).encode(), "comparison")
        write_whole(folder / "comparison.json", text.encode(), "comparison")


def headlines(found: Document) -> list[str]:
    """What was compared, how it was measured, and a sentence on each verdict."""
    metric, budget, method = found["metric"], found["budget"], found["method"]
    matched = "no matched budget" if budget is None else f"{budget['size']:,.0f} {budget['key']}"
    absent = [side["name"] for side in found["absent"]]
    named, margin = metric["name"], 100 * metric["margin"]
    return [
        f"{named} on {metric['split']} against {found['base']}, at {matched}; a difference "
        f"below {margin:g} points does not matter",
        f"intervals: {method['interval']}, {method['confidence']:.0%}, {method['draws']:,} draws, "
        f"seed {method['seed']}; p: {method['test']}; a verdict needs both",
        *(f"{row['arm']}: {_sentence(row, absent)}" for row in found["contrasts"]),
        f"hidden tasks were used {found['hidden_uses']} times in these "
        f"{sum(len(arm['runs']) for arm in found['arms'])} runs",
    ]


def _sentence(row: Document, absent: Sequence[str]) -> str:
    if "difference" not in row:
        return f"{row['verdict']}: {_untold(row, absent)}"
    low, high = 100 * row["low"], 100 * row["high"]
    text = f"{row['verdict']}: {100 * row['difference']:+.1f} points [{low:+.1f}, {high:+.1f}]"
    text = f"{text} over {len(row['seeds'])} seeds"
    return f"{text}; unlike: {', '.join(row['unlike'])}" if row["unlike"] else text


def _untold(row: Document, absent: Sequence[str]) -> str:
    """Why there is no difference to tell."""
    if row["arm"] in absent:
        return "no finished run"
    if row["base"] in absent:
        return f"{row['base']} has no finished run"
    return f"no seed in common with {row['base']}"


def _verdicts(found: Document) -> Sheet:
    columns = (
        "arm", "verdict", "difference", "95 %", "p (Holm)", "p beyond margin (Holm)",
        "P(improvement)", "seeds", "tasks", "seeds needed",
    )  # fmt: skip
    rows = []
    for row in found["contrasts"]:
        if "difference" not in row:
            rows.append((row["arm"], row["verdict"], *["-"] * (len(columns) - 2)))
            continue
        rows.append(
            (
                row["arm"],
                row["verdict"],
                f"{100 * row['difference']:+.2f}",
                f"[{100 * row['low']:+.2f}, {100 * row['high']:+.2f}]",
                _number(row.get("different_holm"), "{:.3f}", "-"),
                _number(row.get("within_holm"), "{:.3f}", "-"),
                f"{row['improvement']:.2f}",
                str(len(row["seeds"])),
                _number(row["tasks"], "{}", "not kept"),
                _needed(row),
            )
        )
    return Sheet(f"Verdicts against {found['base']} (points)", columns, tuple(rows))


def _needed(row: Document) -> str:
    if row["unlike"]:
        return "-"
    if "different" not in row:
        return "unknown: one seed tells no variance"
    return _number(row["seeds_needed"], "{}", "more tasks")


def _arms(found: Document) -> Sheet:
    arms = found["arms"]
    name = found["metric"]["name"]
    rows = [
        (f"{name}, %", *(f"{100 * arm['value']:.1f}" for arm in arms)),
        ("95 %", *(f"[{100 * arm['low']:.1f}, {100 * arm['high']:.1f}]" for arm in arms)),
        ("each seed", *(" ".join(f"{100 * v:.1f}" for v in arm["each"]) for arm in arms)),
        ("interquartile mean", *(f"{100 * arm['iqm']:.1f}" for arm in arms)),
        ("seeds", *(" ".join(map(str, arm["seeds"])) for arm in arms)),
        ("scored", *(f"{100 * arm['coverage']:.1f} %" for arm in arms)),
        *_section(arms, "passes", ("{}, %", 100.0, "{:.1f}")),
        *_section(arms, "spent", ("{}", 1.0, "{:,.0f}")),
        *_section(arms, "rates", ("{}, %", 100.0, "{:.2f}")),
        ("optimiser steps", *(f"{arm['updates']:,.0f}" for arm in arms)),
        ("evaluation seconds", *(f"{arm['evaluation_seconds']:,.0f}" for arm in arms)),
        ("peak memory, MiB", *(_number(_mebi(arm["peak_memory"]), "{:,.0f}") for arm in arms)),
        ("failed attempts", *(_number(arm["failed"], "{}") for arm in arms)),
        ("tuning trials", *(_number(arm["trials"], "{}") for arm in arms)),
        ("tuned", *(", ".join(f"{k}={v}" for k, v in arm["chosen"].items()) for arm in arms)),
    ]
    title = "Arms (means over seeds)"
    return Sheet(title, ("", *(arm["name"] for arm in arms)), tuple(rows))


def _curve(found: Document) -> Sheet:
    names = [arm["name"] for arm in found["arms"]]
    if found["budget"] is None:
        return Sheet("", (), ())
    size, key = found["budget"]["size"], found["budget"]["key"].replace("_", " ")
    cells = {(row["share"], row["arm"]): row for row in found["curve"]}
    rows = []
    for share in sorted({share for share, _ in cells}):
        shown = [
            f"{100 * row['success']:.1f} ({row['spent']:,.0f} = {row['spent'] / size:.0%})"
            if (row := cells.get((share, name)))
            else "-"
            for name in names
        ]
        rows.append((f"{share:.0%}", *shown))
    title = f"Success on selection at equal shares of the budget, % (spent {key} = share)"
    return Sheet(title, ("share", *names), tuple(rows))


def _axes(found: Document) -> Sheet:
    rows: list[tuple[str, ...]] = []
    for arm in found["arms"]:
        if arm["name"] == found["base"]:
            continue
        axes = arm["axes"]
        keys = ", ".join(key for each in axes.values() for key in each)
        flag = "" if len(axes) < 2 else "more than one axis: a difference has no single cause"
        rows.append((arm["name"], ", ".join(axes) or "none", keys or "-", flag))
    if found["base"] in [side["name"] for side in found["absent"]]:
        rows = []
    title = f"What differs from {found['base']}"
    return Sheet(title, ("arm", "axes", "keys", "flag"), tuple(rows), words=True)


def _manifest(found: Document) -> Sheet:
    rows = tuple((r["item"], r["state"], r["detail"]) for r in found["manifest"])
    return Sheet("Fair-comparison manifest", ("item", "state", "detail"), rows, words=True)


def _offers(found: Document) -> Sheet:
    rows = tuple((o["name"], o["state"], o["reason"] or o["what"]) for o in found["offers"])
    return Sheet("Simple rivals", ("rival", "state", ""), rows, words=True)


def _section(
    arms: Sequence[Document], section: str, form: tuple[str, float, str]
) -> list[tuple[str, ...]]:
    """A row a key of ``section``. ``form``: of the label, a factor, and of the number."""
    label, factor, shape = form
    return [
        (
            label.format(_LABELS.get(key, key.replace("_", " "))),
            *(shape.format(factor * a[section][key]) if key in a[section] else "-" for a in arms),
        )
        for key in dict.fromkeys(key for arm in arms for key in arm[section])
    ]


def _mebi(value: int | None) -> float | None:
    return None if value is None else value / 2**20


def _number(value: Any, form: str, absent: str = "unknown") -> str:
    return absent if value is None else form.format(value)


def _cells(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
