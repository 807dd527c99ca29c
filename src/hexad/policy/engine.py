"""The engine protocol: ids in, sampled ids with their exact log-probs out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import torch

from hexad.contract.arrays import Floats, Ints
from hexad.contract.digest import canonical_json
from hexad.contract.faults import ContractViolation
from hexad.contract.sampling import Sampling
from hexad.contract.support import Support

Weights: TypeAlias = Mapping[str, torch.Tensor]
"""What training may change of the policy's Hugging Face model: its state dict, or its adapter's."""
Refresh: TypeAlias = Literal["at_turn", "in_flight"]
"""What becomes of open requests when weights are published: they finish, or go on with the new."""


def require_fit(weights: Weights, own: Weights) -> None:
    """Raise ``ContractViolation`` unless ``weights`` have the names and shapes of ``own``."""
    if found := weights.keys() ^ own.keys():
        raise ContractViolation(f"the published weights differ in {sorted(found)[:3]}")
    for name, tensor in own.items():
        if weights[name].shape != tensor.shape:
            raise ContractViolation(
                f"the published {name} is {tuple(weights[name].shape)}, not {tuple(tensor.shape)}"
            )


class Stop(StrEnum):
    """Why sampling ended."""

    TOKEN = "token"
    """A stop id was sampled; it is the last id of the completion."""
    LENGTH = "length"
    """``max_tokens`` were sampled without a stop id."""
    ABORT = "abort"
    """The request was aborted; what was sampled so far is returned."""


@dataclass(frozen=True, slots=True)
class DrawKey:
    """Names one stream of random numbers: the draw at position ``p`` depends on this key and ``p``.

    ``attempt`` counts retries of a faulted episode; ``segment`` separates contexts of one episode.
    """

    run: int
    task: str
    member: int
    attempt: int = 0
    segment: int = 0

    def seed(self) -> int:
        """128-bit integer derived from all five fields by SHA-256."""
        fields = [self.run, self.task, self.member, self.attempt, self.segment]
        return int.from_bytes(hashlib.sha256(canonical_json(fields).encode()).digest()[:16], "big")


@dataclass(frozen=True, slots=True)
class Request:
    """``ids`` is the whole context (int32); the engine is stateless in meaning.

    ``stop_ids`` are all ids that end a turn. ``session`` is a cache hint: turns of one episode
    share it. The token at context position ``p`` (0 is the first token of ``ids``) is drawn with
    the uniform number of (``key``, ``p``), so that any engine replays the same request. What is not
    ``trained`` on (an auxiliary rollout) may be decoded greedily, with ``top_k`` 1.
    """

    ids: Ints
    sampling: Sampling
    key: DrawKey
    max_tokens: int
    stop_ids: tuple[int, ...]
    session: str | None = None
    trained: bool = True
    begun: int = 0
    """The last ``begun`` of ``ids`` are the beginning of the turn that goes on (after a pause)."""


@dataclass(frozen=True, slots=True)
class Completion:
    """Arrays of equal length ``n``: sampled ids int32, log-probs float32, versions int32.

    ``logprobs`` are of the distribution sampled from, after every transform. ``support`` names the
    set that each token was drawn from; it is ``None`` for the full vocabulary.
    """

    ids: Ints
    logprobs: Floats
    versions: Ints
    stop: Stop
    support: Support | None = None


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since the engine was made; all only grow."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that were not computed because their prefix was cached."""
    sampled_tokens: int = 0
    decode_steps: int = 0
    decode_rows: int = 0
    """Sum over decode steps of the live rows; divided by steps it is the mean batch."""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether requests are served, and if not, why."""

    ok: bool
    reason: str = ""


@runtime_checkable
class Engine(Protocol):
    """Samples from one policy version at a time.

    Raises ``EngineFault`` for failures of its own (non-finite logits), ``UserError`` for a sampling
    transform that it cannot record and replay.
    """

    @property
    def digest(self) -> str:
        """Digest of the implementation and its configuration; never of weights or seeds."""
        ...

    @property
    def version(self) -> int:
        """The policy version that the engine has loaded."""
        ...

    @property
    def stats(self) -> EngineStats:
        """Counters."""
        ...

    async def sample(self, request: Request) -> Completion:
        """Sample until a stop id, ``max_tokens`` or an abort."""
        ...

    async def publish(
        self, weights: Weights | None, version: int, refresh: Refresh = "at_turn"
    ) -> None:
        """Load ``weights`` as ``version``; ``None`` when bound to the learner's tensors.

        Waits until open requests are finished, retires every cached prefix, then moves the label.
        ``in_flight`` does not wait: open requests are cut after the token they are at, and go on
        from there with the new weights, which read the whole context again. Their callers get one
        completion, in which ``versions`` says who sampled each token.
        """
        ...

    async def abort(self, session: str | None = None) -> None:
        """Abort the open requests of ``session``, or all."""
        ...

    async def drain(self) -> None:
        """Wait until no request is open."""
        ...

    async def close(self) -> None:
        """Abort everything and release memory; further requests raise ``EngineFault``."""
        ...

    def health(self) -> Health:
        """Whether requests are served."""
        ...
