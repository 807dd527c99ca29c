"""``hexad verify`` and ``hexad rescore``: stored episodes, played and judged again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hexad.contract.faults import UserError
from hexad.evidence.archive import opened
from hexad.evidence.audit import CELLS, audit
from hexad.evidence.folder import Part, parts
from hexad.evidence.reproduce import reproduce
from hexad.evidence.rescore import rescore
from hexad.recipe.read import parse

Row = dict[str, Any]


def verify(run_dir: Path, episodes: int, console: Console) -> Row:
    """Play a sample of the last sampling stage again.

    ``reproduced`` is false where any differs, and ``None`` where no log-prob could be compared.
    """
    with console.status("playing stored episodes again"), opened(_sampled(run_dir)) as archive:
        found = reproduce(archive, episodes)
    logprob, verifier = found["logprob"], found["verifier"]
    table = Table(title=f"{found['stage']}: {found['episodes']} episodes", title_justify="left")
    table.add_column("")
    table.add_column("", justify="right")
    largest = "none checked" if logprob["largest"] is None else f"{logprob['largest']:.2g}"
    table.add_row("largest difference of a log-prob", f"{largest}, bound {logprob['bound']:g}")
    table.add_row("episodes with log-probs of a kept checkpoint", str(logprob["episodes"]))
    table.add_row("tools executed again", "yes" if found["executed"] else "no: not undone")
    table.add_row("the verifier's digest", "the same" if verifier["same"] else "another one")
    table.add_row("episodes that differ", str(len(found["differs"])))
    console.print(table)
    for row in found["differs"]:
        console.print(f"{row['episode_id']}: {'; '.join(row['differs'])}", highlight=False)
    for lacking in found["not_checked"]:
        console.print(f"not checked: {lacking}", highlight=False)
    if found["reproduced"] is None:
        console.print("nothing is proved: no log-prob was compared", highlight=False)
    return {"run": str(run_dir), **found}


def rejudge(run_dir: Path, verifier: str | None, options: Sequence[str], console: Console) -> Row:
    """Judge the stored episodes of the last sampling stage by ``verifier`` or the recipe's own.

    ``options`` are the verifier's, as ``key=value`` in YAML.
    """
    part, given = _sampled(run_dir), dict(_option(each) for each in options)
    with console.status("judging stored episodes again"), opened(part, verifier, given) as archive:
        found = rescore(archive)
    table = Table(title=f"{found['stage']}: {found['episodes']} episodes", title_justify="left")
    for column in ("verdict before", "verdict now", "episodes"):
        table.add_column(column, justify="right" if column == "episodes" else "left")
    for row in found["changes"]:
        table.add_row(row["before"], row["now"], str(row["episodes"]))
    console.print(table)
    if found["agreement"] is not None:
        share = f"{found['agreement']:.1%} of {found['compared']} scored both times"
        console.print(f"agreement: {share}", highlight=False)
    before = ", ".join(digest[:12] for digest in found["digests"]["before"])
    now = found["digests"]["now"][:12]
    console.print(f"digest before: {before}; now: {now}", highlight=False)
    console.print(f"written to {found['written']}", highlight=False)
    return {"run": str(run_dir), **found}


def quadrants(
    run_dir: Path, cell: str | None, high: float, process: str | None, console: Console
) -> Row:
    """Training reward, or the gain of ``process``, beside the independent outcome.

    ``cell`` lists the episodes behind one.
    """
    if cell is not None and cell not in CELLS:
        fix = f"choose one of {', '.join(CELLS)}"
        raise UserError(f"there is no cell {cell!r}", where="--cell", fix=fix)
    with console.status("judging stored episodes independently"):
        with opened(_sampled(run_dir)) as archive:
            found = audit(archive, high, process)
    table = Table(title=f"{found['stage']}: stored episodes", title_justify="left")
    whose = "independent" if found["independent"] else "training verifier's"
    for column in (found["of"], f"{whose} hit", f"{whose} miss"):
        table.add_column(column, justify="right")
    for reward, sign in (("high", ">="), ("low", "<")):
        counts = [str(found["cells"][f"{reward}-{outcome}"]) for outcome in ("hit", "miss")]
        table.add_row(f"{reward}, {sign} {high:g}", *counts)
    console.print(table)
    if found["paid_for_nothing"] is not None:
        low, top = found["interval"]
        share = f"{found['paid_for_nothing']:.1%} [{low:.1%}, {top:.1%}]"
        console.print(f"high and missed: {share}", highlight=False)
    for name in found["episodes"][cell] if cell is not None else ():
        console.print(name, highlight=False)
    return {"run": str(run_dir), **found}


def _option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        fix = "for example --option absolute=1e-6"
        raise UserError(f"an option is written key=value, not {text!r}", where="--option", fix=fix)
    return key, parse(value, f"--option {text}")


def _sampled(run_dir: Path) -> Part:
    """The last stage that stored episodes."""
    stored = [part for part in parts(run_dir) if (part.folder / "episodes").is_dir()]
    if not stored:
        fix = "give a run whose recipe samples (data.regime: online)"
        raise UserError("this run stored no episodes", where=str(run_dir), fix=fix)
    return stored[-1]
