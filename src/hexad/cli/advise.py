"""``hexad advise``: six answers in, a recipe out, with its companions and switch conditions."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from hexad.advice.advise import Advice, advise
from hexad.advice.measured import Measured
from hexad.advice.questions import Questionnaire
from hexad.advice.read import answers, recipe_text, require, write, yaml_text
from hexad.cli import advise_evidence as evidence
from hexad.cli import advise_fit as fit
from hexad.cli.advise_view import view
from hexad.cli.ask import ask
from hexad.cli.report import Interrupted
from hexad.contract.faults import UserError
from hexad.evidence import profiles
from hexad.recipe.axes import Recipe
from hexad.recipe.load import build, typed
from hexad.recipe.read import Document

_ASKED = Path("answers")
"""Where answers come from that were given on the terminal."""


@dataclass(frozen=True, slots=True)
class Order:
    """What the user asked for; ``task`` is ``None`` to be asked on the terminal."""

    task: Path | None = None
    run: Path | None = None
    check: Path | None = None
    out: Path | None = None


def command(order: Order, console: Console) -> dict[str, Any]:
    """Print the advice and return it as JSON. Raises ``UserError``."""
    given, source = answers(order.task) if order.task else _asked(console)
    advice = _informed(order, given, source)
    if order.out is not None:
        write(advice, order.out)
    console.print(view(advice))
    if advice.draft.tree is not None and order.out is None:
        console.print("\n[bold]Recipe[/] (write it with --out FILE)")
        console.print(recipe_text(advice), highlight=False, markup=False, soft_wrap=True)
    if order.out is not None:
        console.print(f"written to {order.out}; next: hexad train {order.out} --dry-run")
    written = {"written": str(order.out)} if order.out is not None else {}
    return {"answers": given.model_dump(mode="json"), **advice.row(), **written}


def _asked(console: Console) -> tuple[Questionnaire, Document]:
    if not _terminal():
        fix = "give a file of answers, for example examples/advise.yaml, or run it on a terminal"
        raise UserError("there is nobody to ask", where="command line", fix=fix)
    try:
        tree = ask(console)
    except typer.Abort:
        fix = "give the answers as a file, for example examples/advise.yaml"
        raise Interrupted("the questions were left", where="terminal", fix=fix) from None
    source = Document(_ASKED, tree, {})
    given = typed(Questionnaire, tree, source)
    require(given, source)
    console.print("\nYour answers, to be kept as a task file:", highlight=False)
    console.print(yaml_text(tree), highlight=False, markup=False, soft_wrap=True)
    return given, source


def _terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _informed(order: Order, given: Questionnaire, source: Document) -> Advice:
    """Advice with all evidence: the run, then the profile that is given, or was found.

    A profile that nobody named and that is no evidence here is left out, and the advice says so.
    """
    run = Measured()
    if order.run is not None:
        run = evidence.of_run(order.run, fit.subject(given, source))
    advice = advise(given, run, source)
    path = order.check or _own_profile(advice)
    if path is None:
        return advice
    # A stage that imitates or compares makes of this policy the one that samples.
    trained = any(step.kind != "rl" for step in advice.path.steps)
    try:
        check = evidence.of_check(path, fit.subject(given, source, trained=trained))
    except UserError as error:
        if order.check is not None:
            raise
        unused = (*run.unused, f"{error.where}: {error.what}")
        return advise(given, replace(run, unused=unused), source)
    return advise(given, evidence.join(run, check), source)


def _own_profile(advice: Advice) -> Path | None:
    """The profile that ``hexad check`` has made of the advised recipe, where it writes them."""
    if advice.draft.tree is None:
        return None
    built = build(Document(_ASKED, advice.draft.tree, {}))
    recipes = [built] if isinstance(built, Recipe) else [stage.recipe for stage in built.stages]
    places = [profiles.place(recipe, None) for recipe in recipes]
    return next((place for place in places if place.is_file()), None)
