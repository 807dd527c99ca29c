"""What a critic's raw outputs mean, and what it pays for being wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hexad.contract.faults import ContractViolation


class Head(Protocol):
    """``outputs`` numbers a state to a value, and the loss of that value."""

    @property
    def outputs(self) -> int:
        """Raw outputs a state."""
        ...

    def value(self, raw: Tensor) -> Tensor:
        """Values [N] of ``raw`` [N, outputs]."""
        ...

    def loss(self, raw: Tensor, target: Tensor, held: Tensor) -> Tensor:
        """Loss [N] against ``target`` [N]; ``held`` [N] are the values before the first step."""
        ...


@dataclass(frozen=True, slots=True)
class Regression:
    """``V`` is the output itself; loss ``1/2 (V - target)^2``.

    With ``clip`` the loss is ``1/2 max((V - t)^2, (clip(V, held - c, held + c) - t)^2)``: the
    pessimistic bound of PPO implementations (verl), which stops the gradient of values that have
    moved further than ``c`` towards their target. Not part of the PPO paper.
    """

    clip: float | None = None

    @property
    def outputs(self) -> int:
        """See :class:`Head`."""
        return 1

    def value(self, raw: Tensor) -> Tensor:
        """See :class:`Head`."""
        return raw.squeeze(-1)

    def loss(self, raw: Tensor, target: Tensor, held: Tensor) -> Tensor:
        """See :class:`Head`."""
        value = self.value(raw)
        plain = (value - target).square()
        if self.clip is None:
            return 0.5 * plain
        near = held + (value - held).clamp(-self.clip, self.clip)
        return 0.5 * torch.maximum(plain, (near - target).square())


@dataclass(frozen=True, slots=True)
class HLGauss:
    """``V`` is the mean of a histogram; the loss is the cross-entropy to a Gaussian around target.

    ``bins`` equal bins cover ``[low, high]`` and three ``sigma`` on either side, so that the
    histogram of a target at the border keeps its mean; ``sigma`` is in bin widths (0.75 is usual).
    Source: Farebrother et al. 2024, arXiv 2403.03950. With the support cut at ``[low, high]``
    itself, as elsewhere, the mean of a target at 0 of [0, 1] would be .0135.
    """

    low: float
    high: float
    bins: int = 51
    sigma: float = 0.75

    def __post_init__(self) -> None:
        if not self.low < self.high or self.sigma <= 0 or self.bins <= 6 * self.sigma + 1:
            raise ValueError(f"no histogram: {self}")

    @property
    def outputs(self) -> int:
        """See :class:`Head`."""
        return self.bins

    @property
    def width(self) -> float:
        """Width of a bin."""
        return (self.high - self.low) / (self.bins - 6 * self.sigma)

    def edges(self, like: Tensor) -> Tensor:
        """Edges [bins + 1] of the bins, of the type and device of ``like``."""
        steps = torch.arange(self.bins + 1, dtype=like.dtype, device=like.device)
        return self.low + self.width * (steps - 3 * self.sigma)

    def value(self, raw: Tensor) -> Tensor:
        """See :class:`Head`."""
        edges = self.edges(raw)
        return (raw.softmax(-1) * (0.5 * (edges[1:] + edges[:-1]))).sum(-1)

    def histogram(self, target: Tensor) -> Tensor:
        """The Gaussian's mass in each bin, [N, bins], normalised over the bins.

        Raises ``ContractViolation`` for a target outside the padded support: it cannot be learned.
        """
        edges = self.edges(target)
        outside = (target < edges[0]) | (target > edges[-1])
        if bool(outside.any()):
            raise ContractViolation(
                f"a critic target of {float(target[outside][0]):g} lies outside the declared "
                f"support [{self.low:g}, {self.high:g}]: widen critic.support"
            )
        scale = self.sigma * self.width * 2.0**0.5
        mass = torch.erf((edges - target[:, None]) / scale).diff(dim=-1)
        return mass / mass.sum(-1, keepdim=True)

    def loss(self, raw: Tensor, target: Tensor, held: Tensor) -> Tensor:
        """See :class:`Head`."""
        return -(self.histogram(target) * raw.log_softmax(-1)).sum(-1)
