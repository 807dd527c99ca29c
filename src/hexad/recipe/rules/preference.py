"""Rules of preferences and of rounds."""

from __future__ import annotations

from collections.abc import Iterator

from hexad.recipe.axes import DataSpec, Recipe
from hexad.recipe.legal import PREFERENCE_KEYS, PREFERENCES
from hexad.recipe.preference_axis import PairsSpec, PreferenceSpec, RoundsSpec
from hexad.recipe.problem import Problem

_IDLE = ("target_kl", "correction", "kl", "ess", "entropy", "positive_nll")
"""Keys of ``update`` that a preference loss does not read."""
_SCORED = ("reward_gap", "branch")
"""Rules of ``data.pairs`` that compare scores."""

_SAMPLED = ("episodes", "rollout_tokens", "tool_calls")
"""Budgets that sampling consumes."""


def loss(recipe: Recipe) -> Iterator[Problem]:
    """A preference loss has its numbers, and no other surrogate has any."""
    update, name = recipe.update, recipe.update.surrogate
    if name not in PREFERENCES:
        if update.preference is not None:
            reason = f"has no effect with update.surrogate: {name}"
            alive = [other for other, rule in PREFERENCES.items() if not rule.head]
            fix = f"remove it, or use update.surrogate: {' or '.join(alive)}"
            yield Problem("update.preference", reason, fix)
        return
    if recipe.feedback.source != "preferences":
        reason = f"surrogate {name} compares two sides, which only preferences name"
        yield Problem("feedback.source", reason, "use feedback.source: preferences")
    if recipe.credit.estimator != "none":
        reason = "a preference has no advantage, so the estimator would be ignored"
        yield Problem("credit.estimator", reason, "use credit.estimator: none")
    if recipe.critic is not None:
        yield Problem("critic", "a preference has no return to predict", "use critic: null")
    for key in _IDLE:
        if getattr(update, key) is not None:
            reason = f"has no effect with update.surrogate: {name}"
            yield Problem(f"update.{key}", reason, "remove it, or use surrogate: clip")
    yield from _numbers(name, update.preference)


def _numbers(name: str, spec: PreferenceSpec | None) -> Iterator[Problem]:
    rule, where = PREFERENCES[name], "update.preference"
    if rule.head == (spec is not None):
        reason, fix = f"surrogate {name} needs it", "use preference: {beta: 0.1, reduction: sum}"
        if rule.head:
            reason, fix = f"{name} compares the outputs of a head", "use preference: null"
        yield Problem(where, reason, fix)
    if spec is not None and not rule.head:
        yield from _keys(name, spec)


def _keys(name: str, spec: PreferenceSpec) -> Iterator[Problem]:
    rule = PREFERENCES[name]
    for key in PREFERENCE_KEYS:
        known, written = key in (*rule.required, *rule.optional), getattr(spec, key) is not None
        if key in rule.required and not written:
            fix = "use gamma: 1.25 with beta: 2.5"
            yield Problem(f"update.preference.{key}", f"{name} needs it", fix)
        if written and not known:
            alive = [n for n, r in PREFERENCES.items() if key in (*r.required, *r.optional)]
            fix = f"remove it, or use update.surrogate: {' or '.join(alive)}"
            yield Problem(f"update.preference.{key}", f"has no effect with {name}", fix)
    if spec.reduction not in rule.reductions:
        reason = f"{name} is not defined on the {spec.reduction} of a side's tokens"
        fix = f"use reduction: {' or '.join(rule.reductions)}"
        yield Problem("update.preference.reduction", reason, fix)
    for key in ("excess", "decay"):
        if getattr(spec, key) is not None and spec.reduction == "mean":
            reason = "it weighs the tokens of a sum; a mean has no length to correct"
            yield Problem(f"update.preference.{key}", reason, "use reduction: sum, or remove it")


def rounds(recipe: Recipe) -> Iterator[Problem]:
    """Rounds belong to iterative data, and iterative data is made into something."""
    data, spec = recipe.data, recipe.data.rounds
    if (data.regime == "iterative") != (spec is not None):
        reason = "a round samples tasks and reuses what was made of them; other data has none"
        yield Problem("data.rounds", reason, "use regime: iterative with rounds: {tasks: 512}")
        return
    if spec is None:
        return
    if spec.passes is None and spec.rounds > 1:
        reason = "without a number of passes the first round never ends"
        yield Problem("data.rounds.passes", reason, "use passes: 2, or rounds: 1")
    yield from _reference(recipe, spec)
    if spec.forks is not None and (data.pairs is None or data.pairs.rule != "branch"):
        reason = "what shares a beginning is compared by the rule branch, and by nothing else"
        fix = "use data.pairs: {rule: branch, gap: 0.5}, or remove it"
        yield Problem("data.rounds.forks", reason, fix)
    imitates = recipe.update.surrogate == "nll"
    if imitates != (spec.keep is not None):
        reason = "imitation of one's own samples keeps some of them, and nothing else does"
        yield Problem("data.rounds.keep", reason, "use keep: correct with surrogate: nll, only")
    if not imitates and recipe.update.surrogate not in PREFERENCES:
        reason = "data of a round is reused, which this surrogate's ratio does not allow"
        yield Problem("data.regime", reason, "use data.regime: online, or method: dpo or rejection")
    episodes = recipe.budget.episodes
    if episodes is not None and episodes <= spec.tasks * data.group_size:
        reason = "the first round's samples use it up, before anything is learned from them"
        yield Problem("budget.episodes", reason, "use budget.train_tokens")
    yield from _sampled(recipe, spec)


def _sampled(recipe: Recipe, spec: RoundsSpec) -> Iterator[Problem]:
    """A round samples at its start: a budget of samples ends the run when it is trained through."""
    limits = recipe.budget.model_dump(include=set(_SAMPLED), exclude_none=True)
    if not limits:
        return
    key = f"budget.{next(iter(limits))}"
    if spec.passes is None:
        reason = "samples come at the start of a round, and this one never ends"
        yield Problem(key, reason, "use data.rounds.passes: 2, or budget.train_tokens")
    if recipe.update.optimizer.schedule != "constant" and recipe.budget.train_tokens is None:
        reason = f"{key} is used up at the start of the last round, which would learn at its end"
        fix = "use schedule: constant, or budget.train_tokens"
        yield Problem("update.optimizer.schedule", reason, fix)


def _reference(recipe: Recipe, spec: RoundsSpec) -> Iterator[Problem]:
    """Several rounds say which policy their loss compares with; otherwise there is no choice."""
    rule, key = PREFERENCES.get(recipe.update.surrogate), "data.rounds.reference"
    chosen = spec.rounds > 1 and rule is not None and rule.reference
    if chosen and spec.reference is None:
        reason = "the loss compares with a frozen policy, and later rounds begin with another one"
        yield Problem(key, reason, "use reference: initial, or round_start")
    if not chosen and spec.reference is not None:
        reason = "there is nothing to choose: one round begins where the run does"
        if rule is None or not rule.reference:
            reason = f"surrogate {recipe.update.surrogate} compares with no frozen policy"
        yield Problem(key, reason, "remove it")


def pairs(recipe: Recipe) -> Iterator[Problem]:
    """Attempts become pairs by a rule that the loss can read."""
    data, spec, name = recipe.data, recipe.data.pairs, recipe.update.surrogate
    if name not in PREFERENCES:
        if spec is not None:
            yield Problem("data.pairs", f"surrogate {name} reads no pairs", "remove it")
        return
    if data.preferences is not None and not PREFERENCES[name].head:
        if spec is not None:
            reason = "the rows of data.preferences say which answer is better"
            yield Problem("data.pairs", reason, "use pairs: null")
    elif spec is None:
        fix = "use pairs: {rule: reward_gap, gap: 0.5}"
        yield Problem("data.pairs", "nothing says which of two attempts is better", fix)
    else:
        yield from _made(data, spec, name)


def _made(data: DataSpec, spec: PairsSpec, name: str) -> Iterator[Problem]:
    if data.regime == "online":
        reason = "pairs are made of attempts that are there already"
        yield Problem("data.regime", reason, "use regime: iterative, or fixed with data.origin")
    if (spec.rule == "labels") != (name == "kto"):
        reason = "KTO reads labels of single attempts, every other loss reads pairs"
        fix = "use rule: labels" if name == "kto" else "use rule: reward_gap"
        yield Problem("data.pairs.rule", reason, fix)
    if (spec.rule in _SCORED) != (spec.gap is not None):
        reason = f"the least difference belongs to {' and '.join(_SCORED)}, without a default"
        yield Problem("data.pairs.gap", reason, "use gap: 0.5 with these rules, only")
    if spec.rule == "labels" and spec.most != 1:
        yield Problem("data.pairs.most", "labels are of single attempts", "remove it")
    if data.regime == "iterative" and spec.rule != "labels" and data.group_size < 2:
        reason = "one attempt has nothing to be compared with"
        yield Problem("data.group_size", reason, "use data.group_size: 4")
