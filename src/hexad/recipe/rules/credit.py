"""Rules of credit and critic."""

from __future__ import annotations

from collections.abc import Iterator

from hexad.recipe import legal
from hexad.recipe.axes import Recipe
from hexad.recipe.credit_axis import CreditSpec
from hexad.recipe.legal import ESTIMATOR_KEYS, ESTIMATORS
from hexad.recipe.problem import Problem
from hexad.recipe.update_axis import CriticSpec

_ADVICE = {
    "baseline": "use credit.baseline: batch, or none",
    "window": "use credit.window: 8, as in SAO's ablation",
    "std": "use credit.std: population, the book's reference",
    "threshold": "use credit.threshold: 1e-6",
    "omega": "use credit.omega: 1.0, as the paper does",
    "lambda_policy": "use credit.lambda_policy: 0.95, or 1.0",
    "lambda_critic": "use credit.lambda_critic: 1.0: the Monte Carlo return",
    "steps": "use credit.steps: 5",
    "continuations": "use credit.continuations: 9, as the paper does",
    "rho_bar": "use credit.rho_bar: 1.0, IMPALA's",
    "c_bar": "use credit.c_bar: 1.0, IMPALA's",
    "whiten": "use credit.whiten: batch",
    "truncation": "use credit.truncation: score, or mask: there is nothing to bootstrap from",
}


def estimator(recipe: Recipe) -> Iterator[Problem]:
    """Every number that the estimator needs is there, and none that it ignores."""
    credit, rule = recipe.credit, legal.estimator(recipe.credit.estimator)
    name = credit.estimator
    for key in rule.required:
        if getattr(credit, key) is None:
            yield Problem(
                f"credit.{key}", f"estimator {name} needs it", _ADVICE.get(key, "declare it")
            )
    defaults = CreditSpec()
    for key in ESTIMATOR_KEYS:
        known = key in rule.required or key in rule.optional or key == "gamma"
        if not known and getattr(credit, key) != getattr(defaults, key):
            alive = [n for n, r in ESTIMATORS.items() if key in r.required or key in r.optional]
            reason = f"has no effect with credit.estimator: {name}"
            fix = f"remove it, or use credit.estimator: {' or '.join(alive)}"
            yield Problem(f"credit.{key}", reason, fix)
    if credit.clock not in rule.clocks:
        reason = f"estimator {name} does not run on the clock {credit.clock}"
        yield Problem("credit.clock", reason, f"use credit.clock: {' or '.join(rule.clocks)}")
    if rule.episode and credit.gamma != 1.0:
        reason = "Monte Carlo credit of one number an episode has no discount"
        yield Problem("credit.gamma", reason, "use credit.gamma: 1.0")
    if recipe.data.group_size < rule.group:
        reason = (
            f"{name} compares attempts at one task and is undefined for {recipe.data.group_size}"
        )
        fix = f"use data.group_size: {rule.group} or more, or credit.estimator: reinforce"
        yield Problem("data.group_size", reason, fix)


def companions(recipe: Recipe) -> Iterator[Problem]:
    """Keys of credit that only make sense together."""
    credit = recipe.credit
    if (credit.baseline == "prompt_mean") != (credit.window is not None):
        reason = "baseline prompt_mean remembers the last `window` scores of a task, no other does"
        yield Problem("credit.window", reason, "set both, or neither")
    if (credit.baseline == "beta") != (credit.tracker is not None):
        reason = "baseline beta forgets as its tracker says, no other does"
        fix = "set both, for example tracker: {low: 0.875, high: 0.96, half_life: 0.06}, or neither"
        yield Problem("credit.tracker", reason, fix)
    if credit.baseline is not None:
        yield from _baseline(recipe)
    if credit.baseline == "greedy" and recipe.data.dynamic is not None:
        reason = "groups with a contrast have a baseline of their own"
        yield Problem("credit.baseline", reason, "use credit.estimator: rloo, or dynamic: null")
    if credit.estimator in ("gigpo", "turn_group") and (credit.std is None) != (
        credit.threshold is None
    ):
        reason = "a standard deviation divides only above a threshold"
        yield Problem("credit.threshold", reason, "set std and threshold, or neither")
    if credit.estimator == "gae" and (credit.lambda_policy is None) == (credit.alpha is None):
        reason = "the trace of the advantage is lambda_policy, or set by alpha, not both"
        fix = "use lambda_policy: 0.95, or alpha: 1.5 (SAO) or 0.05 (VAPO)"
        yield Problem("credit.lambda_policy", reason, fix)
    if credit.rho_bar is not None and credit.c_bar is not None and credit.c_bar > credit.rho_bar:
        reason = f"V-trace assumes c_bar <= rho_bar = {credit.rho_bar:g}"
        yield Problem("credit.c_bar", reason, f"use at most {credit.rho_bar:g}")
    if credit.whiten == "group" and recipe.data.group_size < 2:
        reason = "one attempt has no deviation inside its group"
        yield Problem("credit.whiten", reason, "use credit.whiten: batch")


def truncation(recipe: Recipe) -> Iterator[Problem]:
    """A value after the cut is for a critic to give or to leave out; a score is there anyway."""
    how, critic = recipe.credit.truncation, legal.estimator(recipe.credit.estimator).critic
    if how is not None and critic != (how == "terminal"):
        side = "with" if critic else "without"
        wanted = "terminal, or leave it out" if critic else "score or mask"
        reason = f"{how} means nothing to an estimator {side} a critic"
        yield Problem("credit.truncation", reason, f"use {wanted}")


def continuations(recipe: Recipe) -> Iterator[Problem]:
    """States are continued where and when they arise, by what their continuations are paid."""
    if not legal.estimator(recipe.credit.estimator).forks:
        return
    name, kl = recipe.credit.estimator, recipe.update.kl
    if recipe.timing.mode != "synchronous":
        reason = f"{name} continues states with the policy that met them, before it is updated"
        yield Problem("timing.mode", reason, "use timing.mode: synchronous")
    if recipe.data.dynamic is not None:
        reason = f"{name} continues every episode, even of groups that would be dropped"
        yield Problem("data.dynamic", reason, "use dynamic: null, or credit.estimator: rloo")
    if kl is not None and kl.placement == "reward":
        reason = "the values of continuations do not hold the penalty"
        yield Problem("update.kl.placement", reason, "use placement: loss with k2 or k3")


def _baseline(recipe: Recipe) -> Iterator[Problem]:
    """The baseline is one of the estimator's."""
    credit = recipe.credit
    grouped = credit.baseline == "group"
    if credit.estimator == "reinforce" and grouped:
        reason = "the return less the mean of its group is the estimator dr_grpo"
        yield Problem("credit.baseline", reason, "use credit.estimator: dr_grpo, or rloo")
    if credit.estimator == "reinforce_pp" and credit.baseline not in ("none", "group"):
        reason = f"REINFORCE++ subtracts nothing or the mean of the group, not {credit.baseline}"
        yield Problem("credit.baseline", reason, "use credit.baseline: group, or none")
    if grouped and recipe.data.group_size < 2:
        reason = "an attempt alone is its own mean, and nothing would be left to learn from"
        yield Problem(
            "credit.baseline", reason, "use data.group_size: 2 or more, or baseline: none"
        )


def critic(recipe: Recipe) -> Iterator[Problem]:
    """A critic exactly where the estimator reads one, and only the keys that it uses."""
    needed, spec = legal.estimator(recipe.credit.estimator).critic, recipe.critic
    if needed and spec is None:
        reason = f"estimator {recipe.credit.estimator} bootstraps from a learned value"
        fix = "write critic: {} for the defaults, or use rloo or grpo, which need none"
        yield Problem("critic", reason, fix)
    if not needed and spec is not None:
        alive = " or ".join(name for name, rule in ESTIMATORS.items() if rule.critic)
        reason = f"estimator {recipe.credit.estimator} never reads a value"
        yield Problem("critic", reason, f"use critic: null, or credit.estimator: {alive}")
    if spec is not None:
        yield from _critic_keys(spec)
    if spec is not None and spec.minibatches > recipe.data.groups:
        reason = f"{recipe.data.groups} groups cannot be cut into {spec.minibatches} minibatches"
        yield Problem("critic.minibatches", reason, f"use at most {recipe.data.groups}")


def _critic_keys(spec: CriticSpec) -> Iterator[Problem]:
    if spec.head == "hl_gauss" and spec.support is None:
        reason = "a histogram needs the smallest and largest return that it must hold"
        yield Problem("critic.support", reason, "use critic.support: [0.0, 1.0]")
    if spec.support is not None and not spec.support[0] < spec.support[1]:
        yield Problem("critic.support", "it is empty", "write [smallest, largest]")
    if spec.bins <= 6 * spec.sigma + 1:
        reason = f"{spec.bins} bins do not hold a Gaussian of {spec.sigma:g} bins"
        yield Problem("critic.bins", reason, "use critic.bins: 51")
    defaults = CriticSpec()
    alive = {
        "head": {"regression": ("clip",), "hl_gauss": ("support", "bins", "sigma")},
        "trunk": {
            "own": ("updates", "minibatches", "freeze", "rescore", "optimizer"),
            "shared": ("coefficient",),
        },
    }
    for choice, keys in alive.items():
        for other, names in keys.items():
            if getattr(spec, choice) == other:
                continue
            for name in names:
                if getattr(spec, name) != getattr(defaults, name):
                    reason = f"has no effect with critic.{choice}: {getattr(spec, choice)}"
                    fix = f"remove it, or use critic.{choice}: {other}"
                    yield Problem(f"critic.{name}", reason, fix)
