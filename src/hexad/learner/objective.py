"""The objective of the policy: the terms of its loss, one number a token, by the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from hexad.contract.faults import ContractViolation
from hexad.learner.batch import Batch, Scores
from hexad.policy.transforms import require_replayable
from hexad.recipe import legal
from hexad.recipe.axes import Recipe
from hexad.recipe.update_axis import CorrectionSpec, KLSpec
from hexad.update import correction, kl, ratio, unit
from hexad.update.adaptive import AdaptiveCoefficient
from hexad.update.reduce import Index
from hexad.update.shares import shares
from hexad.update.table import CORRECTIONS, KEYS, SURROGATES, Surrogate


@dataclass(frozen=True, slots=True)
class Facts:
    """What the terms of N tokens are made of. All [N], on one device; roles are log-probs.

    ``current`` carries the gradient. ``free`` is false on tokens that the grammar forced: they are
    no decision, so no ratio counts them. ``unit`` numbers the unit of the ratio.
    """

    current: Tensor
    old: Tensor
    behaviour: Tensor
    advantage: Tensor
    free: Tensor
    unit: Tensor | None


class Objective:
    """The policy's surrogate on the ratio that it is written for, with what the recipe declares."""

    def __init__(self, recipe: Recipe) -> None:
        update, action = recipe.update, recipe.action
        self.name = update.surrogate
        self.surrogate: Surrogate = _surrogate(self.name)
        known = (*self.surrogate.required, *self.surrogate.optional)
        numbers = {name: getattr(update, key) for name, key in KEYS.items() if name in known}
        self.numbers: Mapping[str, float] = {k: v for k, v in numbers.items() if v is not None}
        if missing := [name for name in self.surrogate.required if name not in self.numbers]:
            keys = ", ".join(f"update.{KEYS[name]}" for name in missing)
            raise ValueError(f"the surrogate `{self.name}` needs {keys}")
        self.ratio = bool(self.surrogate.roles)
        self.role = self.surrogate.roles[0] if self.ratio else "none"
        self.unit, self.combine = action.ratio, action.combine
        # A unit's term that is averaged over the unit once moves all its tokens; under any other
        # denominator it would do so once a token.
        whole = {"episode": "episode", "turn": "response"}.get(action.ratio)
        self.form: unit.Form = "sequence" if action.denominator == whole else "token"
        self.forced, self.gated = action.forced == "in", action.gated == "in"
        """Whether these tokens count in denominators."""
        extra = (update.kl is not None and update.kl.placement == "loss", update.entropy)
        self.idle = self.surrogate.idle and not any(extra)
        """Whether a row without advantage has no gradient."""

    def log_ratio(self, facts: Facts) -> Tensor:
        """The log-ratio that the surrogate divides by, of each token or of its unit."""
        if self.role == "direct":
            log = ratio.direct(current=facts.current, behaviour=facts.behaviour, mask=facts.free)
        else:
            log = ratio.update(current=facts.current, old=facts.old, mask=facts.free)
        if facts.unit is None or self.combine is None:
            return log
        return unit.combine(log, facts.unit, facts.free, self.combine, self.form)

    def terms(self, facts: Facts, log: Tensor) -> Tensor:
        """Loss [N] of each token, before any denominator."""
        tensors = {"log_ratio": log, "current": facts.current, "advantage": facts.advantage}
        return self.surrogate.loss(tensors, self.numbers)

    def closed(self, facts: Facts) -> Tensor:
        """Bool [N]: the tokens that the surrogate drops at the present weights."""
        log, current = self.log_ratio(facts).detach(), facts.current.detach()
        tensors = {"log_ratio": log, "current": current, "advantage": facts.advantage}
        return self.surrogate.gated(tensors, self.numbers)

    def outside(self, facts: Facts, log: Tensor) -> tuple[Tensor, Tensor] | None:
        """Bool [N] twice: below and above the surrogate's bounds; ``None`` for one without."""
        tensors = {"log_ratio": log.detach(), "current": facts.current.detach()}
        return self.surrogate.outside(tensors, self.numbers)

    def movement(self, facts: Facts, log: Tensor, length: Tensor, lag: Tensor) -> dict[str, Tensor]:
        """Statistics by name: how far the policy has moved, and where the bounds act.

        ``clip/below_positive`` is 1 where the ratio is under its lower bound among the tokens with
        a positive advantage, and so on by side, sign, length and lag. Tokens that were forced are
        in none.
        """
        free = facts.free
        moved = ratio.update(current=facts.current, old=facts.old, mask=free).detach()[free]
        found = {"log_ratio/update": moved, "kl": ratio.k3(moved)}
        if self.role == "direct":
            found["log_ratio/direct"] = log.detach()[free]
        if self.unit != "token":
            found[f"log_ratio/{self.unit}"] = log.detach()[free]
        outside = self.outside(facts, log)
        if outside is not None:
            others = (facts.advantage[free], length[free], lag[free])
            for name, flag in zip(("below", "above"), outside, strict=True):
                found |= shares(f"clip/{name}", flag[free], *others)
        return found


def _surrogate(name: str) -> Surrogate:
    """A built-in, or user code in the same form."""
    if ":" not in name:
        return SURROGATES[name]
    made = legal.own(name, legal.Surrogate, "update.surrogate")
    names = {key: argument for argument, key in KEYS.items()}

    def function(log: Tensor, current: Tensor, advantage: Tensor, **numbers: float) -> Tensor:
        found = made.function(log, current, advantage, **{KEYS[k]: v for k, v in numbers.items()})
        if not isinstance(found, Tensor) or found.shape != log.shape:
            raise ContractViolation(f"{name} must return one loss a token, {tuple(log.shape)}")
        return found

    return Surrogate(
        function,
        ("log_ratio", "current", "advantage"),
        required=tuple(names[key] for key in made.rule.required),
        optional=tuple(names[key] for key in made.rule.optional),
        roles=() if made.rule.ratio == "none" else (made.rule.ratio,),
        units=made.rule.units,
        idle=made.idle,
    )


def penalty(estimator: str, weighted: str, facts: Facts, reference: Tensor) -> Tensor:
    """Divergence [N] from the reference, as a loss; 0 on tokens that were forced."""
    x = ratio.anchored(current=facts.current, reference=reference, mask=facts.free)
    value = kl.ESTIMATORS[estimator](x)
    if weighted == "none":
        return value
    rho = ratio.direct(current=facts.current, behaviour=facts.behaviour, mask=facts.free)
    return kl.weighted(value, rho, graph=weighted == "graph")


class Corrected(NamedTuple):
    """``weight`` float64 [T] of each token's policy term, bool [T] ``keep``: it is not dropped.

    ``missing`` bool [T]: its ratio is not known, and ``update.correction.missing`` decided.
    """

    weight: Tensor
    keep: Tensor
    missing: Tensor


def corrected(
    spec: CorrectionSpec, batch: Batch, scores: Scores, index: Index, advantage: Tensor
) -> Corrected:
    """The correction of each token; nothing of it carries a gradient.

    A rule of episodes misses the ratio of an episode as a whole when one of its tokens has none.
    Raises ``ContractViolation`` when a role of the ratio is missing on a token that counts, unless
    the recipe keeps or drops such tokens.
    """
    mask, rule = index.valid & ~batch.forced, CORRECTIONS[spec.rule]
    role = scores.sampled if spec.ratio == "engine" else scores.old
    spoken = torch.zeros_like(mask) if role is None else role.logprob.isfinite()
    missing = mask & ~spoken
    if rule.whole and bool(missing.any()):
        missing = mask & torch.isin(index.episode, torch.unique(index.episode[missing]))
    kept = spec.missing == "keep"
    if bool(missing.any()) and not (kept or spec.missing == "drop"):
        name = "sampled" if spec.ratio == "engine" else "old"
        raise ContractViolation(
            f"update.correction: `{name}` is missing for {int(missing.sum())} tokens that count, "
            "and a ratio that is missing is not 1"
        )
    known = mask & ~missing
    said = torch.zeros_like(batch.behaviour) if role is None else role.logprob
    log = ratio.log_ratio(said, batch.behaviour, known).double()
    inputs: list[Tensor] = [log]
    if rule.advantage:
        inputs.append(advantage)
    if rule.whole:
        inputs += [index.episode, known]
    bounds = [spec.low] if rule.low else []
    found: correction.Correction = rule.function(*inputs, *bounds, spec.high)
    weight = torch.where(missing, float(kept), found.weight)
    return Corrected(weight, torch.where(missing, kept, found.keep), missing)


def temperature(recipe: Recipe) -> float:
    """The temperature of every policy role: that of the behaviour distribution."""
    sampling = recipe.policy.sampling.build()
    require_replayable(sampling)
    return sampling.temperature


def adaptive(spec: KLSpec) -> AdaptiveCoefficient:
    """The coefficient of the penalty; without a target it never moves."""
    target, horizon = spec.target or 1.0, spec.horizon or 1
    return AdaptiveCoefficient(spec.coefficient, target=target, horizon=horizon)
