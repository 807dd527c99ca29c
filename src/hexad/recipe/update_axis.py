"""What moves the weights: the policy's update and, axis 5, the critic."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hexad.recipe.axis import Axis, Fraction, NonNegative, Positive
from hexad.recipe.preference_axis import PreferenceSpec


class OptimizerSpec(Axis):
    """AdamW and its schedule."""

    lr: float = Field(default=4e-4, gt=0)
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Decay rates of the moment estimates."""
    eps: float = Field(default=1e-8, gt=0)
    """Added to the denominator of the step."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay, on matrices only."""
    clip_norm: float | None = Field(default=0.5, gt=0)
    """Largest global gradient norm."""
    warmup_steps: NonNegative = 0
    """Optimiser steps of linear warm-up."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """Decay of the learning rate over the used share of the budget."""
    floor: Fraction = 0.1
    """Share of the peak that the schedule ends at."""


class CorrectionSpec(Axis):
    """A weight against a mismatch of two policies, detached, on the policy term alone."""

    ratio: Literal["engine", "proximal"] = "engine"
    """``engine``: sampled / behaviour, one version in two engines. ``proximal``: old / behaviour,
    which is stale data too."""
    rule: Literal["tis", "icepop", "mis", "sequence_tis", "geometric", "k3", "opsm"]
    """``tis`` caps the weight; ``icepop`` and ``mis`` drop tokens; ``sequence_tis`` caps the
    episode's product; ``geometric``, ``k3`` and ``opsm`` drop episodes."""
    low: float | None = Field(default=None, gt=0)
    """``icepop`` and ``geometric``: smallest ratio that is kept."""
    high: float = Field(gt=0)
    """The cap, or the largest ratio (``k3`` and ``opsm``: mean divergence) that is kept."""
    missing: Literal["keep", "drop", "refuse"] | None = None
    """Ratio ``engine`` on stale data: what follows where nobody can say ``sampled``. The token is
    kept with weight 1, dropped from the policy term, or the batch is refused and the run stops."""


class EssSpec(Axis):
    """A learning rate that follows the effective sample size of each step (VCPO)."""

    base: float = Field(gt=0, le=1)
    """Effective share of the episodes at which the rate is whole: 1, or .55 over several turns."""
    rule: Literal["sqrt", "linear"] = "sqrt"
    """The factor is the root of share / base, or share / base itself; never above 1."""


class KLSpec(Axis):
    """A penalty for leaving the reference, the policy that the run starts with."""

    estimator: Literal["k1", "k2", "k3", "k3_straight"]
    """How the divergence of one token is estimated; ``k3_straight`` has k3's value, k2's
    gradient."""
    placement: Literal["reward", "loss"]
    """``reward``: subtracted from the reward of the token. ``loss``: added to its loss."""
    coefficient: float = Field(gt=0)
    """Weight of the penalty; where it starts, if it adapts."""
    weighted: Literal["none", "graph", "detached"] = "none"
    """Placement ``loss``: multiply by current / behaviour, in the graph or detached."""
    target: float | None = Field(default=None, gt=0)
    """The coefficient adapts so that the mean divergence comes here; ``null`` keeps it."""
    horizon: Positive | None = None
    """With ``target``: episodes over which the coefficient moves by the whole relative error."""


class UpdateSpec(Axis):
    """How far the policy may move."""

    surrogate: str = "clip"
    """``nll``: imitation. ``plain``: ratio times advantage. ``clip``: PPO's pessimistic bound.
    ``cispo``: detached clipped ratio times log-prob. ``sapo``: soft gate. ``dis``: two-sided gate
    on current / behaviour. ``squared``: Kimi k1.5. ``token_clip``: Kimi K2.5. ``difference``: gate
    on the difference of probabilities. ``dpo``, ``ipo``, ``simpo``, ``kto``: preferences.
    ``package.module:object``: user code."""
    preference: PreferenceSpec | None = None
    """The numbers of a preference loss; ``null`` for every other surrogate."""
    clip_low: float | None = Field(default=None, gt=0)
    """Ratios below 1 - clip_low are clipped or gated (``token_clip``: log-ratios below
    -clip_low; ``difference``: probabilities lower by clip_low)."""
    clip_high: float | None = Field(default=None, gt=0)
    """Ratios above 1 + clip_high are clipped or gated; as ``clip_low``."""
    dual: float | None = Field(default=None, gt=1)
    """Surrogate ``clip``: with a negative advantage the objective is at least dual times it."""
    tau: float | None = Field(default=None, gt=0)
    """``squared`` and ``token_clip``: weight of the squared log-ratio; ``sapo``: temperature of
    positive advantages."""
    tau_negative: float | None = Field(default=None, gt=0)
    """Surrogate ``sapo``: temperature of negative advantages."""
    epochs: Positive = 1
    """Passes over a batch."""
    minibatches: Positive = 1
    """Optimiser steps a pass."""
    target_kl: float | None = Field(default=None, gt=0)
    """Stop the batch's remaining steps once the mean KL(old, current) estimate exceeds this."""
    old: Literal["recomputed", "interpolated", "snapshot", "ewma"] = "recomputed"
    """What the surrogate's ratio divides by. ``recomputed``: the learner before the batch's first
    step. ``interpolated``: between behaviour and that, by version (A-3PO). ``snapshot``: the
    version that sampled. ``ewma``: a moving average of the weights (PPO-EWMA)."""
    decay: float | None = Field(default=None, gt=0, lt=1)
    """Old ``ewma``: what the past weighs at each optimiser step."""
    sampled: Literal["this_version", "snapshot", "none"] = "this_version"
    """Which tokens the learner says the sampling version's log-prob of: those of its own version;
    all, by weights in memory, one copy for each version up to ``timing.max_lag``; or none."""
    correction: CorrectionSpec | None = None
    """A weight against engine mismatch or stale data."""
    kl: KLSpec | None = None
    """A penalty for leaving the reference policy."""
    ess: EssSpec | None = None
    """Scale the learning rate of each step by its effective sample size."""
    entropy: float | None = Field(default=None, gt=0)
    """Weight of the policy's entropy, over the set it samples from, in the objective."""
    positive_nll: float | None = Field(default=None, gt=0)
    """Weight of the token-mean negative log-likelihood of correct episodes (VAPO)."""
    optimizer: OptimizerSpec = OptimizerSpec()
    """The optimiser."""


class CriticSpec(Axis):
    """Axis 5: a learned value function, and what it pays for being wrong."""

    trunk: Literal["own", "shared"] = "own"
    """``own``: a copy of the initial policy. ``shared``: a head on the policy's hidden states."""
    head: Literal["regression", "hl_gauss"] = "regression"
    """``regression``: half the squared error. ``hl_gauss``: cross-entropy of a histogram."""
    support: tuple[float, float] | None = None
    """Head ``hl_gauss``: smallest and largest return that a target can be."""
    bins: Positive = 51
    """Head ``hl_gauss``: bins of the histogram."""
    sigma: float = Field(default=0.75, gt=0)
    """Head ``hl_gauss``: width of the target's Gaussian, in bins."""
    clip: float | None = Field(default=None, gt=0)
    """Head ``regression``: values that moved further than this get no further gradient."""
    updates: Positive = 1
    """Trunk ``own``: passes over each batch, for one policy update."""
    minibatches: Positive = 1
    """Trunk ``own``: optimiser steps a pass."""
    denominator: Literal["token", "episode"] = "token"
    """What the value loss averages over: clock steps, or episodes."""
    pretrain: NonNegative = 0
    """First batches on which only the critic learns, from Monte Carlo returns."""
    rescore: bool = False
    """Take advantages from the values *after* the critic's update on the batch."""
    freeze: Literal["nothing", "attention"] = "nothing"
    """Trunk ``own``: parameters that are left as the policy had them."""
    coefficient: float = Field(default=0.5, gt=0)
    """Trunk ``shared``: weight of the value loss beside the policy's."""
    optimizer: OptimizerSpec = OptimizerSpec(lr=1e-3, schedule="constant")
    """Trunk ``own``: the critic's optimiser."""
