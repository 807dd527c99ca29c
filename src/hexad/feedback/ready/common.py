"""What the ready verifiers share: the final text, what a task stores, verdicts with evidence."""

from __future__ import annotations

from typing import Any, TypeVar

from hexad.contract.digest import canonical_json
from hexad.contract.episode import Episode
from hexad.contract.faults import UserError, VerifierFault
from hexad.contract.messages import Message, Role
from hexad.contract.task import Task
from hexad.contract.verdict import Verdict, VerdictStatus

SECONDS = 10.0
"""Limit of one judgement."""
MEMORY = 512
"""MB by which the verifier's process may grow."""
BLIND = "how the answer was reached: tools may be unused, or the answer a guess"

_SPACE = " \t\r\n"
_SHOWN = 80
T = TypeVar("T")


def final_text(episode: Episode, transcript: tuple[Message, ...]) -> str | None:
    """The last message without ASCII white space around it.

    ``None`` where there is no answer: the episode was cut, or its last message is not the
    assistant's, or calls a tool.
    """
    last = transcript[-1] if transcript else None
    if episode.ending.truncated or last is None or last.role is not Role.ASSISTANT:
        return None
    return None if last.tool_calls else last.content.strip(_SPACE)


def stored(task: Task, key: str, kind: type[T] | tuple[type[T], ...]) -> T:
    """``task.data[key]``. Raises ``VerifierFault`` where it is missing or no ``kind``."""
    found = task.data.get(key)
    if isinstance(found, kind) and (not isinstance(found, bool) or kind is bool):
        return found
    raise VerifierFault(f"task {task.task_id} stores {key!r} as {shown(found)}")


def verdict(status: VerdictStatus, *, score: float | None = None, **evidence: Any) -> Verdict:
    """``status`` with its usual score, 1 for correct and 0 otherwise, unless ``score`` is given."""
    usual = 1.0 if status is VerdictStatus.CORRECT else 0.0
    return Verdict(status, usual if score is None else score, canonical_json(evidence))


def no_answer() -> Verdict:
    """The verdict where :func:`final_text` found none."""
    return verdict(VerdictStatus.WRONG, problem="no answer")


def right(correct: bool, **evidence: Any) -> Verdict:
    """Correct or wrong."""
    return verdict(VerdictStatus.CORRECT if correct else VerdictStatus.WRONG, **evidence)


def invalid(problem: str, text: str) -> Verdict:
    """The answer has an illegal form."""
    return verdict(VerdictStatus.INVALID, problem=problem, answer=shown(text))


def shown(value: object) -> str:
    """The beginning of ``value`` in ASCII, for evidence and messages."""
    text = value if isinstance(value, str) else repr(value)
    return ascii(text[:_SHOWN])[1:-1][:_SHOWN]


def option(name: str, value: Any, low: float, high: float = float("inf")) -> float:
    """A number among the verifier's options, in [low, high]. Raises ``UserError``."""
    if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
        return float(value)
    raise UserError(
        f"{name} is {value!r}",
        where=f"feedback.options.{name}",
        fix=f"give a number from {low:g} to {high:g}",
    )


def switch(name: str, value: Any) -> bool:
    """A yes or no among the verifier's options. Raises ``UserError``."""
    if isinstance(value, bool):
        return value
    where = f"feedback.options.{name}"
    raise UserError(f"{name} is {value!r}", where=where, fix="say true or false")
