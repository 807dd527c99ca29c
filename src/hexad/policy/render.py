"""Rendered text as ids with spans: which tokens are whose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from hexad.contract.arrays import Ints, frozen
from hexad.contract.messages import Message, Role
from hexad.contract.segment import Span, SpanKind
from hexad.policy.template import Template

Part = tuple[SpanKind, str, str]
"""Kind, name (of a tool, or empty) and text."""

_KINDS = {
    Role.SYSTEM: SpanKind.SYSTEM,
    Role.USER: SpanKind.USER,
    Role.TOOL: SpanKind.OBSERVATION,
    Role.ASSISTANT: SpanKind.TEMPLATE,
}


@dataclass(frozen=True, slots=True)
class Rendered:
    """``ids`` int32 ``[n]``; ``spans`` cover them without gaps, offsets relative to ``ids``."""

    ids: Ints
    spans: tuple[Span, ...]


def parts(
    messages: Sequence[Message],
    render: Callable[[tuple[Message, ...]], str],
    outline: Callable[[tuple[Message, ...]], str],
) -> list[Part]:
    """Cut ``render(messages)`` into what the messages say and what the template wrote around it.

    Found by rendering marks in the place of the contents: ``outline`` renders as ``render`` does,
    and may remember, since most conversations share a few outlines. Where the template does not
    copy every content (it escapes or trims one in the middle of its own text), the text between the
    first and the last mark belongs to the first message that is not the system's.
    """
    text = render(tuple(messages))
    marks = [f"\ue000{number}\ue001" for number in range(len(messages))]
    pairs = zip(messages, marks, strict=True)
    rest = outline(tuple(replace(message, content=mark) for message, mark in pairs))
    literals: list[str] = []
    for mark in marks:
        literal, found, rest = rest.partition(mark)
        if not found:
            return _around(text, messages, literals[:1], "")
        literals.append(literal)
    for contents in ([m.content for m in messages], [m.content.strip() for m in messages]):
        woven = [piece for pair in zip(literals, contents, strict=True) for piece in pair]
        if "".join(woven) + rest == text:
            return _named(messages, literals, contents, rest)
    return _around(text, messages, literals[:1], rest)


def _named(
    messages: Sequence[Message], literals: Sequence[str], contents: Sequence[str], rest: str
) -> list[Part]:
    found: list[Part] = []
    for message, literal, content in zip(messages, literals, contents, strict=True):
        name = (message.name or "") if message.role is Role.TOOL else ""
        found.append((SpanKind.TEMPLATE, "", literal))
        found.append((_KINDS[message.role], name, content))
    return [*found, (SpanKind.TEMPLATE, "", rest)]


def _around(text: str, messages: Sequence[Message], first: Sequence[str], last: str) -> list[Part]:
    """Template, then one part for all messages, then template, as far as the edges are known."""
    said = next((m for m in messages if m.role is not Role.SYSTEM), None)
    start = first[0] if first and text.startswith(first[0]) else ""
    end = last if text.endswith(last) and len(start) + len(last) <= len(text) else ""
    middle = text[len(start) : len(text) - len(end)]
    kind = SpanKind.TEMPLATE if said is None else _KINDS[said.role]
    name = (said.name or "") if said is not None and said.role is Role.TOOL else ""
    template = SpanKind.TEMPLATE
    return [(template, "", start), (kind, name, middle), (template, "", end)]


def spanned(template: Template, cut: Sequence[Part], *, skip: int = 0) -> Rendered:
    """Tokenise the joined ``cut`` in one go, without its first ``skip`` ids.

    A token belongs to the part in which it starts. Neighbours that the template wrote are one span.
    """
    text = "".join(piece for _, _, piece in cut)
    ids, starts = template.located(text)
    edges = np.cumsum([len(piece) for _, _, piece in cut])
    owners = np.searchsorted(edges[:-1], np.maximum.accumulate(starts), side="right")[
        skip:
    ].tolist()
    kinds = [cut[owner][0] for owner in owners]
    first = [i for i in range(len(owners)) if not i or _parted(kinds, owners, i)]
    spans = tuple(
        Span(kinds[start], cut[owners[start]][1], 0, start, end)
        for start, end in pairwise([*first, len(owners)])
    )
    return Rendered(frozen(ids[skip:], np.int32), spans)


def _parted(kinds: Sequence[SpanKind], owners: Sequence[int], at: int) -> bool:
    """Whether a span starts at token ``at``."""
    written = SpanKind.TEMPLATE
    return owners[at] != owners[at - 1] and not kinds[at] is kinds[at - 1] is written
