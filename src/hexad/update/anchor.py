"""Stand-ins for ``old``: interpolated between log-probs, or an average of weights."""

from __future__ import annotations

import torch
from torch import Tensor


def interpolated(
    *, current: Tensor, behaviour: Tensor, version: Tensor, anchor: int, mask: Tensor
) -> Tensor:
    """log pi_old, approximately: ``log mu + alpha (log pi_current - log mu)``, no gradient, [N].

    ``anchor`` is the version of ``old``, the learner's before the batch's first step, so that the
    batch makes ``anchor + 1``; ``version`` int64 [N] sampled each token. ``alpha = (anchor -
    version) / (anchor + 1 - version)``: 0 for data of the anchor itself, where old = mu. It
    supposes that log-probs drift linearly with the version, and cannot tell engine mismatch from
    staleness. 0 where ``mask`` is false. Raises ``ValueError`` for a token of a version later than
    the anchor. Source: A-3PO, arXiv 2512.06547, whose v_theta is ``anchor + 1``.
    """
    age = torch.where(mask, anchor - version, 0)
    if bool((age < 0).any()):
        raise ValueError(f"a token of a later version than the anchor's, {anchor}")
    far, near = torch.where(mask, current.detach(), 0.0), torch.where(mask, behaviour.detach(), 0.0)
    alpha = age.to(far.dtype) / (age + 1).to(far.dtype)
    return near + alpha * (far - near)


def ewma(average: Tensor, total: float, value: Tensor, *, decay: float) -> tuple[Tensor, float]:
    """The next bias-corrected average of weights, and its total: start with ``(theta_0, 1.0)``.

    ``W' = decay W + 1``; ``average' = average decay W / W' + value / W'``. Its policy serves as
    ``old`` of decoupled PPO, over the behaviour policy. Raises ``ValueError`` for a decay outside
    [0, 1). Source: PPO-EWMA, Hilton et al., arXiv 2110.00641.
    """
    if not 0.0 <= decay < 1.0:
        raise ValueError(f"the decay lies in [0, 1), got {decay}")
    new = decay * total + 1.0
    return average * (decay * total / new) + value.detach() / new, new
