"""The three frozen types of one update: facts, what networks say of them, and credit."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hexad.contract.episode import Episode


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Facts, packed flat. ``T`` tokens, ``R`` rows (segments), ``E`` episodes, ``G`` groups.

    ids            int64 [T]
    action         bool  [T]   sampled by the actor
    weight         float32 [T] share in the loss; 0 off actions
    behaviour      float32 [T] log mu(token); NaN where the policy did not sample
    version        int64 [T]   sampling version; -1 where the policy did not sample
    turn           int64 [T]   assistant turn number inside the episode
    offsets        int64 [R + 1]
    row_episode    int64 [R]   row -> episode index
    episode_group  int64 [E]   episode -> group index
    scored         bool  [E]   judged, and not faulted
    score          float64 [E] sum of the mapped raw components; NaN where not scored
    success        bool  [E]   verdict is correct

    Padding does not exist here. ``episodes`` keeps the source objects in row order.
    """

    ids: torch.Tensor
    action: torch.Tensor
    weight: torch.Tensor
    behaviour: torch.Tensor
    version: torch.Tensor
    turn: torch.Tensor
    offsets: torch.Tensor
    row_episode: torch.Tensor
    episode_group: torch.Tensor
    scored: torch.Tensor
    score: torch.Tensor
    success: torch.Tensor
    episodes: tuple[Episode, ...]

    @property
    def token_row(self) -> torch.Tensor:
        """int64 [T]: token -> row."""
        lengths = self.offsets[1:] - self.offsets[:-1]
        return torch.repeat_interleave(torch.arange(len(lengths)), lengths)

    @property
    def token_episode(self) -> torch.Tensor:
        """int64 [T]: token -> episode."""
        return self.row_episode[self.token_row]


@dataclass(frozen=True, slots=True)
class RoleScore:
    """Log-probs [T] of one policy role (NaN off actions and where it did not play), who said it.

    Tensors are float32, or float64 for a float64 policy. ``entropy`` [T] is the entropy in nats of
    the distribution each token was drawn from; ``None`` where it was not evaluated.
    """

    logprob: torch.Tensor
    version: int
    digest: str
    entropy: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class RoleValue:
    """Values [T] of the prefixes ending at each token, NaN where none was asked for.

    ``version`` counts the batches that the critic had been updated on; ``digest`` is of its
    weights.
    """

    value: torch.Tensor
    version: int
    digest: str


@dataclass(frozen=True, slots=True)
class Scores:
    """What networks say of a batch, computed once before its first optimiser step.

    A role that was not evaluated is ``None``: missing, never a ratio of 1.
    """

    sampled: RoleScore | None = None
    old: RoleScore | None = None
    reference: RoleScore | None = None
    value: RoleValue | None = None


@dataclass(frozen=True, slots=True)
class Credit:
    """``advantage`` float64 [T], detached; 0 off actions and on tokens of unscored episodes."""

    advantage: torch.Tensor
