"""Conversation, token in and token out: sampled ids are never encoded again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import groupby

import numpy as np
from transformers import PreTrainedTokenizerBase

from hexad.contract.arrays import Ints, frozen
from hexad.contract.faults import UserError
from hexad.contract.messages import AssistantTurn, Message, Role, ToolCall, ToolSchema
from hexad.contract.segment import ACTION_SPANS, Segment, Span, SpanKind
from hexad.policy.parse import Parsed, Parser
from hexad.policy.render import Part, Rendered, parts, spanned
from hexad.policy.seams import PLAIN, QUESTION, THOUGHT, Seams, refused
from hexad.policy.syntax import tool_syntax
from hexad.policy.template import WHERE, Template

__all__ = ["Chat", "Parsed", "Rendered"]

_CACHED = 4096
_OUTLINES = 256
_SPEAKERS = {
    SpanKind.SYSTEM: Role.SYSTEM,
    SpanKind.USER: Role.USER,
    SpanKind.OBSERVATION: Role.TOOL,
}


class Chat:
    """The conversation form of one tokenizer and its chat template, for a fixed set of tools.

    A context is ``prompt`` + sampled ids + ``follow`` + sampled ids + ...; for turns in canonical
    form it equals the one-shot render of the whole conversation, token by token. The constructor
    probes the template and raises ``UserError`` where it rewrites history, tokenises differently
    at a seam, or (if there are tools) does not show tools, calls and results. Spans say turn 0;
    the recorder knows the turn.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        tools: Sequence[ToolSchema],
        stop_ids: Sequence[int],
    ) -> None:
        self.tools = tuple(tools)
        self.stop_ids = tuple(stop_ids)
        self._template = Template(tokenizer, self.tools)
        self._seams = Seams(self._template)
        self._opening = self._template.ids(self._seams.opening)
        self._separator = len(self._template.ids(self._seams.close)) - 1
        self.turn_end = self._seams.turn_end
        if self.turn_end not in self.stop_ids:
            raise ValueError(f"the close token {self.turn_end} is not among the stop ids")
        self.syntax = tool_syntax(self._template, self._seams) if tools else None
        self._parser = Parser(tokenizer, self.syntax, frozenset(self.stop_ids))
        self._system_edges = _system_edges(self._template.without_tools())
        self._cached_prompt = lru_cache(_CACHED)(self._prompt)
        self._cached_after = lru_cache(_CACHED)(self._after)
        self._prompt_outline = lru_cache(_OUTLINES)(self._prompt_text)
        self._after_outline = lru_cache(_OUTLINES)(self._seams.after)
        self._encoded: dict[str, Ints] = {}
        self._probe()

    def prompt(self, messages: Sequence[Message]) -> Rendered:
        """The ids of ``messages`` with the tools and the generation header, and their spans.

        The system's text, the tools' included, is a ``SYSTEM`` span; users' and tools' contents are
        ``USER`` and ``OBSERVATION``; all else, earlier assistant turns included, is ``TEMPLATE``.
        """
        if any(message.tool_calls for message in messages):  # arguments have no hash
            return self._prompt(tuple(messages), self._prompt_text)
        return self._cached_prompt(tuple(messages))

    def follow(
        self,
        completion_ids: Sequence[int] | Ints,
        messages: Sequence[Message],
        *,
        header: bool = True,
    ) -> Rendered:
        """The ids to append after a sampled completion: close, separators, ``messages``, header.

        The template's close token is appended, as ``TEMPLATE`` and not as an action, unless the
        completion ends in exactly it: so a turn that was cut by a limit is closed, and one that
        ended in another stop id (such as the end of text) is closed after that id. Raises
        ``UserError`` where the template would change earlier turns because of ``messages``.
        """
        ended = len(completion_ids) > 0 and int(completion_ids[-1]) == self.turn_end
        return self._cached_after(tuple(messages), header, ended)

    def parse(self, completion_ids: Sequence[int] | Ints) -> Parsed:
        """The turn that a completion says, with spans that cover it. Never raises for odd ids."""
        return self._parser.parse([int(token) for token in completion_ids])

    def encode(self, turn: AssistantTurn) -> Ints:
        """int32: the canonical ids of an expert's turn, up to its close token.

        Raises ``ValueError`` for a turn with a malformed call, which has no canonical form, and
        ``UserError`` where the template drops text that stands beside calls.
        """
        if any(call.error is not None for call in turn.tool_calls):
            raise ValueError("a turn with a malformed tool call cannot be encoded")
        said = repr(turn)  # arguments have no hash, and their order is rendered
        ids = self._encoded.get(said)
        if ids is None:
            ids = self._encode(turn)
            if len(self._encoded) < _CACHED:
                self._encoded[said] = ids
        return ids

    def _encode(self, turn: AssistantTurn) -> Ints:
        text = self._seams.turn(turn.message())
        if turn.content.strip() not in text:
            raise UserError(
                "the chat template drops the text of a turn with tool calls",
                where=WHERE,
                fix="demonstrate tool calls without text beside them",
            )
        whole = self._template.ids(self._seams.opening + text)
        aligned = np.array_equal(whole[: len(self._opening)], self._opening)
        ids = whole[len(self._opening) :] if aligned else self._template.ids(text)
        return frozen(ids[: len(ids) - self._separator], np.int32)

    def decode(self, segments: Iterable[Segment]) -> tuple[Message, ...]:
        """The transcript, rebuilt from stored ids and spans: each span speaks with its own voice.

        The system's text includes the tools as the model was told of them. A message without any
        token of its own (an empty tool result) leaves no trace here.
        """
        transcript: list[Message] = []
        for segment in segments:
            acting = groupby(segment.spans, key=lambda span: (span.turn, span.kind in ACTION_SPANS))
            for (_, action), group in acting:
                spans = list(group)
                if action:
                    ids = segment.ids[spans[0].start : spans[-1].end]
                    transcript.append(self.parse(ids).turn.message())
                else:
                    transcript.extend(self._heard(segment, spans))
        return tuple(transcript)

    def _heard(self, segment: Segment, spans: Sequence[Span]) -> list[Message]:
        said = [span for span in spans if span.kind in _SPEAKERS]
        return [
            Message(
                _SPEAKERS[span.kind],
                self._parser.text(segment.ids[span.start : span.end].tolist()),
                span.name or None,
            )
            for span in said
        ]

    def _prompt_text(self, messages: tuple[Message, ...]) -> str:
        return self._template.text(messages, header=True)

    def _prompt(
        self,
        messages: tuple[Message, ...],
        outline: Callable[[tuple[Message, ...]], str] | None = None,
    ) -> Rendered:
        cut = parts(messages, self._prompt_text, outline or self._prompt_outline)
        return spanned(self._template, _with_system(cut, messages, self._system_edges))

    def _after(self, messages: tuple[Message, ...], header: bool, ended: bool) -> Rendered:
        outline = partial(self._after_outline, header=header)
        cut = parts(messages, partial(self._seams.after, header=header), outline)
        return spanned(self._template, cut, skip=int(ended))

    def _probe(self) -> None:
        """Compare two turns in one render with the same two turns appended piece by piece."""
        calls = (ToolCall(self.tools[0].name, {}),) if self.tools else ()
        answer = Message(Role.TOOL, "1", self.tools[0].name) if calls else QUESTION
        turns = [AssistantTurn("" if calls else THOUGHT, calls), AssistantTurn(PLAIN)]
        whole = [QUESTION, turns[0].message(), answer, turns[1].message()]
        expected = self._template.text(whole, header=False)
        pieces = [self.prompt([QUESTION]).ids]
        for turn, after, header in zip(turns, ([answer], []), (True, False), strict=True):
            ids = self.encode(turn)
            pieces += [ids, self.follow(ids, after, header=header).ids]
        appended = np.concatenate(pieces)
        if not np.array_equal(appended, self._template.ids(expected)):
            if self._parser.text(appended.tolist()) != expected:
                raise refused("turns that are appended one by one differ from the whole render")
            raise UserError(
                "the tokenizer joins or splits tokens across the seam between two turns",
                where=WHERE,
                fix="use a tokenizer that cuts after the generation header, whatever follows it",
            )
        if calls and self.parse(self.encode(turns[0])).turn.tool_calls[0].error is not None:
            raise UserError("a rendered tool call does not parse back", where=WHERE)


def _system_edges(template: Template) -> tuple[str, str] | None:
    """What a template writes before a system text, and between it and a user's."""
    marks = Message(Role.SYSTEM, "\ue000"), Message(Role.USER, "\ue001")
    try:
        text = template.text(marks, header=False)
    except UserError:
        return None
    before, _, rest = text.partition("\ue000")
    between, found, _ = rest.partition("\ue001")
    return (before, between) if found else None


def _with_system(
    cut: list[Part], messages: Sequence[Message], edges: tuple[str, str] | None
) -> list[Part]:
    """Make one ``SYSTEM`` part of all that a system section holds, the tools included."""
    system = bool(messages) and messages[0].role is Role.SYSTEM
    lead = 3 if system else 1
    text = "".join(piece for _, _, piece in cut[:lead])
    if edges is None or len(cut) <= lead or len(text) <= sum(map(len, edges)):
        return cut
    before, between = edges
    if not (text.startswith(before) and text.endswith(between)):
        return cut
    middle = text[len(before) : len(text) - len(between)]
    written = SpanKind.TEMPLATE
    return [
        (written, "", before),
        (SpanKind.SYSTEM, "", middle),
        (written, "", between),
        *cut[lead:],
    ]
