"""Rules of ratio, surrogate, corrections, KL and denominators."""

from __future__ import annotations

from collections.abc import Iterator

from hexad.recipe import legal
from hexad.recipe.axes import Recipe
from hexad.recipe.legal import SURROGATE_KEYS, SURROGATES
from hexad.recipe.problem import Problem
from hexad.recipe.update_axis import KLSpec, UpdateSpec

_ADVICE = {
    "clip": "use 0.2, PPO's; 3e-4 and 4e-4 (GSPO) with a mean ratio of episodes",
    "cispo": "use clip_low: 1.0 (no lower bound) and clip_high: 4.0; the paper discloses none",
    "dis": "use 0.3 and 5.0 (SAO, math) or 0.8 and 3.0 (code)",
    "sapo": "use tau: 1.0 and tau_negative: 1.05",
    "squared": "declare it, for example tau: 0.1; the paper discloses none",
    "token_clip": "declare it, for example 0.5, 0.5 and tau: 0.1; the paper discloses none",
    "difference": "use 0.2, prime-rl's",
}


def surrogate(recipe: Recipe) -> Iterator[Problem]:
    """Every number that the surrogate needs is there, and none that it ignores."""
    update, action = recipe.update, recipe.action
    name, rule = update.surrogate, legal.surrogate(update.surrogate)
    for key in rule.required:
        if getattr(update, key) is None:
            yield Problem(
                f"update.{key}", f"surrogate {name} needs it", _ADVICE.get(name, "declare it")
            )
    for key in SURROGATE_KEYS:
        if key not in (*rule.required, *rule.optional) and getattr(update, key) is not None:
            alive = [n for n, r in SURROGATES.items() if key in r.required or key in r.optional]
            reason = f"has no effect with update.surrogate: {name}"
            fix = f"remove it, or use update.surrogate: {' or '.join(alive)}"
            yield Problem(f"update.{key}", reason, fix)
    if name == "clip" and update.clip_low is not None and update.clip_low >= 1.0:
        reason = "a ratio is never below 0, so this bound never clips"
        yield Problem("update.clip_low", reason, "use clip_low: 0.2")
    if action.ratio not in rule.units:
        reason = f"surrogate {name} is not defined on the ratio of a {action.ratio}"
        yield Problem("action.ratio", reason, f"use action.ratio: {' or '.join(rule.units)}")
    if (action.ratio == "token") != (action.combine is None):
        reason = "the ratio of a turn or episode combines those of its tokens, a token's does not"
        fix = "use action.combine: sum (the product of ratios), or mean (GSPO), or ratio: token"
        yield Problem("action.combine", reason, fix)
    if action.denominator not in rule.denominators:
        reason = f"surrogate {name} does not average over {action.denominator}s"
        fix = f"use action.denominator: {' or '.join(rule.denominators)}"
        yield Problem("action.denominator", reason, fix)


def denominator(recipe: Recipe) -> Iterator[Problem]:
    """What a denominator must declare."""
    action = recipe.action
    if action.denominator == "fixed" and action.length is None:
        reason = "denominator fixed divides by a length that is declared, not measured"
        limits = recipe.task.limits
        longest = limits.turns * limits.turn_tokens
        fix = f"use action.length: {longest} (turns x turn_tokens), or denominator: episode"
        yield Problem("action.length", reason, fix)
    if action.denominator == "prompt" and action.inner is None:
        reason = "denominator prompt must say how items inside a prompt are averaged"
        yield Problem("action.inner", reason, "use action.inner: token or episode")
    sampled = recipe.feedback.source != "demonstrations"
    if action.forced == "out" and (recipe.policy.sampling.build().full_support or not sampled):
        reason = "has no effect: nothing is forced where sampling keeps the whole vocabulary"
        fix = "remove it, or cut with policy.sampling.grammar, top_k, top_p or min_p"
        yield Problem("action.forced", reason, fix)
    rule = recipe.update.correction.rule if recipe.update.correction is not None else None
    gates = rule in legal.GATING or legal.surrogate(recipe.update.surrogate).gates
    if action.gated == "out" and not gates:
        reason = "has no effect: nothing here drops a token"
        gating = [name for name, each in SURROGATES.items() if each.gates]
        fix = f"remove it, or use update.surrogate: {' or '.join(gating)}, or a correction's rule: "
        yield Problem("action.gated", reason, f"{fix}{' or '.join(legal.GATING)}")


def corrections(recipe: Recipe) -> Iterator[Problem]:
    """No stack that counts one change of policy twice."""
    update, correction = recipe.update, recipe.update.correction
    vtrace, direct = recipe.credit.estimator == "vtrace", _divides_directly(recipe)
    if vtrace and direct:
        reason = f"V-trace weighs by old / behaviour, {update.surrogate} divides by behaviour again"
        yield Problem("update.surrogate", reason, "use update.surrogate: plain, or estimator: gae")
    if correction is None:
        return
    if direct:
        reason = (
            f"surrogate {update.surrogate} already divides by the behaviour policy, so a weight "
            f"{correction.ratio} would count the mismatch twice"
        )
        yield Problem("update.correction", reason, "remove it, or use update.surrogate: clip")
    if vtrace:
        reason = "V-trace already weighs by old / behaviour, which holds the engine's mismatch too"
        yield Problem("update.correction", reason, "remove it, or use credit.estimator: gae")
    gates = correction.rule in ("icepop", "geometric")
    if gates != (correction.low is not None):
        reason = (
            "icepop and geometric keep ratios between low and high; the other rules have no low"
        )
        fix = "use low: 0.5 (icepop), or low: 0.999 (geometric), or remove it"
        yield Problem("update.correction.low", reason, fix)
    if gates and correction.low is not None and correction.low >= correction.high:
        yield Problem("update.correction.low", "nothing would be kept", "use low below high")


def _divides_directly(recipe: Recipe) -> bool:
    return legal.surrogate(recipe.update.surrogate).ratio == "direct"


def kl(recipe: Recipe) -> Iterator[Problem]:
    """Estimators whose gradient is what their place promises."""
    spec = recipe.update.kl
    if spec is None:
        return
    if spec.placement == "reward":
        if spec.estimator != "k1":
            reason = (
                f"in the reward only k1 gives the gradient of the divergence, not {spec.estimator}"
            )
            yield Problem("update.kl.estimator", reason, "use estimator: k1, or placement: loss")
        if spec.weighted != "none":
            reason = "the policy term already weighs the reward"
            yield Problem("update.kl.weighted", reason, "use weighted: none, or placement: loss")
    elif spec.estimator == "k1":
        reason = "as a loss k1 has gradient 0 in expectation: it regularises nothing"
        yield Problem("update.kl.estimator", reason, "use estimator: k2, or placement: reward")
    yield from _adaptive(spec)


def _adaptive(spec: KLSpec) -> Iterator[Problem]:
    if (spec.target is None) != (spec.horizon is None):
        reason = "an adaptive coefficient needs the target and the horizon of its moves"
        yield Problem("update.kl.horizon", reason, "set both, or neither")


def steps(recipe: Recipe) -> Iterator[Problem]:
    """Passes, minibatches and the optimiser."""
    update = recipe.update
    if update.minibatches > recipe.data.groups:
        reason = f"{recipe.data.groups} groups cannot be cut into {update.minibatches} minibatches"
        yield Problem("update.minibatches", reason, f"use at most {recipe.data.groups}")
    if not all(0.0 <= beta < 1.0 for beta in update.optimizer.betas):
        reason = f"decay rates lie in [0, 1), not {list(update.optimizer.betas)}"
        yield Problem("update.optimizer.betas", reason, "use betas: [0.9, 0.95]")
    if update.surrogate == "nll":
        yield from _imitation(update)


def _imitation(update: UpdateSpec) -> Iterator[Problem]:
    for key in ("target_kl", "correction", "kl", "ess", "entropy", "positive_nll"):
        if getattr(update, key) is not None:
            reason = "has no effect with update.surrogate: nll, which imitates"
            yield Problem(f"update.{key}", reason, "remove it, or use surrogate: clip")


def timing(recipe: Recipe) -> Iterator[Problem]:
    """Stale data only where something corrects for it."""
    timing, dynamic = recipe.timing, recipe.data.dynamic
    overlaps = timing.mode == "asynchronous"
    if overlaps != (timing.max_lag is not None):
        reason = "max_lag bounds how old data may be, which only asynchronous data is"
        yield Problem("timing.max_lag", reason, "set mode: asynchronous and max_lag, or neither")
    stale = overlaps or (dynamic is not None and dynamic.surplus == "carry")
    if stale and not corrects_lag(recipe):
        key = "timing.mode" if overlaps else "data.dynamic.surplus"
        reason = "nothing here corrects for data of an older policy"
        fix = (
            "use update.correction: {ratio: proximal, rule: tis, high: 2.0}, "
            "update.surrogate: dis, or credit.estimator: vtrace; or surplus: drop"
        )
        yield Problem(key, reason, fix)
    if dynamic is not None and recipe.data.group_size < 2:
        reason = "a group of one is never mixed"
        yield Problem("data.dynamic", reason, "use data.group_size: 2 or more, or dynamic: null")


def corrects_lag(recipe: Recipe) -> bool:
    """Whether the policy term weighs stale data by its version, or says what it does instead.

    A correction on ``engine`` says so by ``missing``; ``keep`` is stale data as if it were fresh.
    """
    correction = recipe.update.correction
    declared = correction is not None and correction.missing is not None
    return (
        _divides_directly(recipe)
        or recipe.credit.estimator == "vtrace"
        or recipe.update.old == "snapshot"
        or (correction is not None and (correction.ratio == "proximal" or declared))
    )
