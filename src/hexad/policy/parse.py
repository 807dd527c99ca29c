"""From sampled ids to an assistant turn and its spans. Any ids parse; nothing here raises for them.

Calls are found by the ids of their tags where the tags are tokens, so text that only spells a tag
is text. Other tokenizers are read by text offsets. The *message* level keeps control tokens that
were sampled inside a turn as visible text (``14<|im_start|>`` is not the answer ``14``); only the
final stop id is not part of the text. Ids are never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from hexad.contract.messages import AssistantTurn, ToolCall
from hexad.contract.segment import Span, SpanKind
from hexad.contract.strict_json import strict_json
from hexad.policy.syntax import ToolSyntax


@dataclass(frozen=True, slots=True)
class Parsed:
    """``spans`` cover the completion exactly, with offsets relative to it and turn 0."""

    turn: AssistantTurn
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class _Region:
    """Tokens ``start`` to ``end`` of a call with its tags; ``text`` is what the tags enclose."""

    start: int
    end: int
    text: str
    closed: bool


@dataclass(frozen=True)
class Parser:
    """Reads completions of one tokenizer; without a ``syntax`` everything is text."""

    tokenizer: PreTrainedTokenizerBase
    syntax: ToolSyntax | None
    stop_ids: frozenset[int]

    def parse(self, completion: Sequence[int]) -> Parsed:
        """The turn that the ids say, and its spans: calls, and text with the final stop id.

        A call that cannot be read is kept with its ``error``. Around calls, whitespace at the ends
        of the content is dropped; a turn without calls keeps its text as it is.
        """
        ids = list(completion)
        complete = bool(ids) and ids[-1] in self.stop_ids
        body = ids[:-1] if complete else ids
        regions, content = self._find(body)
        calls: list[ToolCall] = []
        spans: list[Span] = []
        position = 0
        for region in regions:
            found = self._calls(region)
            calls.extend(found)
            if region.start > position:
                spans.append(Span(SpanKind.TEXT, "", 0, position, region.start))
            spans.append(Span(SpanKind.TOOL_CALL, found[0].name, 0, region.start, region.end))
            position = region.end
        if len(ids) > position:
            spans.append(Span(SpanKind.TEXT, "", 0, position, len(ids)))
        content = content.strip() if calls else content
        return Parsed(AssistantTurn(content, tuple(calls), complete), tuple(spans))

    def text(self, ids: Sequence[int]) -> str:
        """The text of ``ids`` with every special token visible."""
        if not len(ids):
            return ""
        return str(
            self.tokenizer.decode(
                list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def _find(self, body: list[int]) -> tuple[list[_Region], str]:
        """The regions of calls, and the text outside them."""
        syntax = self.syntax
        if syntax is None:
            return [], self.text(body)
        if not syntax.opening:
            text = self.text(body)
            if not text.lstrip().startswith("{"):
                return [], text
            return [_Region(0, len(body), text, closed=True)], ""
        regions = list(self._by_token(body) if syntax.by_token else self._by_text(body))
        if not syntax.by_token:
            return regions, self._outside(self.text(body))
        edges = [0, *(edge for r in regions for edge in (r.start, r.end)), len(body)]
        outside = zip(edges[::2], edges[1::2], strict=True)
        return regions, "".join(self.text(body[start:end]) for start, end in outside)

    def _by_token(self, body: list[int]) -> Iterator[_Region]:
        assert self.syntax is not None
        opening, closing = self.syntax.open_id, self.syntax.close_id
        start = _index(body, opening, 0)
        while start < len(body):
            inner = _index(body, closing, start + 1)
            closed = inner < len(body)
            end = inner + 1 if closed else inner
            text = self.text(body[start + 1 : inner])
            yield _Region(start, end, text, closed or closing is None)
            start = _index(body, opening, end)

    def _by_text(self, body: list[int]) -> Iterator[_Region]:
        covered = 0
        for start, end, inner, closed in self._cuts(self.text(body)):
            first = max(self._token(body, start), covered)
            covered = max(self._token(body, end - 1) + 1, first)
            if covered > first:
                yield _Region(first, covered, inner, closed)

    def _cuts(self, text: str) -> Iterator[tuple[int, int, str, bool]]:
        """Characters from tag to tag, what they enclose, and whether the closing tag is there."""
        assert self.syntax is not None
        opening, closing = self.syntax.opening, self.syntax.closing
        start = text.find(opening)
        while start >= 0:
            inside = start + len(opening)
            stop = text.find(closing, inside) if closing else -1
            end = len(text) if stop < 0 else stop + len(closing)
            inner = text[inside:] if stop < 0 else text[inside:stop]
            yield start, end, inner, stop >= 0 or not closing
            start = text.find(opening, end)

    def _outside(self, text: str) -> str:
        kept, position = [], 0
        for start, end, _, _ in self._cuts(text):
            kept.append(text[position:start])
            position = end
        return "".join([*kept, text[position:]])

    def _token(self, body: list[int], character: int) -> int:
        """Index of the token that writes ``character`` of the whole text, by bisection."""
        low, high = 0, len(body) - 1
        while low < high:
            middle = (low + high) // 2
            if len(self.text(body[: middle + 1])) > character:
                high = middle
            else:
                low = middle + 1
        return low

    def _calls(self, region: _Region) -> list[ToolCall]:
        """At least one call, perhaps with an error."""
        assert self.syntax is not None
        if not region.closed:
            return [_broken(f"{self.syntax.closing} is missing", region.text)]
        try:
            value = strict_json(region.text.strip())
        except RecursionError:
            return [_broken("the JSON is nested too deeply", region.text)]
        except ValueError as error:
            return [_broken(f"not valid JSON: {error}", region.text)]
        items = value if isinstance(value, list) and value else [value]
        return [_call(item, self.syntax.arguments, region.text) for item in items]


def _index(ids: list[int], wanted: int | None, start: int) -> int:
    """Where ``wanted`` comes next, or the length."""
    return next((at for at in range(start, len(ids)) if ids[at] == wanted), len(ids))


def _call(value: Any, key: str, raw: str) -> ToolCall:
    if not isinstance(value, dict):
        return _broken("a call must be a JSON object", raw)
    name = value.get("name")
    if not isinstance(name, str) or not name:
        return _broken("name is missing or not a string", raw)
    if not isinstance(value.get(key), dict):
        return ToolCall(name, {}, f"{key} is missing or not a JSON object", raw)
    return ToolCall(name, value[key], raw=raw)


def _broken(error: str, raw: str) -> ToolCall:
    return ToolCall("", {}, error, raw)
