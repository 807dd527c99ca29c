"""The forms of a row that are read, of those that TRL has: docs/data-sets.md lists them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hexad.contract.messages import Message, Role, ToolSchema
from hexad.data_sets.bad import BadRow, Flaw
from hexad.data_sets.messages import Said, conversation, text_message, tools_of

FIELD_BYTES = 10_000_000
"""Most bytes of text, in UTF-8, that one field of a row may hold."""
_RENDERING = ("chat_template_kwargs", "image", "images", "video", "videos", "audio", "audios")
"""Columns that TRL renders a row with, and that nothing here reads."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """``prompt`` is what the assistant is shown first; ``turns`` begin with its first turn.

    Assistant turns in ``prompt`` are history and no target. ``tools`` is ``None`` where the row
    says nothing of tools.
    """

    prompt: tuple[Message, ...]
    turns: tuple[Said, ...]
    tools: tuple[ToolSchema, ...] | None


def demonstration(row: Mapping[str, Any]) -> Dialogue:
    """``messages``, or ``prompt`` and ``completion`` (texts or messages). Raises ``BadRow``.

    A text stands for one message: the prompt for a user's, the completion for an assistant's.
    """
    keys = _keys(row)
    tools = tools_of(keys.get("tools"))
    if "messages" in keys:
        if "completion" in keys:
            raise BadRow(Flaw.FORM, "messages and completion are two forms of one row")
        said = conversation(keys["messages"], "messages")
        first = next((i for i, each in enumerate(said) if each.acts), len(said))
        return _dialogue(said[:first], said[first:], tools, "messages")
    if "completion" not in keys and "prompt" not in keys:
        detail = f"a row has messages, or prompt and completion; here are {_listed(keys)}"
        raise BadRow(Flaw.FORM, detail)
    prompt, completion = _side(keys, "prompt", Role.USER), _side(keys, "completion", Role.ASSISTANT)
    return _dialogue(prompt, completion, tools, "completion")


def pair(row: Mapping[str, Any]) -> tuple[Dialogue, Dialogue]:
    """``prompt``, ``chosen`` and ``rejected``, texts or messages. Raises ``BadRow``.

    Without a ``prompt`` of messages the sides are whole conversations: the prompt is what they
    share, up to the turn at which both speak as the assistant and the sides part.
    """
    keys = _keys(row)
    tools = tools_of(keys.get("tools"))
    for side in ("chosen", "rejected"):
        _required(keys, side)
    texts = [isinstance(keys[side], str) for side in ("chosen", "rejected")]
    if texts[0] != texts[1]:
        raise BadRow(Flaw.FORM, "one side is text, the other is messages")
    if texts[0] and "prompt" not in keys:
        detail = "prompt is missing: inside a text nothing says where the answer begins"
        raise BadRow(Flaw.MISSING_SIDE, detail)
    chosen, rejected = (_side(keys, side, Role.ASSISTANT) for side in ("chosen", "rejected"))
    if not texts[0] and not isinstance(keys.get("prompt"), list):
        prompt, chosen, rejected = _parted(chosen, rejected)
    else:
        prompt = _side(keys, "prompt", Role.USER)
    if chosen == rejected:
        raise BadRow(Flaw.EQUAL_SIDES, "chosen and rejected say the same")
    return (
        _dialogue(prompt, chosen, tools, "chosen"),
        _dialogue(prompt, rejected, tools, "rejected"),
    )


def labelled(row: Mapping[str, Any]) -> tuple[Dialogue, bool]:
    """A demonstration's fields and ``label``: whether the answer is desirable (KTO)."""
    label = _keys(row).get("label")
    if label is None:
        raise BadRow(Flaw.MISSING_SIDE, "label is missing")
    if not isinstance(label, bool):
        raise BadRow(Flaw.FORM, f"label is {label!r}, not true or false")
    return demonstration(row), label


def _keys(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are there. Raises ``BadRow`` for one that is too large, or would be lost."""
    keys = {str(key): value for key, value in row.items() if value is not None}
    if lost := [key for key in _RENDERING if key in keys and keys[key] not in ({}, [])]:
        detail = f"{lost[0]} would change how the row is rendered, and is not read"
        raise BadRow(Flaw.COLUMN, detail)
    if "completions" in keys:
        raise BadRow(Flaw.FORM, "completions: steps with labels of their own are not read")
    for key, value in keys.items():
        if (size := _bytes(value)) > FIELD_BYTES:
            raise BadRow(Flaw.FIELD_SIZE, f"{key} holds {size} bytes of text, over {FIELD_BYTES}")
    return keys


def _bytes(value: Any) -> int:
    """Bytes of all texts inside ``value``; a surrogate counts as what it would take."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode(errors="surrogatepass"))
    if isinstance(value, Mapping):
        return sum(_bytes(each) for pair in value.items() for each in pair)
    return sum(map(_bytes, value)) if isinstance(value, list | tuple) else 0


def _required(keys: Mapping[str, Any], field: str) -> None:
    if field not in keys:
        raise BadRow(Flaw.MISSING_SIDE, f"{field} is missing; here are {_listed(keys)}")


def _side(keys: Mapping[str, Any], field: str, role: Role) -> tuple[Said, ...]:
    """The messages of ``field``; a text is one message of ``role``."""
    _required(keys, field)
    value = keys[field]
    if isinstance(value, str):
        return (text_message(value, role, field),)
    return conversation(value, field)


def _parted(
    chosen: tuple[Said, ...], rejected: tuple[Said, ...]
) -> tuple[tuple[Said, ...], tuple[Said, ...], tuple[Said, ...]]:
    """Prompt and sides of two whole conversations."""
    both = list(zip(chosen, rejected, strict=False))
    shared = next((i for i, (a, b) in enumerate(both) if a.message != b.message), len(both))
    turns = [i for i, (a, b) in enumerate(both) if a.acts and b.acts and 0 < i <= shared]
    if not turns:
        raise BadRow(Flaw.MISSING_SIDE, "the sides share no prompt that both answer")
    return chosen[: turns[-1]], chosen[turns[-1] :], rejected[turns[-1] :]


def _dialogue(
    prompt: tuple[Said, ...],
    turns: tuple[Said, ...],
    tools: tuple[ToolSchema, ...] | None,
    field: str,
) -> Dialogue:
    if not turns or not any(each.acts for each in turns):
        raise BadRow(Flaw.EMPTY_TARGET, f"{field} holds no assistant turn")
    if not turns[0].acts:
        role = turns[0].message.role
        raise BadRow(Flaw.MESSAGE, f"{field} begins with a message of {role}")
    if not prompt or not any(each.message.content for each in prompt):
        raise BadRow(Flaw.MISSING_SIDE, "nothing comes before the assistant's first turn")
    if prompt[-1].acts:
        raise BadRow(Flaw.MESSAGE, "the prompt ends in an assistant turn")
    if not any(each.weight > 0 for each in turns if each.acts):
        raise BadRow(Flaw.EMPTY_TARGET, f"{field}: no assistant turn has weight")
    return Dialogue(tuple(each.message for each in prompt), turns, tools)


def _listed(keys: Mapping[str, Any]) -> str:
    return ", ".join(sorted(keys)) or "no fields"
