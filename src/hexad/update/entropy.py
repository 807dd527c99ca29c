"""Entropy over the set that the policy samples from."""

from __future__ import annotations

import torch
from torch import Tensor

from hexad.contract.faults import ContractViolation

_TOLERANCE = 1e-3


def entropy(logprobs: Tensor) -> Tensor:
    """``-sum_a p log p`` in nats, [N], of log-probs [N, V]; in the graph. A bonus *adds* it to J.

    ``-inf`` outside the recorded support, over which each row is normalised: what cannot be drawn
    adds nothing, to value or gradient. The gradient by logits is ``-p (log p + H)``. Raises
    ``ContractViolation`` for rows that are not normalised: logits, or a support that was forgotten.
    """
    total = torch.logsumexp(logprobs.detach(), -1)
    if not bool((total.abs() <= _TOLERANCE).all()):
        raise ContractViolation("the entropy of rows that are not normalised log-probs")
    finite = torch.where(logprobs > -torch.inf, logprobs, 0.0)
    return -(finite.exp() * finite).sum(-1)
