"""A method's card: one screen that a researcher can read and trust."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from hexad.recipe.methods.record import Method

WIDTH = 78


def card(record: Method) -> str:
    """Plain text: equation, source, assumptions, axis values, functions, notes."""
    return "\n".join(_lines(record))


def page(record: Method) -> str:
    """The card as a Markdown page of the documentation."""
    axes = "\n".join(f"| `{key}` | `{value}` |" for key, value in record.values().items())
    code = "\n".join(f"| {role} | `{name}` |" for role, name in record.functions.items())
    state = f"Does not run yet: it needs {record.missing}.\n\n" if record.missing else ""
    return (
        f"# {record.name}: {record.title}\n\n"
        f"{state}```text\n{_wrapped(record.equation)}\n```\n\n"
        f"Source: {record.source}.\n\n"
        f"Needs: {'; '.join(_assumptions(record))}. Atom: {record.atom}.\n\n"
        f"{record.notes}\n\n"
        f"| axis | preset |\n|---|---|\n{axes}\n\n| what | code |\n|---|---|\n{code}\n"
    )


def _lines(record: Method) -> Iterator[str]:
    yield f"{record.name}: {record.title}"
    yield ""
    yield _wrapped(record.equation, "    ")
    yield ""
    yield _wrapped(f"source  {record.source}", hang=8)
    yield f"needs   {'; '.join(_assumptions(record))}"
    yield f"atom    {record.atom} (micro-batches never split it)"
    if record.missing:
        yield f"runs    not yet: needs {record.missing}"
    yield ""
    for key, value in record.values().items():
        yield f"    {key:<26} {value}"
    yield ""
    for role, name in record.functions.items():
        yield f"    {role:<26} {name}"
    yield ""
    yield _wrapped(record.notes)


def _assumptions(record: Method) -> list[str]:
    assume = record.assumptions
    found = ["a critic"] if assume.critic else []
    if assume.min_group_size > 1:
        found.append(f"{assume.min_group_size} or more attempts at a task")
    if assume.behaviour_logprobs:
        found.append("log-probs recorded at sampling")
    if assume.reference:
        found.append("a frozen reference policy")
    found.append("stale data is corrected" if assume.tolerates_lag else "fresh data")
    source = record.axes["feedback"]["source"]
    if source == "demonstrations":
        return ["expert actions"]
    return ["preferences", *found[:-1]] if source == "preferences" else found


def _wrapped(text: str, indent: str = "", hang: int = 0) -> str:
    later = indent + " " * hang
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=later)
