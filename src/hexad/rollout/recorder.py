"""The one recorder: engine calls and environment events in, a segment out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from hexad.contract.arrays import Floats, Ints
from hexad.contract.episode import Actor
from hexad.contract.faults import ContractViolation
from hexad.contract.segment import ACTION_SPANS, NO_VERSION, Segment, Span
from hexad.contract.support import Support
from hexad.policy.chat import Rendered
from hexad.policy.engine import Completion


@dataclass(frozen=True, slots=True)
class _Piece:
    """A run of tokens that arrived together; ``turn`` is the assistant turn it precedes or is."""

    ids: Ints
    spans: Sequence[Span]
    turn: int
    logprobs: Floats | None = None
    versions: Ints | None = None
    support: Support | None = None
    action: bool = False


class Recorder:
    """Records one context. What was sampled is stored as sampled; nothing is ever re-encoded.

    Events must come as ``start``, then ``completion`` and ``observation``, then ``finish``. Any
    inconsistency is a bug of ours: ``ContractViolation``.
    """

    def __init__(self, actor: Actor = Actor.POLICY) -> None:
        self._actor = actor
        self._pieces: list[_Piece] = []
        self._context: Ints = np.empty(0, dtype=np.int32)
        self._turns = 0

    @property
    def context(self) -> Ints:
        """int32: all ids so far; exactly what the engine must be given next."""
        return self._context

    @property
    def turns(self) -> int:
        """Number of completed assistant turns."""
        return self._turns

    def start(self, prompt: Rendered) -> None:
        """Begin with the rendered prompt."""
        if self._pieces:
            raise ContractViolation("a recorder starts once")
        self._append(_Piece(prompt.ids, prompt.spans, turn=0))

    def completion(self, context: Ints, completion: Completion, spans: Sequence[Span]) -> None:
        """Record what was sampled, given ``context``; ``spans`` are relative to the completion.

        ``context`` is what the engine was given: it must be the recorded ids, bit for bit. An
        expert's completion has NaN log-probs and versions -1; the policy's never has.
        """
        if not self._pieces or not np.array_equal(context, self._context):
            raise ContractViolation("the engine was given another context than the recorded one")
        if not len(completion.ids) == len(completion.logprobs) == len(completion.versions):
            raise ContractViolation("ids, log-probs and versions have different lengths")
        if completion.support is not None and len(completion.support) != len(completion.ids):
            raise ContractViolation("ids and their sets have different lengths")
        missing = np.isnan(completion.logprobs) & (completion.versions == NO_VERSION)
        present = np.isfinite(completion.logprobs) & (completion.versions != NO_VERSION)
        if not (present if self._actor is Actor.POLICY else missing).all():
            raise ContractViolation(f"log-probs and versions do not fit the actor {self._actor}")
        piece = _Piece(
            completion.ids,
            spans,
            self._turns,
            completion.logprobs,
            completion.versions,
            completion.support,
            action=True,
        )
        self._append(piece)
        self._turns += 1

    def observation(self, rendered: Rendered) -> None:
        """Record what follows a completion: separators, observations, perhaps a header."""
        if not self._pieces:
            raise ContractViolation("an observation before the prompt")
        if len(rendered.ids):
            self._append(_Piece(rendered.ids, rendered.spans, self._turns))

    def finish(self) -> Segment:
        """The segment of everything recorded. What follows the last turn keeps its number."""
        last = max(self._turns - 1, 0)
        spans: list[Span] = []
        start = 0
        for piece in self._pieces:
            turn = min(piece.turn, last)
            spans.extend(
                Span(s.kind, s.name, turn, start + s.start, start + s.end) for s in piece.spans
            )
            start += len(piece.ids)
        action = _joined([_full(p, np.bool_, p.action) for p in self._pieces], np.bool_)
        logprobs = [_known(p, p.logprobs, np.float32, np.nan) for p in self._pieces]
        versions = [_known(p, p.versions, np.int32, NO_VERSION) for p in self._pieces]
        turns = [_full(p, np.int32, min(p.turn, last)) for p in self._pieces]
        return Segment(
            ids=self._context,
            action=action,
            weight=action.astype(np.float32),
            logprob=_joined(logprobs, np.float32),
            version=_joined(versions, np.int32),
            turn=_joined(turns, np.int32),
            spans=tuple(spans),
            support=self._support(),
        )

    def _support(self) -> Support | None:
        """The sets of all tokens, empty where none was recorded; ``None`` if none was at all."""
        if all(piece.support is None for piece in self._pieces):
            return None
        return Support.joined([p.support or Support.empty(len(p.ids)) for p in self._pieces])

    def _append(self, piece: _Piece) -> None:
        _check_spans(piece)
        self._pieces.append(piece)
        self._context = np.concatenate([self._context, piece.ids], dtype=np.int32)


def _check_spans(piece: _Piece) -> None:
    """Spans cover the piece without gaps, and only actions have action kinds."""
    spans = piece.spans
    edges = [0, *(edge for span in spans for edge in (span.start, span.end)), len(piece.ids)]
    gapless = all(left == right for left, right in list(pairwise(edges))[::2])
    if not gapless or any(span.end <= span.start for span in spans):
        raise ContractViolation(f"spans do not cover {len(piece.ids)} tokens: {spans}")
    if any((span.kind in ACTION_SPANS) != piece.action for span in spans):
        raise ContractViolation(f"span kinds do not fit action={piece.action}: {spans}")


def _full(piece: _Piece, dtype: type, value: int | bool) -> npt.NDArray[Any]:
    return np.full(len(piece.ids), value, dtype=dtype)


def _known(
    piece: _Piece, values: npt.NDArray[Any] | None, dtype: type, missing: float
) -> npt.NDArray[Any]:
    if values is None:
        return np.full(len(piece.ids), missing, dtype=dtype)
    return values


def _joined(arrays: Sequence[npt.NDArray[Any]], dtype: type) -> npt.NDArray[Any]:
    return np.concatenate(arrays, dtype=dtype) if arrays else np.empty(0, dtype=dtype)
