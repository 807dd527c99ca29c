"""Grammars over tokens: what may come next, by llguidance.

A grammar is Lark text as llguidance reads it, a JSON schema inside it by ``%json``; special tokens
are written ``<[id]>``. It speaks of the text of a turn; the stop ids are allowed where it may end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from transformers import PreTrainedTokenizerBase

from hexad.contract.arrays import Bools
from hexad.contract.faults import UserError
from hexad.contract.messages import ToolSchema
from hexad.policy.chat import Chat
from hexad.policy.syntax import ToolSyntax

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

TOOL_CALLS = "tool_calls"
WHERE = "policy.sampling.grammar"
_ANY = r"(.|\n)"
_JSON = {
    "x-guidance": {"whitespace_flexible": False, "key_separator": ": ", "item_separator": ", "}
}
"""Calls are written with the separators that chat templates write them with."""


_PARAMETERS = {"type": "object", "additionalProperties": False}


class Grammars:
    """The grammars of one tokenizer, each compiled once.

    ``vocabulary`` is the number of the model's logits, ``stop_ids`` all ids that may end a turn.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, vocabulary: int, stop_ids: Sequence[int]
    ) -> None:
        self._tokenizer, self._vocabulary = tokenizer, vocabulary
        self._stop_ids = list(stop_ids)
        self._compiled: dict[str, LLMatcher] = {}

    def matcher(self, grammar: str, stop_ids: Sequence[int]) -> Matcher:
        """A fresh matcher for one turn. Raises ``UserError`` for a grammar that is not one."""
        compiled = self._compiled.get(grammar)
        if compiled is None:
            compiled = self._compiled[grammar] = self._compile(grammar)
        return Matcher(compiled.deep_copy(), self._vocabulary, self._stop_ids, stop_ids)

    def _compile(self, grammar: str) -> LLMatcher:
        from llguidance import LLMatcher

        made = LLMatcher(self._tokens, LLMatcher.grammar_from_lark(grammar), log_level=0)
        if made.is_error():
            raise UserError(
                f"the grammar cannot be read: {made.get_error()}",
                where=WHERE,
                fix="write Lark as llguidance reads it, with a rule named start",
            )
        return made

    @cached_property
    def _tokens(self) -> LLTokenizer:
        from llguidance.hf import from_tokenizer

        return from_tokenizer(self._tokenizer, self._vocabulary, eos_token=self._stop_ids)


class Matcher:
    """Where one turn is in its grammar."""

    def __init__(
        self, made: LLMatcher, vocabulary: int, ends: Sequence[int], stop_ids: Sequence[int]
    ) -> None:
        self._made, self._ends, self._stop_ids = made, list(ends), list(stop_ids)
        self._bits = np.zeros((1, -(-vocabulary // 32)), np.int32)
        self._vocabulary = vocabulary

    def allowed(self) -> Bools:
        """bool ``[V]``: the tokens that may come next; none where the grammar is stuck."""
        from llguidance.numpy import fill_next_token_bitmask

        self._bits[:] = 0
        if not self._made.is_error():
            fill_next_token_bitmask(self._made, self._bits, 0)
        unpacked = np.unpackbits(self._bits.view(np.uint8), bitorder="little")
        allowed: Bools = unpacked[: self._vocabulary].astype(np.bool_)
        allowed[self._ends] = False
        allowed[self._stop_ids] = not self._made.is_error() and self._made.is_accepting()
        return allowed

    def accept(self, token: int) -> None:
        """Go on past ``token``, which was allowed and ends nothing."""
        self._made.consume_token(token)

    @property
    def error(self) -> str:
        """What llguidance says of a matcher that is stuck; empty for one that is not."""
        return self._made.get_error()


def written(name: str, chat: Chat, tokenizer: PreTrainedTokenizerBase) -> str:
    """The grammar that a recipe names: ``tool_calls`` of ``chat``, or the text itself."""
    if name != TOOL_CALLS:
        return name
    if chat.syntax is None:
        raise UserError(
            "the environment offers no tools", where=WHERE, fix="leave the grammar out: null"
        )
    return tool_call_grammar(chat.tools, chat.syntax, tokenizer)


def tool_call_grammar(
    tools: Sequence[ToolSchema], syntax: ToolSyntax, tokenizer: PreTrainedTokenizerBase
) -> str:
    """A turn that is text, or calls of ``tools`` with arguments that fit, after text or not.

    Calls stand between the tags of ``syntax``, one line apart, as the template writes them. Added
    tokens that are not special (such as the tags of a thought) count as text.
    """
    opening, closing = _tag(syntax.opening, syntax.open_id), _tag(syntax.closing, syntax.close_id)
    names = " | ".join(f"tool_{number}" for number in range(len(tools)))
    lines = [
        *_turn(syntax, opening, _words(syntax, tokenizer)),
        f'body: "\\n"? ({names}) "\\n"? {closing}'.rstrip(),
    ]
    for number, tool in enumerate(tools):
        head = f'{{"name": {json.dumps(tool.name)}, {json.dumps(syntax.arguments)}: '
        schema = json.dumps(_PARAMETERS | dict(tool.parameters) | _JSON)
        lines.append(f'tool_{number}: {json.dumps(head)} arguments_{number} "}}"')
        lines.append(f"arguments_{number}: %json {schema}")
    return "\n".join(lines) + "\n"


def _tag(text: str, token: int | None) -> str:
    if token is not None:
        return f"<[{token}]>"
    return json.dumps(text) if text else ""


def _turn(syntax: ToolSyntax, opening: str, words: Sequence[str]) -> list[str]:
    """The rules of a turn and its text, in which the added tokens ``words`` may stand.

    Text may not look like a call. A tag that is text is found by the terminal that it ends.
    """
    lead = "lead* " if words else ""
    more = f'("\\n"? {opening} body)*'
    rules = [f"text: {lead}TEXT" + (" | lead+" if words else "")]
    if words:
        rules.append(f"lead: TEXT? ({' | '.join(words)})")
    if not syntax.opening:
        return ["start: text | body", *rules, rf"TEXT: /\s*[^{{\s]{_ANY}*/"]
    if syntax.open_id is not None:
        return [f"start: text | text? {opening} body {more}", *rules, f"TEXT: /{_ANY}+/"]
    tag = re.escape(syntax.opening).replace("/", r"\/")
    return [
        f"start: text | {lead}first body {more}",
        f"first[lazy]: /{_ANY}*{tag}/",
        *rules,
        f"TEXT: /{_ANY}+/ & ~/{_ANY}*{tag}{_ANY}*/",
    ]


def _words(syntax: ToolSyntax, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The added tokens that are neither special nor a tag."""
    tags = {syntax.open_id, syntax.close_id}
    added = sorted(tokenizer.added_tokens_decoder.items())
    return [f"<[{id_}]>" for id_, token in added if not token.special and id_ not in tags]
