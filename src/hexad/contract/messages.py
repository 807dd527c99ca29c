"""The message level: what environments read and write. No token ids here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One requested call. ``error`` says why it was not parsed; ``arguments`` is then empty."""

    name: str
    arguments: Mapping[str, Any]
    error: str | None = None
    raw: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. ``name`` is the tool's name on a tool message."""

    role: Role
    content: str
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class AssistantTurn:
    """What the policy said in one turn, parsed from its ids.

    ``content`` is the text outside tool calls. ``complete`` is false when the turn was cut by a
    token limit before a stop token. ``tool_calls`` keeps malformed calls, with their ``error``.
    """

    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    complete: bool = True

    def message(self) -> Message:
        """The turn as a conversation message."""
        return Message(Role.ASSISTANT, self.content, tool_calls=self.tool_calls)


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool as the model is told of it: ``parameters`` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
