"""Divergence from the reference, one sampled token at a time: value and gradient are two choices.

``x`` is ``ratio.anchored``: log pi_current - log pi_reference of a token drawn from pi. What the
estimators estimate is KL(pi || ref) at the token's state; how an early token changes *later*
states' divergence reaches the gradient only through the reward (:func:`penalty`).

==============  =========================  ====================================================
estimator       expected value             expected gradient as a loss, samples of pi
==============  =========================  ====================================================
``k1``          KL(pi || ref)              0: it regularises nothing
``k2``          E[x^2] / 2, which is not   of KL(pi || ref), exact
                the divergence
``k3``          KL(pi || ref)              of KL(ref || pi), the other direction
``k3_straight`` KL(pi || ref)              of KL(pi || ref), exact: k3's value, k2's gradient
==============  =========================  ====================================================

Samples of mu instead need the weight rho = pi / mu (:func:`weighted`), or value and gradient are
biased. As gradients then:

- of KL(pi || ref): k1 and k3 with rho in the graph, k2 and ``k3_straight`` with rho detached
- of KL(ref || pi): k3 with rho detached
- of E_pi[x^2] / 2: k2 with rho in the graph
- of 2 KL(pi || ref) - KL(ref || pi): ``k3_straight`` with rho in the graph
- 0: k1 with rho detached

Sources: Schulman, "Approximating KL divergence" (2020); algorithms.md 9; field-cases O11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from hexad.update import ratio


def k1(x: Tensor) -> Tensor:
    """``x``."""
    return x


def k2(x: Tensor) -> Tensor:
    """``x^2 / 2``."""
    return 0.5 * x.square()


def k3(x: Tensor) -> Tensor:
    """``exp(-x) - 1 + x`` >= 0.

    Below ``-LIMIT`` it is constant, so that its gradient there is 0: clamping the exponential alone
    would leave ``d/dx x``, which pushes the policy further away.
    """
    held = x.clamp(min=-ratio.LIMIT)
    return torch.expm1(-held) + held


def k3_straight(x: Tensor) -> Tensor:
    """The value of :func:`k3` with the gradient of :func:`k2`, which is ``x grad x``."""
    half = k2(x)
    return k3(x.detach()) + (half - half.detach())


ESTIMATORS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "k1": k1,
    "k2": k2,
    "k3": k3,
    "k3_straight": k3_straight,
}
"""By name of ``update.kl.estimator``."""


def weighted(estimate: Tensor, direct: Tensor, *, graph: bool) -> Tensor:
    """``rho * estimate``, rho = exp(``direct``) = current / behaviour, in the graph or detached.

    The module's table says which choice has which gradient. Source of rho in the graph:
    DeepSeek-V3.2.
    """
    rho = ratio.ratio(direct)
    return (rho if graph else rho.detach()) * estimate


def penalty(*, behaviour: Tensor, reference: Tensor, mask: Tensor, coefficient: float) -> Tensor:
    """``coefficient * (log mu - log pi_ref)``, [N], to be *subtracted* from each token's reward.

    No gradient: k1 works through the return, and its score-function gradient is that of
    KL(mu || ref), later states included. 0 where ``mask`` is false. Source: contract.md 2.17.
    """
    log = ratio.log_ratio(behaviour.detach(), reference.detach(), mask)
    return coefficient * log
