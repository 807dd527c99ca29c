"""The objective of the policy: per-token losses by the recipe's surrogate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from hexad.recipe.axes import UpdateSpec
from hexad.update import ratio, surrogate


@dataclass(frozen=True, slots=True)
class Objective:
    """``loss(current, log_ratio, advantage) -> [N]`` and what it needs.

    ``ratio``: whether it divides by ``old`` and weighs by an advantage; imitation does neither and
    scores raw log-probs. ``clip``: the bounds, where the ratio is clipped.
    """

    loss: Callable[[Tensor, Tensor, Tensor], Tensor]
    ratio: bool
    clip: tuple[float, float] | None = None


def objective(spec: UpdateSpec) -> Objective:
    """The objective that ``spec.surrogate`` names. Raises ``ValueError`` without clip bounds."""
    if spec.surrogate == "nll":
        return Objective(lambda current, log_ratio, advantage: surrogate.nll(current), ratio=False)
    if spec.surrogate == "plain":
        return Objective(
            lambda current, log_ratio, advantage: surrogate.plain(log_ratio, advantage), ratio=True
        )
    low, high = spec.clip_low, spec.clip_high
    if low is None or high is None:
        raise ValueError("the surrogate `clip` needs clip_low and clip_high")
    return Objective(
        lambda current, log_ratio, advantage: surrogate.clip(log_ratio, advantage, low, high),
        ratio=True,
        clip=(low, high),
    )


def movement(spec: Objective, log_ratio: Tensor, advantage: Tensor) -> dict[str, Tensor]:
    """Statistics of the update ratio by name, of N action tokens.

    ``clip/below_positive`` is 1 where rho < 1 - low among the tokens with a positive advantage, and
    so on for both sides and both signs. The two that stop the gradient are ``above_positive`` and
    ``below_negative``.
    """
    found = {"log_ratio/update": log_ratio.detach(), "kl": ratio.k3(log_ratio.detach())}
    if spec.clip is not None:
        below, above = surrogate.outside(log_ratio, *spec.clip)
        for sign, chosen in (("positive", advantage > 0), ("negative", advantage < 0)):
            found[f"clip/below_{sign}"] = below[chosen]
            found[f"clip/above_{sign}"] = above[chosen]
    return found
