"""The three frozen types of one update: facts, what networks say of them, and credit."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hexad.contract.episode import Episode
from hexad.credit.clock import Clock


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
    span           int64 [T]   number of the token's span inside its row
    terminated     bool  [E]   the environment's rule ended it: no value after the end
    truncated      bool  [E]   the trainer cut it: never both; neither where it faulted
    faulted        bool  [E]   ended in a fault: no reward, no loss
    scored         bool  [E]   judged, and not faulted
    score          float64 [E] sum of the mapped raw components; NaN where not scored
    success        bool  [E]   verdict is correct, and no gate took the reward
    age            float64 [E] seconds between its end and its batch; NaN where unknown
    support_ids    int32 [S]   the set of every token, one after the other; ``None`` where sampling
                               never cut the vocabulary
    support_edges  int64 [T + 1] where each token's set begins; it is empty off actions

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
    span: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    faulted: torch.Tensor
    scored: torch.Tensor
    score: torch.Tensor
    success: torch.Tensor
    age: torch.Tensor
    episodes: tuple[Episode, ...]
    support_ids: torch.Tensor | None = None
    support_edges: torch.Tensor | None = None

    @property
    def forced(self) -> torch.Tensor:
        """bool [T]: drawn from a set of one, so no decision: out of policy statistics.

        Its log-prob is 0 and its gradient exactly zero; it stays in the denominators.
        """
        if self.support_edges is None:
            return torch.zeros_like(self.action)
        return self.support_edges.diff() == 1

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
    the distribution each token was drawn from; ``None`` where it was not evaluated. ``forward``
    counts the tokens of the rows that were read for this role alone. ``own``: the learner's weights
    before the batch's first step said all of it. ``others`` are further versions that played the
    role on some tokens, as ``version:digest`` with commas between.
    """

    logprob: torch.Tensor
    version: int
    digest: str
    entropy: torch.Tensor | None = None
    forward: int = 0
    own: bool = True
    others: str = ""

    @property
    def played(self) -> str:
        """Everyone who played it, as ``version:digest`` with commas between."""
        return ",".join(name for name in (self.others, f"{self.version}:{self.digest}") if name)


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
    """What the rewards say of each decision; all detached.

    advantage  float64 [T]  0 off actions and on tokens of episodes that do not count
    counted    bool    [E]  in the loss and its denominators: scored, and not masked
    target     float64 [T]  on the first token of every clock step: what the value of the prefix
                            before it should be; NaN elsewhere. ``None`` without a critic
    clock                   the steps, where the estimator runs on them
    """

    advantage: torch.Tensor
    counted: torch.Tensor
    target: torch.Tensor | None = None
    clock: Clock | None = None
