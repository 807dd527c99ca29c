"""``hexad train``: from a recipe file to a run folder with a summary and a curve."""

from __future__ import annotations

import shlex
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from hexad.cli.interrupt import Interrupts
from hexad.cli.ranks import first
from hexad.cli.report import Interrupted
from hexad.feedback.registry import require_other_name
from hexad.recipe.axes import Recipe
from hexad.recipe.dump import dump, tree
from hexad.recipe.load import load
from hexad.recipe.presets import headline
from hexad.recipe.staged import Staged

if TYPE_CHECKING:
    from hexad.cli.progress import Watcher
    from hexad.evidence.trackers.watch import Trackers

INTERRUPTED_REASON = "interrupted"
"""Why a run ended that was asked to stop, in what ``run.train`` returns."""


@dataclass(frozen=True, slots=True)
class Order:
    """What the user asked for. ``run_dir`` is ``None`` for ``runs/NAME``.

    ``track`` names trackers. It is no part of the recipe: who looks on changes nothing about the
    run, two runs that differ in it are equal, and a resume may add or leave one.
    """

    recipe: Path
    overrides: tuple[str, ...] = ()
    run_dir: Path | None = None
    resume: bool = False
    track: tuple[str, ...] = ()

    def again(self, run_dir: Path) -> str:
        """The command line that continues this run."""
        words = ["hexad", "train", str(self.recipe), *self.overrides]
        tracked = [word for name in self.track for word in ("--track", name)]
        return shlex.join([*words, "--run", str(run_dir), "--resume", *tracked])


def dry_run(order: Order, console: Console) -> dict[str, Any]:
    """Print the resolved recipe and how it departs from its preset; nothing is trained.

    Raises ``UserError`` for a recipe that would train on the evaluator.
    """
    recipe = load(order.recipe, list(order.overrides))
    for one in [recipe] if isinstance(recipe, Recipe) else [each.recipe for each in recipe.stages]:
        if not one.feedback.options:  # else it is another verifier of the same name
            require_other_name(one.task.environment, one.feedback.verifier)
    lines = headlines(recipe)
    console.print(*(f"# {line}" for line in lines), sep="\n", highlight=False, markup=False)
    console.print(dump(recipe), highlight=False, markup=False, soft_wrap=True, end="")
    return {"method": lines, "recipe": tree(recipe)}


def headlines(recipe: Recipe | Staged) -> list[str]:
    """One line a recipe: its method, and what was modified."""
    if isinstance(recipe, Recipe):
        return [headline(recipe)]
    return [f"{stage.name}: {headline(stage.recipe)}" for stage in recipe.stages]


def folder(order: Order) -> Path:
    """The run folder of ``order``."""
    if order.run_dir is not None:
        return order.run_dir
    return Path("runs") / load(order.recipe, list(order.overrides)).name


def train(order: Order, console: Console) -> dict[str, Any]:
    """Train, then draw the curve and say the end in ten lines. Raises ``Interrupted`` after Ctrl-C.

    Under torchrun all of that is the first process's; the others only train.
    """
    from hexad.evidence.folder import claim
    from hexad.evidence.trackers.watch import Trackers, require

    recipe, run_dir = load(order.recipe, list(order.overrides)), folder(order)
    if first():
        require(order.track)
        claim(run_dir, recipe, resume=order.resume)

    from hexad.cli.progress import Watcher

    watcher = Watcher(console)
    with closing(Trackers(order.track, run_dir, watcher.note)) as trackers:
        outcome = _run(order, recipe, (watcher, trackers))
        if not first():
            return outcome
        told = {"trackers": trackers.finish()} if order.track else {}
    return _finished(run_dir, {**outcome, **told}, console)


def _run(
    order: Order, recipe: Recipe | Staged, watchers: tuple[Watcher, Trackers]
) -> dict[str, Any]:
    """Train while ``watchers`` look on, and say why it ended. Raises ``Interrupted``."""
    from hexad import run
    from hexad.evidence.watcher import Several

    run_dir = folder(order)
    with closing(watchers[0]), Interrupts(silent=not first()) as interrupts:
        outcome = run.train(
            recipe,
            run_dir,
            resume=order.resume,
            watcher=Several(*watchers),
            interrupted=interrupts.requested,
        )
    if outcome["reason"] == INTERRUPTED_REASON:
        what = "stopped after a whole batch; everything up to it is kept"
        raise Interrupted(what, where=str(run_dir), fix=order.again(run_dir))
    return outcome


def _finished(run_dir: Path, outcome: dict[str, Any], console: Console) -> dict[str, Any]:
    """Draw the curve, and print and return what the run came to."""
    from hexad.evidence.curve import draw
    from hexad.evidence.summary import summarize
    from hexad.view.brief import brief, states
    from hexad.view.facts import read

    draw(run_dir)
    summary = {**summarize(run_dir), **outcome, "axes": states(read(run_dir))}
    console.print(*brief(summary), sep="\n", highlight=False, markup=False, soft_wrap=True)
    return summary
