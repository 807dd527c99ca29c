"""Monte Carlo credit on the clock: what was still paid after each decision, less a baseline."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from hexad.credit.clock import Clock
from hexad.credit.scan import scan
from hexad.credit.values import carry, check_unit

OnTruncation = Literal["score", "mask"]


def reward_to_go(clock: Clock, *, gamma: float) -> Tensor:
    """float64 [M]: ``G_t = sum_{k >= t} gamma^(k - t) r_k`` to the end of the episode.

    Nothing bootstraps: behind a truncation nothing more is paid (:func:`declared`). Observations
    neither tick nor reset the sum. Source: Williams 1992; Sutton et al. 2000.
    """
    check_unit(gamma=gamma)
    return scan(clock.reward, carry(clock, gamma))


def declared(clock: Clock, on_truncation: OnTruncation) -> Clock:
    """What Monte Carlo makes of truncated episodes: ``score`` keeps them with what they were paid
    (biased: the rest counts as 0), ``mask`` leaves them out of the clock.
    """
    if on_truncation not in ("score", "mask"):
        raise ValueError(f"on_truncation must be score or mask, not {on_truncation!r}")
    return clock if on_truncation == "score" else clock.keep(~clock.truncated)


def less(clock: Clock, returns: Tensor, baseline: Tensor) -> Tensor:
    """float64 [M]: ``G_t - b`` of the step's episode; 0 where ``baseline`` [E] is NaN (missing).

    The baseline must not depend on the episode's own actions to leave the gradient unbiased.
    """
    if returns.shape != clock.episode.shape or baseline.shape != clock.terminated.shape:
        raise ValueError("returns must be [M] and baseline [E]")
    if returns.dtype != torch.float64 or baseline.dtype != torch.float64:
        raise ValueError("expected float64")
    own = baseline[clock.episode]
    return torch.where(own.isnan(), 0.0, returns - own)
