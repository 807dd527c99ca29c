"""What ``hexad check`` says of a recipe's verifiers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from hexad.contract.task import Split
from hexad.evidence import annotate, verifiers
from hexad.evidence.labelled import labelled
from hexad.evidence.qualify import Case, against, cases, qualify, repeats
from hexad.preflight import Played
from hexad.recipe.axes import Recipe
from hexad.rollout.build import family_of, judges


def cards(recipe: Recipe) -> dict[str, Any]:
    """The cards of the verifiers for training and for evaluation."""
    with ExitStack() as held:
        made = judges(recipe, held)
        return {name: verifiers.row(each) for name, each in made.items()}


def qualified(measured: Played, labels: Path | None = None) -> dict[str, Any]:
    """The training verifier beside the evaluation's, on the measured batch and demonstrations.

    ``labels`` is a file of conversations that somebody has judged.
    """
    chosen = annotate.chosen(measured.episodes)
    with ExitStack() as held:
        family = family_of(measured.recipe, held)
        made = judges(measured.recipe, held)
        if "training" not in made or chosen is None:
            return {}
        chat = measured.policy.chat(family.tools)
        tasks = {task.task_id: task for task in family.tasks(Split.TRAIN, 2 * measured.groups)}
        played = [
            Case("policy", tasks[e.task_id], e, chat.decode(e.segments))
            for e in measured.episodes
            if not e.faulted and e.task_id in tasks
        ]
        sample = [*cases(family, chosen), *played]
        found = qualify(made["training"], made["evaluation"], sample)
        if labels is not None:
            told = labelled(labels, chosen)
            row = against(made["training"], told.cases, told.success)
            found["labelled"] = {**row, "file": str(labels), "digest": told.digest}
        return found | {"repeats": repeats(family, sample)}


def qualification(document: dict[str, Any]) -> RenderableType:
    """The answers, a line each."""
    shown = Table(title="Qualification of the training verifier", title_justify="left")
    shown.add_column("")
    shown.add_column("")
    if not document:
        shown.add_row("nothing was judged", "")
        return shown
    if "agreement" in document:
        _agreement(shown, "agreement", document["agreement"])
    else:
        shown.add_row("agreement", "not measured: no independent verifier")
    if "labelled" in document:
        _agreement(shown, f"agreement with {document['labelled']['file']}", document["labelled"])
    shown.add_row("cases", ", ".join(f"{n} {name}" for name, n in document["cases"].items()))
    for why, count in document["unscored"].items():
        shown.add_row(f"unscored: {why.replace('_', ' ')}", str(count))
    shown.add_row("judged otherwise the second time", str(document["undetermined"]))
    if again := document["repeats"]:
        differ = f"{again['differ']} of {again['episodes']} demonstrations"
        shown.add_row("played twice, other observations", differ)
    probes = document["probes"]
    for name in ("accepted", "broke") if probes else ():
        listed = ", ".join(probes[name]) or "none"
        shown.add_row(f"probes {name}", f"{listed} of {probes['tried']}")
    times = {key: document["seconds"][key] for key in ("p50", "p95", "p99")}
    shown.add_row("seconds", ", ".join(f"{key} {value:.2g}" for key, value in times.items()))
    return shown


def _agreement(shown: Table, label: str, found: dict[str, Any]) -> None:
    shown.add_row(label, _share(found["share"], found["interval"], found["judged"]))
    for name in ("false_positive", "false_negative"):
        row = found[name]
        share = row["count"] / row["of"] if row["of"] else None
        shown.add_row(name.replace("_", " "), _share(share, row["interval"], row["of"]))
    for name, count in found["disagreements"].items():
        shown.add_row(name, str(count))


def _share(share: float | None, interval: Any, of: int) -> str:
    if share is None or interval is None:
        return "nothing to count"
    return f"{share:.1%} [{interval[0]:.1%}, {interval[1]:.1%}] of {of}"


def table(document: dict[str, Any]) -> RenderableType:
    """The cards, one column a verifier."""
    shown = Table(title="Verifiers", title_justify="left")
    shown.add_column("")
    for purpose in document:
        shown.add_column(purpose)
    kept = [row["card"] for row in document.values()]
    for label, key in (
        ("name", "name"),
        ("checks", "checks"),
        ("does not check", "blind"),
        ("reads of the task", "task"),
    ):
        shown.add_row(label, *("no card" if card is None else card[key] for card in kept))
    shown.add_row("a time-out counts as", *(row["timeout"] for row in document.values()))
    shown.add_row("digest", *(row["digest"][:12] for row in document.values()))
    return shown
