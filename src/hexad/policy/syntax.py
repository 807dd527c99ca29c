"""How a template writes tool calls: the tags, read off a rendered call."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hexad.contract.faults import UserError
from hexad.contract.messages import Message, Role, ToolCall
from hexad.policy.seams import Seams
from hexad.policy.template import WHERE, Template

_NAME, _ARGUMENTS = "probe_tool", {"probe": 1}
_FIX = "use a model whose template offers tools and writes calls as JSON"


@dataclass(frozen=True, slots=True)
class ToolSyntax:
    """A call is ``opening``, JSON, ``closing``; whitespace around the JSON does not matter.

    The JSON is an object with ``name`` and the key ``arguments``, or a list of them. Without an
    ``opening`` a whole turn that starts with ``{`` is a call; without a ``closing`` a call reaches
    to the end of the turn. ``open_id`` and ``close_id`` are the tags' ids where each is one added
    token of the tokenizer, else ``None``.
    """

    opening: str
    closing: str
    arguments: str
    open_id: int | None
    close_id: int | None

    @property
    def by_token(self) -> bool:
        """Whether calls are found by the ids of their tags."""
        return self.open_id is not None and (not self.closing or self.close_id is not None)


def tool_syntax(template: Template, seams: Seams) -> ToolSyntax:
    """Read the syntax off a rendered call. Raises ``UserError`` for a template without tools."""
    _require_tools(template)
    message = Message(Role.ASSISTANT, "", tool_calls=(ToolCall(_NAME, _ARGUMENTS),))
    written = seams.turn(message).removesuffix(seams.close)
    if _NAME not in written:
        raise UserError("the chat template does not show tool calls", where=WHERE, fix=_FIX)
    answer = seams.after([Message(Role.TOOL, _NAME, name="f")], header=True)
    if _NAME not in answer:
        raise UserError("the chat template does not show tool results", where=WHERE, fix=_FIX)
    start, end, key = _json_call(written)
    opening, closing = written[:start].strip(), written[end:].strip()
    if opening.endswith("[") and closing.startswith("]"):
        opening, closing = opening[:-1].strip(), closing[1:].strip()
    return ToolSyntax(opening, closing, key, _single(template, opening), _single(template, closing))


def _require_tools(template: Template) -> None:
    question = [Message(Role.USER, "q")]
    asked = template.text(question, header=True)
    bare = template.without_tools().text(question, header=True)
    if asked == bare or not all(tool.name in asked for tool in template.tools):
        raise UserError(
            "the chat template does not show tools to the model: it is a template without tools",
            where=WHERE,
            fix=_FIX,
        )


def _json_call(written: str) -> tuple[int, int, str]:
    """Start and end of the call's JSON object in ``written``, and its key for the arguments."""
    start = written.find("{")
    while start >= 0:
        try:
            value, end = json.JSONDecoder().raw_decode(written, start)
        except json.JSONDecodeError:
            value, end = None, start
        if isinstance(value, dict) and value.get("name") == _NAME:
            keys = [key for key, item in value.items() if item == _ARGUMENTS]
            if keys:
                return start, end, keys[0]
        start = written.find("{", start + 1)
    raise UserError(
        f"the chat template writes tool calls in a form that is not understood: {written!r}",
        where=WHERE,
        fix=_FIX,
    )


def _single(template: Template, tag: str) -> int | None:
    """The id of ``tag`` if it is one added token."""
    added: dict[int, Any] = template.tokenizer.added_tokens_decoder
    ids = template.ids(tag)
    return int(ids[0]) if len(ids) == 1 and int(ids[0]) in added else None
