"""A Hugging Face chat template: messages to text, text to ids. It knows nothing of turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jinja2
import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerBase

from hexad.contract.arrays import Ints, frozen
from hexad.contract.faults import UserError
from hexad.contract.messages import Message, Role, ToolCall, ToolSchema

WHERE = "chat template of the model"
_NO_CALL = "999999999"
"""Id on a tool message that answers no call."""


class Template:
    """Renders conversations that offer ``tools``; text is tokenised without added special tokens.

    Text is taken as it is: where a message spells out a special token, that token is encoded, as
    in any render of the whole conversation.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, tools: Sequence[ToolSchema]) -> None:
        self.tokenizer = tokenizer
        self.tools = tuple(tools)
        self._wire_tools = [_wire_tool(tool) for tool in tools] or None

    def without_tools(self) -> Template:
        """The same template in a conversation that offers no tools."""
        return Template(self.tokenizer, ())

    def text(self, messages: Sequence[Message], *, header: bool) -> str:
        """The conversation as text, with the generation header if asked.

        Raises ``UserError`` where the template refuses the conversation.
        """
        try:
            rendered = self.tokenizer.apply_chat_template(
                _wire(messages),
                tools=self._wire_tools,
                add_generation_prompt=header,
                tokenize=False,
            )
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            roles = ", ".join(message.role for message in messages)
            raise UserError(
                f"the chat template cannot render a conversation of {roles}: {error}",
                where=WHERE,
                fix="use a model whose template takes these messages, or another environment",
            ) from error
        return str(rendered)

    def ids(self, text: str) -> Ints:
        """int32 ids of ``text``."""
        return frozen(self.tokenizer(text, add_special_tokens=False)["input_ids"], np.int32)

    def located(self, text: str) -> tuple[Ints, npt.NDArray[np.int64]]:
        """Ids of ``text`` and the character at which each of them starts, both ``[n]``."""
        encoding = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        starts = np.asarray([start for start, _ in encoding["offset_mapping"]], dtype=np.int64)
        return frozen(encoding["input_ids"], np.int32), starts


def _wire_tool(tool: ToolSchema) -> dict[str, Any]:
    described = {"name": tool.name, "description": tool.description}
    return {"type": "function", "function": {**described, "parameters": dict(tool.parameters)}}


def _wire(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as templates expect them. Tool results answer the open calls in order.

    Calls are numbered inside their turn, so that what a turn looks like does not depend on how
    many came before it. Nine characters are the strictest form that a template asks for.
    """
    open_calls: list[str] = []
    wired: list[dict[str, Any]] = []
    for message in messages:
        item: dict[str, Any] = {"role": message.role.value, "content": message.content}
        if message.role is Role.TOOL:
            item["name"] = message.name or ""
            item["tool_call_id"] = open_calls.pop(0) if open_calls else _NO_CALL
        elif message.tool_calls:
            open_calls = [f"{number:09d}" for number in range(len(message.tool_calls))]
            calls = zip(message.tool_calls, open_calls, strict=True)
            item["tool_calls"] = [_wire_call(call, name) for call, name in calls]
        wired.append(item)
    return wired


def _wire_call(call: ToolCall, name: str) -> dict[str, Any]:
    function = {"name": call.name, "arguments": dict(call.arguments)}
    return {"type": "function", "id": name, "function": function}
