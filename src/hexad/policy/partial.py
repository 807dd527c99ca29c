"""A completion in pieces: cut by a pause or by new weights, and gone on with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hexad.contract.arrays import frozen
from hexad.contract.support import Support
from hexad.policy.engine import Completion, Request


def continued(request: Request, pieces: Sequence[Completion], tokens: int) -> Request:
    """``request`` after ``pieces`` of its completion, for at most ``tokens`` more."""
    ids = np.concatenate([request.ids, *(piece.ids for piece in pieces)], dtype=np.int32)
    begun = request.begun + len(ids) - len(request.ids)
    return replace(request, ids=ids, max_tokens=tokens, begun=begun)


def joined(pieces: Sequence[Completion]) -> Completion:
    """One completion of ``pieces`` that follow each other; the last one says how it ended.

    Its arrays are read-only. Either all pieces that have tokens name their sets, or none does.
    """
    if len(pieces) == 1:
        return pieces[0]
    filled = [piece for piece in pieces if len(piece.ids)]
    supports = [piece.support for piece in filled if piece.support is not None]
    if len(supports) not in (0, len(filled)):
        raise ValueError("some pieces of a completion name the sets of their tokens, others do not")
    return Completion(
        frozen(np.concatenate([piece.ids for piece in pieces]), np.int32),
        frozen(np.concatenate([piece.logprobs for piece in pieces]), np.float32),
        frozen(np.concatenate([piece.versions for piece in pieces]), np.int32),
        pieces[-1].stop,
        Support.joined(supports) if supports else None,
    )
