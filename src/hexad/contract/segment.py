"""One context of an episode, token by token."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

import numpy as np

from hexad.contract.arrays import Bools, Floats, Ints, frozen, same_bits
from hexad.contract.support import Support

NO_VERSION = -1
"""Value of ``version`` where the policy did not sample the token."""


class SegmentKind(StrEnum):
    """What the context is for."""

    EXECUTION = "execution"
    SUMMARY = "summary"


class SpanKind(StrEnum):
    """What a run of tokens is. Kinds of :data:`ACTION_SPANS` cover exactly the action tokens."""

    SYSTEM = "system"
    USER = "user"
    TEMPLATE = "template"
    """Role headers, separators and close tokens that the template wrote."""
    OBSERVATION = "observation"
    """A tool result or any other environment message."""
    TEXT = "text"
    """Sampled text outside tool calls, with the stop token."""
    TOOL_CALL = "tool_call"
    """A sampled tool call, with its tags."""


ACTION_SPANS = frozenset({SpanKind.TEXT, SpanKind.TOOL_CALL})


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens ``start`` to ``end`` (exclusive) of a segment. ``name`` is a tool's name, or empty."""

    kind: SpanKind
    name: str
    turn: int
    start: int
    end: int


_DTYPES = {
    "ids": np.int32,
    "action": np.bool_,
    "weight": np.float32,
    "logprob": np.float32,
    "version": np.int32,
    "turn": np.int32,
}


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Arrays of equal length ``n``, one entry a token, all read-only.

    ``ids`` int32. ``action`` bool: sampled by the actor, a fact. ``weight`` float32: the token's
    share in the loss, a decision; 1 on actions by default, 0 elsewhere. ``logprob`` float32 and
    ``version`` int32 exist exactly where the *policy* sampled; NaN and -1 elsewhere. ``turn``
    int32: number of the assistant turn the token belongs to or precedes; the final observation of
    an episode keeps the last turn's number. ``spans`` covers the segment without gaps. ``parent``
    is the index of the segment this context was made from, ``origin`` says how, ``agent`` who acts.
    ``support`` names the set that each sampled token was drawn from; ``None`` is the full
    vocabulary throughout.

    The constructor fixes types and makes arrays read-only; whether the facts are fit for training
    is judged by ``admit``.
    """

    ids: Ints
    action: Bools
    weight: Floats
    logprob: Floats
    version: Ints
    turn: Ints
    spans: tuple[Span, ...] = ()
    kind: SegmentKind = SegmentKind.EXECUTION
    parent: int | None = None
    origin: str | None = None
    agent: str | None = None
    support: Support | None = None

    def __post_init__(self) -> None:
        for name, dtype in _DTYPES.items():
            object.__setattr__(self, name, frozen(getattr(self, name), dtype))

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        """Bit-exact equality: NaN equals NaN, 0.0 differs from -0.0."""
        if not isinstance(other, Segment):
            return NotImplemented
        arrays = all(same_bits(getattr(self, n), getattr(other, n)) for n in _DTYPES)
        rest = (f.name for f in fields(self) if f.name not in _DTYPES)
        return arrays and all(getattr(self, n) == getattr(other, n) for n in rest)

    __hash__ = None  # type: ignore[assignment]

    @property
    def action_count(self) -> int:
        """Number of tokens the actor sampled."""
        return int(self.action.sum())

    @property
    def forced(self) -> Bools:
        """bool ``[n]``: sampled from a set of one id, as a grammar can force it.

        Such a token says nothing of the policy: it is left out of policy statistics. Its log-prob
        is 0 under every role, so it has no gradient; it stays in the loss denominators.
        """
        return np.zeros(len(self), np.bool_) if self.support is None else self.support.forced
