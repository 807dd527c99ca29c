"""What the local engine asks of a forward pass with a key-value cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from hexad.contract.arrays import Ints

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt to take in: ``lane`` names the open request from now on.

    ``room`` is the number of tokens that may follow the prompt; ``session`` is the cache hint.
    """

    lane: int
    ids: Ints
    room: int
    session: str | None


@dataclass(frozen=True, slots=True)
class Admission:
    """The first ``count`` asks were taken in.

    ``logits`` is ``[count, vocabulary]``, of the token after each prompt; ``cached`` counts prompt
    tokens that were not computed.
    """

    count: int
    logits: torch.Tensor
    cached: int


class Backend(Protocol):
    """Runs the model for open requests, which it knows by lane."""

    name: str

    def admit(self, asks: list[Ask]) -> Admission:
        """Take in at least one of ``asks``, from the front."""
        ...

    def step(self, lanes: Index, tokens: Index, positions: Index) -> torch.Tensor:
        """Append ``tokens`` at context ``positions``; logits ``[len(lanes), vocabulary]``."""
        ...

    def release(self, lane: int, *, keep: bool) -> None:
        """End a request. What it computed stays as a cache if ``keep``; NaN must not."""
        ...

    def retire(self) -> None:
        """Forget every cached prefix and read the model's tensors afresh. No request is open."""
        ...

    def close(self) -> None:
        """Release memory."""
        ...
