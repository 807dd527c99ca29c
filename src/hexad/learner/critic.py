"""The critic: a value of every prefix that ends where a decision is taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hexad.contract.tally import Tally
from hexad.learner.batch import Batch, RoleValue
from hexad.learner.minibatch import Order, index_of, minibatches
from hexad.learner.optimizer import Stepper
from hexad.learner.pack import Cut, Micro, dealt
from hexad.learner.ranks import Ranks, Single
from hexad.learner.report import NonFiniteUpdate, Statistics
from hexad.learner.value_head import Head, HLGauss, Regression
from hexad.policy.adapter import copied
from hexad.policy.policy import weights_digest
from hexad.recipe.axes import Recipe
from hexad.recipe.update_axis import CriticSpec
from hexad.update.reduce import Reduction, coefficients

if TYPE_CHECKING:
    from hexad.policy.policy import Policy


class ValueNet(nn.Module):
    """A causal trunk and a linear head. The head begins at zero: every first value is the same."""

    trunk: Any

    def __init__(self, trunk: nn.Module, width: int, outputs: int) -> None:
        super().__init__()
        self.trunk = trunk
        like = next(trunk.parameters())
        exact = torch.promote_types(like.dtype, torch.float32)
        self.head = nn.Linear(width, outputs, dtype=exact, device=like.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, ids: Tensor, select: Tensor) -> Tensor:
        """Raw outputs [N, outputs] at the ``select`` [N]-ed of the flattened positions of ``ids``.

        ids int64 [B, L], right-padded. The head computes in float32, or float64 with its trunk.
        """
        hidden = self.trunk(input_ids=ids, use_cache=False).last_hidden_state
        chosen = hidden.reshape(-1, hidden.shape[-1]).index_select(0, select)
        raw: Tensor = self.head(chosen.to(self.head.weight.dtype))
        return raw


@dataclass(slots=True)
class CriticUpdate:
    """What the critic's steps on one batch did. ``steps`` optimiser steps, ``tokens`` counted."""

    steps: int = 0
    train_tokens: int = 0
    statistics: Statistics = field(default_factory=Statistics)
    tallies: Mapping[str, Tally] = field(default_factory=dict)


class Critic:
    """A trunk copied from ``policy`` with a value head, and their own optimiser.

    Every rank holds one and calls it alike. The trunk is copied when the critic is made: from the
    policy that the run starts with.
    """

    def __init__(self, policy: Policy, recipe: Recipe, ranks: Ranks | None = None) -> None:
        assert recipe.critic is not None
        self.spec: CriticSpec = recipe.critic
        self.recipe = recipe
        self.ranks: Ranks = ranks or Single()
        self.head = head(self.spec)
        model: Any = copied(policy.model)
        width = int(model.config.get_text_config().hidden_size)
        self.net = ValueNet(model.base_model, width, self.head.outputs).eval()
        if self.spec.freeze == "attention":
            freeze_attention(self.net.trunk)
        self.device = next(self.net.parameters()).device
        self.stepper = Stepper(self.net, self.spec.optimizer)
        self.batches = 0
        self.seen = 0
        """The policy's optimiser steps when the critic was last updated."""

    @property
    def steps(self) -> int:
        """Optimiser steps so far."""
        return self.stepper.steps

    @property
    def pretraining(self) -> bool:
        """Whether the policy waits."""
        return self.batches < self.spec.pretrain

    def score(self, batch: Batch, wanted: Tensor) -> RoleValue:
        """Values of the prefixes that end at the ``wanted`` (bool [T]) tokens, on every rank."""
        return RoleValue(values(self, batch, wanted), self.batches, self.lineage())

    def update(self, batch: Batch, held: Tensor, target: Tensor, progress: float) -> CriticUpdate:
        """``critic.updates`` passes over the batch.

        ``target`` float64 [T] stands on the first token of every clock step that has one, NaN
        elsewhere; the value that is moved is that of the prefix *before* this token. ``held`` [T]
        are these values before the first step. Raises ``NonFiniteUpdate`` before a step on a loss
        or gradient that is not finite, ``ContractViolation`` when no target is left.
        """
        work = CriticUpdate()
        index = index_of(batch, target.isfinite())
        order = Order(self.recipe.run.seed, self.batches, self.spec.updates, self.spec.minibatches)
        for part in minibatches(index, order):
            coefficient = torch.zeros(len(part), dtype=torch.float64)
            coefficient[part] = coefficients(index.take(part), Reduction(self.spec.denominator))
            self._step(work, batch, (part, coefficient, held, target), progress)
        self.batches += 1
        work.tallies = work.statistics.tallies(self.ranks)
        return work

    def _step(
        self,
        work: CriticUpdate,
        batch: Batch,
        inputs: tuple[Tensor, Tensor, Tensor, Tensor],
        progress: float,
    ) -> None:
        part, coefficient, held, target = inputs
        self.stepper.zero()
        total = torch.zeros(1, dtype=torch.float64)
        limit = self.recipe.system.micro_batch_tokens
        for micro in dealt(batch, part, self.ranks, limit, Cut(raw=True)):
            raw, tokens = self._forward(micro), micro.tokens
            goal, before = (values[tokens].to(raw) for values in (target, held))
            terms = self.head.loss(raw, goal, before)
            loss = (coefficient[tokens].to(raw) * terms).sum()
            torch.autograd.backward(loss)
            total += loss.detach().cpu()
        self.ranks.sum_([total])
        self.ranks.sum_(self.stepper.gradients())
        norm = self.stepper.norm()
        if not (torch.isfinite(total).all() and torch.isfinite(norm)):
            raise NonFiniteUpdate(
                f"critic step {self.steps} (batch {self.batches}): loss {float(total):g}, gradient "
                f"norm {float(norm):g}; the critic was not stepped: "
                "lower critic.optimizer.lr, or set its clip_norm"
            )
        rate = self.stepper.step(norm, progress)
        work.steps += 1
        work.train_tokens += int(part.sum())
        work.statistics.shared("loss", total)
        work.statistics.shared("grad_norm", norm)
        work.statistics.shared("lr", torch.tensor([rate], dtype=torch.float64))

    def _forward(self, micro: Micro) -> Tensor:
        moved = micro.to(self.device)
        raw: Tensor = self.net(moved.ids, moved.select)
        return raw

    def lineage(self) -> str:
        """Digest of the weights."""
        return weights_digest(self.net)

    # -- state -------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Weights, moments, counts."""
        return {"batches": self.batches, "seen": self.seen, **self.stepper.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self.stepper.restore(state)
        self.batches, self.seen = state["batches"], state["seen"]


class SharedCritic:
    """A value head on the policy's own hidden states; the learner steps both at once.

    Its loss, times ``critic.coefficient``, is added to the policy's in every step, so a value
    gradient reaches the policy's trunk. While ``critic.pretrain`` lasts only the head is stepped.
    """

    def __init__(self, policy: Policy, recipe: Recipe, ranks: Ranks) -> None:
        assert recipe.critic is not None
        self.spec, self.recipe, self.ranks = recipe.critic, recipe, ranks
        self.head = head(self.spec)
        model: Any = policy.model
        width = int(model.config.get_text_config().hidden_size)
        self.net = ValueNet(model.base_model, width, self.head.outputs).eval()
        self.batches = self.steps = self.seen = 0

    @property
    def pretraining(self) -> bool:
        """Whether only the head learns."""
        return self.batches < self.spec.pretrain

    def raw(self, hidden: Tensor) -> Tensor:
        """Raw outputs [N, outputs] of the hidden states [N, width] of a step's forward pass."""
        states = hidden.detach() if self.pretraining else hidden
        raw: Tensor = self.net.head(states.to(self.net.head.weight.dtype))
        return raw

    def score(self, batch: Batch, wanted: Tensor) -> RoleValue:
        """See :meth:`Critic.score`."""
        found = values(self, batch, wanted)
        return RoleValue(found, self.batches, weights_digest(self.net))

    def state(self) -> dict[str, Any]:
        """Counts; the weights are the learner's."""
        return {"batches": self.batches, "steps": self.steps, "seen": self.seen}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self.batches, self.steps, self.seen = state["batches"], state["steps"], state["seen"]


@torch.no_grad()
def values(critic: Critic | SharedCritic, batch: Batch, wanted: Tensor) -> Tensor:
    """Values [T] of the prefixes that end at the ``wanted`` tokens, NaN elsewhere; collective."""
    first = next(critic.net.trunk.parameters())
    found = torch.zeros(len(batch.ids), dtype=torch.promote_types(first.dtype, torch.float32))
    limit = critic.recipe.system.micro_batch_tokens
    for micro in dealt(batch, wanted, critic.ranks, limit, Cut(ahead=0)):
        moved = micro.to(first.device)
        found[micro.tokens] = critic.head.value(critic.net(moved.ids, moved.select)).cpu()
    critic.ranks.sum_([found])
    return torch.where(wanted, found, torch.nan)


def head(spec: CriticSpec) -> Head:
    """The head that the recipe names."""
    if spec.head == "regression":
        return Regression(spec.clip)
    assert spec.support is not None
    return HLGauss(*spec.support, bins=spec.bins, sigma=spec.sigma)


def freeze_attention(trunk: nn.Module) -> None:
    """Leave the parameters of every attention module out of training (SAO's critic).

    Raises ``ValueError`` when no module is called an attention.
    """
    frozen = [m for name, m in trunk.named_modules() if name.rsplit(".", 1)[-1].endswith("attn")]
    if not frozen:
        raise ValueError("no module of the trunk is named like an attention (*attn)")
    for module in frozen:
        module.requires_grad_(False)
