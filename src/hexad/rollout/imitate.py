"""Turns that somebody else than the policy took: as completions that nobody sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hexad.contract.arrays import frozen
from hexad.contract.messages import AssistantTurn
from hexad.contract.segment import NO_VERSION, Segment
from hexad.policy.chat import Chat
from hexad.policy.engine import Completion, Stop


def spoken(chat: Chat, turn: AssistantTurn) -> Completion:
    """``turn`` in canonical form, up to its close token, without log-probs and versions.

    Raises ``UserError`` where the template cannot write it.
    """
    ids = chat.encode(turn)
    logprobs = frozen(np.full(len(ids), np.nan), np.float32)
    versions = frozen(np.full(len(ids), NO_VERSION), np.int32)
    return Completion(ids, logprobs, versions, Stop.TOKEN)


def weighed(segment: Segment, weights: Sequence[float]) -> Segment:
    """``segment`` with the loss weight ``weights[t]`` on the action tokens of turn ``t``.

    ``weights`` has an entry for every turn; all else keeps weight 0.
    """
    share = np.asarray(weights, np.float32)[segment.turn]
    return replace(segment, weight=np.where(segment.action, share, np.float32(0.0)))
