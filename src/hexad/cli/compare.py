"""``hexad compare``: a study that trains its arms, or finished runs side by side."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hexad.cli.interrupt import Interrupts
from hexad.cli.report import Interrupted
from hexad.contract.faults import UserError
from hexad.contract.task import Split
from hexad.recipe.study import METRIC, Plan, plan


@dataclass(frozen=True, slots=True)
class Order:
    """What the user asked for: one study file, or run folders. ``out`` is where results are kept.

    ``metric`` (``SPLIT/NAME``) and ``margin`` are for run folders; a study file says its own.
    """

    paths: tuple[Path, ...]
    out: Path | None
    metric: str | None
    margin: float | None
    quiet: bool

    @property
    def study(self) -> bool:
        """Whether the one path is a file."""
        return len(self.paths) == 1 and not self.paths[0].is_dir()


def compare(order: Order, console: Console) -> dict[str, Any]:
    """Compare, print, and keep the result. Raises ``Interrupted`` after Ctrl-C.

    ``refused`` in the document names runs that the user has to mend.
    """
    from hexad.evidence import compare_view

    found = _study(order, console) if order.study else _runs(order)
    console.print(compare_view.render(found))
    folder = _folder(order, plan(order.paths[0])) if order.study else order.out
    if folder is not None:
        compare_view.write(found, folder, json.dumps(found, indent=1, allow_nan=False) + "\n")
        console.print(f"written to {folder / 'comparison.md'}", highlight=False)
    if found["refused"]:
        names = ", ".join(found["refused"])
        console.print(f"refused, see their messages above: {names}", highlight=False)
    return found


def dry_run(order: Order, console: Console) -> dict[str, Any]:
    """Show what a study would do: its arms, what they change, and the rivals it could have."""
    from hexad.evidence.conditions import unlike
    from hexad.evidence.fairness import axes

    if not order.study:
        raise UserError("--dry-run is for a study file", where="command line", fix="leave it out")
    planned = plan(order.paths[0])
    study, base = planned.study, planned.arms[0].recipe(planned.study.seeds[0])
    table = Table(title=f"Study {study.name}", title_justify="left", title_style="bold")
    for column in ("arm", "axes", "keys", "trials"):
        table.add_column(column)
    rows: list[dict[str, Any]] = []
    for arm in planned.arms:
        recipe = arm.recipe(study.seeds[0])
        differs, apart = axes(recipe, base), unlike(recipe, base, str(Split.HIDDEN))
        keys = [key for each in differs.values() for key in each]
        flag = " (more than one)" if len(differs) > 1 else ""
        shown = ", ".join(differs) + flag
        table.add_row(arm.name, shown or "none", ", ".join(keys), str(len(arm.trials)))
        trials = len(arm.trials)
        rows.append({"arm": arm.name, "axes": differs, "trials": trials, "unlike": apart})
    key, size = planned.budget
    trials = sum(len(arm.trials) for arm in planned.arms)
    console.print(table)
    for row in rows:
        if row["unlike"]:
            what = f"{row['arm']} is evaluated under other conditions: no verdict"
            console.print(f"{what} ({', '.join(row['unlike'])})", highlight=False)
    console.print(
        f"{trials} tuning runs, then {len(planned.arms)} arms x {len(study.seeds)} seeds, each of "
        f"{size:,.0f} {key}",
        highlight=False,
    )
    for offer in planned.offered:
        console.print(f"{offer.name}: {offer.state}: {offer.reason or offer.what}", highlight=False)
    offers = [{"name": o.name, "state": o.state, "reason": o.reason} for o in planned.offered]
    return {"study": study.model_dump(mode="json"), "arms": rows, "offers": offers}


def _folder(order: Order, planned: Plan) -> Path:
    return order.out or Path("runs") / planned.study.name


def _study(order: Order, console: Console) -> dict[str, Any]:
    if order.metric is not None or order.margin is not None:
        fix = "write it in the file: what decides is fixed before the first run"
        raise UserError("a study file says metric and margin", where="command line", fix=fix)
    planned = plan(order.paths[0])
    folder = _folder(order, planned)

    from hexad import study
    from hexad.evidence.compare import compare as contrast

    changes = study.claim(planned, folder)
    with Interrupts() as interrupts:

        def tell(line: str) -> None:
            console.rule(line, align="left")

        conduct = study.Conduct(planned, folder, tell, order.quiet, interrupts.requested)
        sides = conduct()
    if sides is None:
        out = ["--out", str(order.out)] if order.out else []
        again = shlex.join(["hexad", "compare", str(order.paths[0]), *out])
        what = "stopped; runs that ended are kept, and the one under way goes on"
        raise Interrupted(what, where=str(folder), fix=again)
    found = contrast(sides, study.ask(planned, changes))
    return found | {"refused": study.refused(planned, folder)}


def _runs(order: Order) -> dict[str, Any]:
    split, _, metric = (order.metric or "hidden/success").rpartition("/")
    if METRIC.fullmatch(metric) is None or split not in [str(known) for known in Split]:
        fix = "for example hidden/success, hidden/pass@4 or selection/pass^4"
        raise UserError(f"there is no metric {order.metric!r}", where="--metric", fix=fix)
    margin = 0.02 if order.margin is None else order.margin

    from hexad.evidence.compare import Ask, common_budget
    from hexad.evidence.compare import compare as contrast
    from hexad.evidence.ran import grouped

    sides = grouped(order.paths, split)
    name = " against ".join(each.name for each in reversed(sides))
    found = contrast(sides, Ask(name, metric, margin, split, common_budget(sides)))
    return found | {"refused": []}
