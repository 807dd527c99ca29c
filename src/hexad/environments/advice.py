"""An expert that can go on from any state: what is right there, and whether a turn is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from hexad.contract.messages import AssistantTurn, Message, Role
from hexad.contract.task import Task


@runtime_checkable
class Advising(Protocol):
    """A family whose expert says what to do in a state that others have reached: optional."""

    def advice(self, task: Task, transcript: Sequence[Message]) -> tuple[AssistantTurn, ...]:
        """Every turn that is right after ``transcript``, the expert's own choice first.

        ``transcript`` is everything said so far, the question included. Empty where no turn is
        right any more.
        """
        ...


def is_right(turn: AssistantTurn, advised: Sequence[AssistantTurn]) -> bool:
    """Whether ``turn`` is one of those: the same calls in order, and the same text around them.

    Whitespace at the ends of the text does not count; a malformed call is never right.
    """
    said = _said(turn)
    return said is not None and any(said == _said(each) for each in advised)


def wrong_turns(
    family: Advising, task: Task, transcript: Sequence[Message]
) -> list[tuple[int, bool]]:
    """For each assistant turn of ``transcript``: its place there, and whether it was wrong."""
    found = []
    for place, message in enumerate(transcript):
        if message.role is Role.ASSISTANT:
            turn = AssistantTurn(message.content, message.tool_calls)
            advised = family.advice(task, transcript[:place])
            found.append((place, not is_right(turn, advised)))
    return found


def _said(turn: AssistantTurn) -> tuple[str, list[tuple[str, dict[str, object]]]] | None:
    if any(call.error is not None for call in turn.tool_calls):
        return None
    return turn.content.strip(), [(call.name, dict(call.arguments)) for call in turn.tool_calls]
