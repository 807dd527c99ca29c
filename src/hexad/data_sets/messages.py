"""Messages, tool calls and tools of a row, from the forms of OpenAI and TRL to the contract's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from hexad.contract.messages import Message, Role, ToolCall, ToolSchema
from hexad.contract.strict_json import strict_json
from hexad.data_sets.bad import BadRow, Flaw

_LOST = ("reasoning_content", "reasoning", "thinking", "function_call", "audio", "images")
"""Keys whose content a chat template may show and that messages here have no place for."""


@dataclass(frozen=True, slots=True)
class Said:
    """A message; ``weight`` is the share of its tokens in the loss, for an assistant's."""

    message: Message
    weight: float = 1.0

    @property
    def acts(self) -> bool:
        """Whether it is an assistant turn."""
        return self.message.role is Role.ASSISTANT


def conversation(value: Any, field: str) -> tuple[Said, ...]:
    """The messages of ``field``. Raises ``BadRow``, which names the message by its number.

    A message has ``role`` and ``content`` (text, ``null`` beside tool calls, or a list of text
    parts); an assistant's may have ``tool_calls`` and ``weight``, a tool's ``tool_call_id`` and
    ``name``. A key that is ``null`` is absent.
    """
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise BadRow(Flaw.FORM, f"{field} is not a list of messages")
    found: list[Said] = []
    open_calls: list[tuple[str | None, str]] = []
    for number, item in enumerate(value):
        at = f"{field}[{number}]"
        if not isinstance(item, Mapping):
            raise BadRow(Flaw.MESSAGE, f"{at} is not a message")
        keys = {str(key): each for key, each in item.items() if each is not None}
        if lost := [key for key in _LOST if keys.get(key)]:
            raise BadRow(Flaw.MESSAGE, f"{at}.{lost[0]} would be lost: put it into the content")
        said, calls = _said(keys, at, open_calls)
        found.append(said)
        open_calls = calls if said.acts else open_calls
    return tuple(found)


def text_message(value: str, role: Role, field: str) -> Said:
    """A plain text as one message. Raises ``BadRow`` for an empty assistant turn."""
    return Said(_checked(Message(role, _encodable(value, field)), field))


def tools_of(value: Any) -> tuple[ToolSchema, ...] | None:
    """The tools of a row: JSON text or a list; ``None`` where there are none said.

    Each is ``{"type": "function", "function": {...}}`` or the inner object, whose ``parameters``
    are a JSON schema. Raises ``BadRow``.
    """
    if value is None:
        return None
    if isinstance(value, str):
        value = _json(value, "tools")
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        raise BadRow(Flaw.TOOLS, "tools is not a list")
    return tuple(_tool(item, f"tools[{number}]") for number, item in enumerate(value))


def _said(
    keys: Mapping[str, Any], at: str, open_calls: list[tuple[str | None, str]]
) -> tuple[Said, list[tuple[str | None, str]]]:
    """The message, and the calls that it leaves open; an answered one leaves ``open_calls``."""
    role = keys.get("role")
    if role not in tuple(Role):
        raise BadRow(Flaw.UNKNOWN_ROLE, f"{at}.role is {role!r}")
    role, content = Role(role), _content(keys.get("content"), at)
    name = keys.get("name") if role is Role.TOOL else None
    calls: list[tuple[str | None, ToolCall]] = []
    if role is Role.ASSISTANT:
        calls = _calls(keys.get("tool_calls"), f"{at}.tool_calls")
    elif keys.get("tool_calls"):
        raise BadRow(Flaw.TOOLS, f"{at}: only an assistant calls tools, not {role}")
    if role is Role.TOOL:
        called = _answered(keys.get("tool_call_id"), at, open_calls)
        name = called if name is None else str(name)
    message = Message(role, content, name, tuple(call for _, call in calls))
    weight = _weight(keys.get("weight"), role, at)
    return Said(_checked(message, at), weight), [(key, call.name) for key, call in calls]


def _checked(message: Message, at: str) -> Message:
    if message.role is Role.ASSISTANT and not message.content.strip() and not message.tool_calls:
        raise BadRow(Flaw.EMPTY_TARGET, f"{at} is an empty assistant turn")
    return message


def _answered(key: Any, at: str, open_calls: list[tuple[str | None, str]]) -> str:
    """The name of the open call that a tool's message answers: by id, else the first one."""
    named = [call for call in open_calls if key is not None and call[0] == key]
    if key is not None and not named and any(call[0] is not None for call in open_calls):
        raise BadRow(Flaw.MESSAGE, f"{at} answers the call {key!r}, which is not open")
    if not open_calls:
        raise BadRow(Flaw.MESSAGE, f"{at} is a tool's message and answers no call")
    call = named[0] if named else open_calls[0]
    open_calls.remove(call)
    return call[1]


def _content(value: Any, at: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return _encodable(value, at)
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        raise BadRow(Flaw.MESSAGE, f"{at}.content is neither text nor a list of parts")
    pieces = []
    for part in value:
        text = part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str) or part.get("type") != "text":
            raise BadRow(Flaw.MESSAGE, f"{at}.content holds a part that is not text")
        pieces.append(_encodable(text, at))
    return "".join(pieces)


def _encodable(text: str, at: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRow(Flaw.NOT_UTF8, f"{at} holds an unpaired surrogate") from error
    return text


def _weight(value: Any, role: Role, at: str) -> float:
    if value is None:
        return 1.0
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        raise BadRow(Flaw.MESSAGE, f"{at}.weight is {value!r}, not a number of at least 0")
    if role is not Role.ASSISTANT:
        raise BadRow(Flaw.MESSAGE, f"{at}.weight: only an assistant's message has one")
    return float(value)


def _calls(value: Any, at: str) -> list[tuple[str | None, ToolCall]]:
    """Id and call of every tool call; arguments are an object, or JSON text of one."""
    if value is None:
        return []
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise BadRow(Flaw.TOOLS, f"{at} is not a list")
    found = []
    for number, item in enumerate(value):
        here = f"{at}[{number}]"
        inner = item.get("function", item) if isinstance(item, Mapping) else None
        if not isinstance(inner, Mapping) or not _named(inner):
            raise BadRow(Flaw.TOOLS, f"{here} has no name")
        arguments = inner.get("arguments")
        if isinstance(arguments, str):
            arguments = _json(arguments, f"{here}.arguments")
        if not isinstance(arguments, Mapping):
            raise BadRow(Flaw.TOOLS, f"{here}.arguments is not an object")
        key = item.get("id")
        found.append((key, ToolCall(str(inner["name"]), dict(arguments))))
    return found


def _tool(item: Any, at: str) -> ToolSchema:
    inner = item.get("function", item) if isinstance(item, Mapping) else None
    if not isinstance(inner, Mapping) or not _named(inner):
        raise BadRow(Flaw.TOOLS, f"{at} has no name")
    parameters = inner.get("parameters") or {"type": "object", "properties": {}}
    description = inner.get("description") or ""
    if not isinstance(parameters, Mapping) or not isinstance(description, str):
        raise BadRow(Flaw.TOOLS, f"{at}: parameters is an object, description a text")
    try:
        Draft202012Validator.check_schema(dict(parameters))
    except SchemaError as error:
        detail = f"{at}.parameters is no JSON schema: {error.message}"
        raise BadRow(Flaw.TOOLS, detail) from error
    return ToolSchema(str(inner["name"]), description, dict(parameters))


def _named(item: Mapping[str, Any]) -> bool:
    return isinstance(item.get("name"), str) and bool(item["name"])


def _json(text: str, at: str) -> Any:
    try:
        return strict_json(text)
    except (ValueError, RecursionError) as error:
        raise BadRow(Flaw.TOOLS, f"{at} is not JSON: {error}") from error
