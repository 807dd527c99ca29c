"""One command, ``hexad``. Heavy imports happen inside the commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hexad.cli.ranks import first
from hexad.cli.report import INTERRUPTED, OURS, USERS, conclude
from hexad.contract.faults import UserError

app = typer.Typer(
    name="hexad",
    help="Train language-model agents from the training contract up.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_UsageError = typer.BadParameter.__base__
"""What the parser raises for a wrong command line; typer does not name it publicly."""

Which = Annotated[
    str, typer.Option("--checkpoint", help="last, best (on selection), or a version.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


@app.callback()
def _root() -> None:
    """Train language-model agents from the training contract up."""


@app.command()
def train(  # noqa: PLR0913 - an argument a flag
    recipe: Annotated[Path, typer.Argument(help="A recipe file, plain or staged.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Dotted overrides.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Run folder; runs/NAME by default.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the resolved recipe.")] = False,
    track: Annotated[
        list[str] | None, typer.Option(help="wandb, trackio or tensorboard; repeatable.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Train by a recipe."""
    from hexad.cli import train as command

    order = command.Order(recipe, tuple(overrides or ()), run, resume, tuple(track or ()))
    if dry_run:
        return conclude(lambda: command.dry_run(order, _console(as_json)), as_json=as_json)
    return conclude(
        lambda: command.train(order, _console(as_json)),
        as_json=as_json,
        crash_folder=lambda: command.folder(order),
    )


@app.command()
def check(  # noqa: PLR0913 - an argument a flag
    recipe: Annotated[Path, typer.Argument(help="A recipe file that samples.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Dotted overrides.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Workers on this machine.")] = None,
    cluster_workers: Annotated[int, typer.Option(min=1, help="Workers of the cluster.")] = 2048,
    out: Annotated[Path | None, typer.Option(help="Folder of check.json; runs/checks.")] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Judged conversations, JSON lines or Parquet.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Measure a small batch, and predict what asynchronous training would gain."""
    from hexad.cli import check as command

    given = tuple(overrides or ())
    order = command.Order(recipe, given, workers, cluster_workers, out, labels)
    return conclude(lambda: command.check(order, _console(as_json)), as_json=as_json)


@app.command()
def advise(
    task: Annotated[
        Path | None, typer.Argument(metavar="[TASK.yaml]", help="Answers; asked without a file.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="A run folder that has measured.")] = None,
    check: Annotated[Path | None, typer.Option(help="A profile written by hexad check.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the recipe to this file.")] = None,
    as_json: Json = False,
) -> int:
    """Six answers in, a recipe out: what to start with, and when to change direction."""
    from hexad.cli import advise as module

    order = module.Order(task, run, check, out)
    return conclude(lambda: module.command(order, _console(as_json)), as_json=as_json)


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    split: Annotated[str, typer.Option(help="selection, hidden, gate or train.")] = "selection",
    tasks: Annotated[int | None, typer.Option(min=1, help="Tasks; all by default.")] = None,
    attempts: Annotated[int, typer.Option(min=1, help="Attempts at each task.")] = 1,
    checkpoint: Which = "last",
    as_json: Json = False,
) -> int:
    """Measure the closed-loop success of a run's checkpoint, the newest by default."""
    from hexad.cli.evaluate import evaluate as command

    def action() -> dict[str, Any]:
        return command(run, split, tasks, _console(as_json), attempts, checkpoint)

    return conclude(action, as_json=as_json, crash_folder=lambda: run)


@app.command()
def verify(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    episodes: Annotated[int, typer.Option(min=1, help="Stored episodes to play again.")] = 32,
    as_json: Json = False,
) -> int:
    """Play stored episodes again; exit code 1 where one differs or nothing could be compared."""
    from hexad.cli.verify import verify as command

    return _unless(lambda: command(run, episodes, _console(as_json)), "reproduced", as_json, run)


@app.command()
def rescore(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    verifier: Annotated[str | None, typer.Option(help="Another verifier than the run's.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An option of the verifier; repeatable."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Judge stored episodes again by the present verifier; the old verdicts stay."""
    from hexad.cli.verify import rejudge as command

    def action() -> dict[str, Any]:
        return command(run, verifier, option or (), _console(as_json))

    return conclude(action, as_json=as_json, crash_folder=lambda: run)


@app.command()
def audit(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    cell: Annotated[str | None, typer.Option(help="List its episodes: high-miss, ...")] = None,
    high: Annotated[float, typer.Option(help="Least value that is high.")] = 0.5,
    process: Annotated[
        str | None, typer.Option(help="A process signal in place of the training reward.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Training reward or progress beside the independent outcome of stored episodes."""
    from hexad.cli.verify import quadrants as command

    def action() -> dict[str, Any]:
        return command(run, cell, high, process, _console(as_json))

    return conclude(action, as_json=as_json, crash_folder=lambda: run)


@app.command()
def diagnose(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    sample: Annotated[
        bool,
        typer.Option(help="Where groups lack a contrast, try a few tasks again, also hotter."),
    ] = True,
    as_json: Json = False,
) -> int:
    """Name the axis that fails: what, since when, why, and what to try."""
    from hexad.cli import diagnose as command

    return conclude(lambda: command.show(run, _console(as_json), sample=sample), as_json=as_json)


@app.command()
def gate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    file: Annotated[Path, typer.Argument(help="What is asked, a YAML file.")],
    checkpoint: Which = "last",
    as_json: Json = False,
) -> int:
    """Hold a run's checkpoint, the newest by default, to a gate; exit code 1 unless it passes."""
    from hexad.cli.gate import gate as command

    def action() -> dict[str, Any]:
        return command(run, file, _console(as_json), checkpoint)

    return _unless(action, "passed", as_json, run)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path | None, typer.Option(help="The page; RUN/report.html by default.")] = None,
    episodes: Annotated[int, typer.Option(min=0, help="Whole episodes in it, at most.")] = 6,
    as_json: Json = False,
) -> int:
    """Write a run as one page that needs nothing else."""
    from hexad.cli.view import write

    return conclude(lambda: write(run, out, episodes, _console(as_json)), as_json=as_json)


@app.command()
def view(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free one.")] = 0,
) -> int:
    """Show runs as a local web page, down to one token; Ctrl-C ends it."""
    from hexad.cli.view import serve

    return conclude(lambda: serve(runs, port, _console(False)), as_json=False)


def _unless(action: Callable[[], dict[str, Any]], key: str, as_json: bool, run: Path) -> int:
    """The exit code of ``action``: 1 also where its document says that ``key`` is false."""
    code, document = _kept(action, as_json=as_json, crash_folder=lambda: run)
    return OURS if document is not None and not document[key] else code


def _kept(action: Callable[[], dict[str, Any]], **how: Any) -> tuple[int, dict[str, Any] | None]:
    """The exit code of ``action``, and its document if it came to one."""
    documents: list[dict[str, Any]] = []

    def kept() -> dict[str, Any]:
        documents.append(action())
        return documents[0]

    code = conclude(kept, **how)
    return code, documents[0] if documents else None


@app.command()
def compare(
    paths: Annotated[
        list[Path], typer.Argument(metavar="STUDY.yaml | RUN RUN ...", help="A study, or runs.")
    ],
    out: Annotated[Path | None, typer.Option(help="Folder of runs and result; runs/NAME.")] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Runs: hidden/success (default), hidden/pass@4, selection/success, ..."),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(min=1e-6, max=1, help="Runs: least difference that matters; 0.02."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show a study's arms.")] = False,
    as_json: Json = False,
) -> int:
    """Arms at one budget: train what a study lacks, or compare finished runs; then a verdict."""
    from hexad.cli import compare as command

    order = command.Order(tuple(paths), out, metric, margin, quiet=as_json)
    action = command.dry_run if dry_run else command.compare
    code, found = _kept(lambda: action(order, _console(as_json)), as_json=as_json)
    return USERS if found is not None and found.get("refused") else code


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="One method's card.")] = None,
    as_json: Json = False,
) -> int:
    """The table of methods, or one card."""
    from hexad.cli.methods import methods as command

    return conclude(lambda: command(name, _console(as_json)), as_json=as_json)


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    arguments = sys.argv[1:] if argv is None else argv
    if os.getcwd() not in sys.path:  # where user code lies; last, so that it shadows nothing
        sys.path.append(os.getcwd())
    as_json = "--json" in arguments
    try:
        code = app(args=arguments, standalone_mode=False, prog_name="hexad")
    except _UsageError as error:  # type: ignore[misc]
        code = _misused(error.format_message(), as_json)
    except typer.Abort:
        code = INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)


def _misused(message: str, as_json: bool) -> int:
    """The exit code of a wrong command line; without a message the help was shown."""
    if not message:
        return USERS

    def refuse() -> dict[str, Any]:
        raise UserError(message, where="command line", fix="see hexad --help, hexad train --help")

    return conclude(refuse, as_json=as_json)


def _console(as_json: bool) -> Console:
    """Where people look: stdout, or stderr where stdout carries a document; one rank shows."""
    return Console(stderr=as_json, quiet=as_json or not first())
