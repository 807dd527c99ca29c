"""The questionnaire on a terminal: one question after the other, each with its choices."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from rich.console import Console

from hexad.advice.questions import AXES, Agreement, Questionnaire


def ask(console: Console) -> dict[str, Any]:
    """The answers as the tree of a task file. Enter takes the default, which is shown."""
    fields = Questionnaire.model_fields
    tree: dict[str, Any] = {"name": typer.prompt("Name of the task", default="advised")}
    tree["task"] = {"environment": typer.prompt("Environment", default="calculator")}
    tree["policy"] = {"model": typer.prompt("Model to begin with", default="builtin:tiny")}
    for axis in AXES:
        section = fields[axis].annotation
        assert isinstance(section, type)
        console.print(f"\n[bold]{axis}[/]: {_words(section.__doc__)}", highlight=False)
        found = ((name, _answer(name, field)) for name, field in section.model_fields.items())
        tree[axis] = {name: value for name, value in found if value is not None}
    return tree


def _answer(name: str, field: FieldInfo) -> Any:
    """One answer; ``None`` leaves the default."""
    question = f"{_words(field.description)}\n  {name}"
    if get_origin(field.annotation) is Literal:
        return _choice(
            question, [str(value) for value in get_args(field.annotation)], field.default
        )
    if field.annotation is bool:
        return typer.confirm(question, default=bool(field.default))
    if get_origin(field.annotation) is dict:
        return None
    if name == "agreement":
        return _agreement()
    text = typer.prompt(question, default=field.default or "")
    return text or None


def _choice(question: str, values: list[str], default: str) -> str:
    shown = " | ".join(values)
    while True:
        answer = str(typer.prompt(f"{question} ({shown})", default=default))
        if answer in values:
            return answer
        typer.echo(f"choose one of {', '.join(values)}")


def _agreement() -> dict[str, int] | None:
    question = "Has the verifier been compared with an independent judgement?"
    if not typer.confirm(question, default=False):
        return None
    fields = Agreement.model_fields.items()
    return {name: typer.prompt(_words(field.description), type=int) for name, field in fields}


def _words(text: str | None) -> str:
    return " ".join((text or "").replace("``", "").split())
