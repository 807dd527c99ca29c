"""Rules across axes. Each names the key, the reason, and the nearest valid choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hexad.contract.faults import UserError
from hexad.recipe.axes import Recipe
from hexad.recipe.methods import METHODS, method
from hexad.recipe.presets import lookup


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule: the dotted ``key``, why it cannot be, and what to write instead."""

    key: str
    reason: str
    fix: str


def problems(recipe: Recipe) -> list[Problem]:
    """Everything that is wrong with a well-typed recipe; empty when it may run."""
    method(recipe.method)
    return [problem for rule in RULES for problem in rule(recipe)]


def validate(recipe: Recipe) -> None:
    """Raise ``UserError`` for the first broken rule; the others are counted in the message."""
    if found := problems(recipe):
        raise refusal(found, lambda key: key)


def refusal(found: list[Problem], where: Callable[[str], str]) -> UserError:
    """The error for ``found``, each problem with its place."""
    first, *rest = found
    others = [f"  also:  {p.key}: {p.reason} ({where(p.key)}; {p.fix})" for p in rest]
    what = "\n".join([f"{first.key}: {first.reason}", *others])
    return UserError(what, where=where(first.key), fix=first.fix)


def _feedback(recipe: Recipe) -> Iterator[Problem]:
    imitates = recipe.update.surrogate == "nll"
    source = recipe.feedback.source
    if imitates and source != "demonstrations":
        reason = "surrogate nll imitates, and a verifier gives no actions to imitate"
        yield Problem("update.surrogate", reason, "use plain or clip, or method: sft")
    if source == "demonstrations" and not imitates:
        reason = f"demonstrations carry no reward for surrogate {recipe.update.surrogate}"
        yield Problem("feedback.source", reason, "use update.surrogate: nll, or source: verifier")
    estimates = recipe.credit.estimator != "none"
    if imitates and estimates:
        reason = "imitation has no advantage, so the estimator would be ignored"
        yield Problem("credit.estimator", reason, "use credit.estimator: none")
    if not imitates and not estimates:
        reason = f"surrogate {recipe.update.surrogate} multiplies an advantage, and none is there"
        yield Problem("credit.estimator", reason, "use reinforce, rloo, grpo or dr_grpo")


def _data(recipe: Recipe) -> Iterator[Problem]:
    data, demonstrated = recipe.data, recipe.feedback.source == "demonstrations"
    if demonstrated and data.regime != "fixed":
        reason = "demonstrations are stored episodes, not sampled by the current policy"
        yield Problem("data.regime", reason, "use data.regime: fixed")
    if not demonstrated and data.regime == "fixed":
        reason = "the estimators here need episodes of the current policy"
        yield Problem("data.regime", reason, "use data.regime: online, or method: sft")
    if data.regime == "online" and data.origin != "policy":
        reason = f"online data is sampled by the policy, not by {data.origin!r}"
        yield Problem("data.origin", reason, "use data.origin: policy")
    if data.regime == "fixed" and data.origin == "policy":
        reason = "fixed data is not sampled while training"
        yield Problem("data.origin", reason, "use data.origin: expert, or a folder of episodes")
    if demonstrated and data.group_size != 1:
        reason = f"a demonstration has no group, so {data.group_size} attempts mean nothing"
        yield Problem("data.group_size", reason, "use data.group_size: 1")


def _credit(recipe: Recipe) -> Iterator[Problem]:
    credit, size = recipe.credit, recipe.data.group_size
    record = METHODS.get(credit.estimator)
    if record is not None and size < record.assumptions.min_group_size:
        fewest = record.assumptions.min_group_size
        reason = f"{credit.estimator} compares attempts at one task and is undefined for {size}"
        fix = f"use data.group_size: {fewest} or more, or credit.estimator: reinforce"
        yield Problem("data.group_size", reason, fix)
    if credit.estimator == "reinforce" and credit.baseline is None:
        reason = "estimator reinforce must say what it subtracts"
        yield Problem("credit.baseline", reason, "use credit.baseline: batch, or none")
    if credit.estimator == "grpo" and credit.std is None:
        reason = "estimator grpo must say which standard deviation divides"
        yield Problem("credit.std", reason, "use credit.std: population, the book's reference")
    if credit.estimator == "grpo" and credit.threshold is None:
        reason = "estimator grpo must say below which deviation the advantage is 0"
        yield Problem("credit.threshold", reason, "use credit.threshold: 1e-6")
    if credit.gamma != 1.0:
        reason = "Monte Carlo credit of a terminal reward has no discount"
        yield Problem("credit.gamma", reason, "use credit.gamma: 1.0")


def _sampling(recipe: Recipe) -> Iterator[Problem]:
    sampling = recipe.policy.sampling
    if sampling.temperature <= 0:
        reason = "at temperature 0 nothing is sampled: log-probs and ratios have no meaning"
        yield Problem("policy.sampling.temperature", reason, "use temperature: 1.0")
    inert = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    for key, value in inert.items():
        if getattr(sampling, key) != value:
            reason = f"{key} cannot be replayed by the learner yet, so ratios would be wrong"
            yield Problem(f"policy.sampling.{key}", reason, f"use {key}: {value}")


def _update(recipe: Recipe) -> Iterator[Problem]:
    update = recipe.update
    for key in ("clip_low", "clip_high"):
        if update.surrogate == "clip" and getattr(update, key) is None:
            reason = "surrogate clip needs both bounds"
            yield Problem(f"update.{key}", reason, f"use {key}: 0.2, or surrogate: plain")
    if update.minibatches > recipe.data.groups:
        reason = f"{recipe.data.groups} groups cannot be cut into {update.minibatches} minibatches"
        yield Problem("update.minibatches", reason, f"use at most {recipe.data.groups}")
    if not all(0.0 <= beta < 1.0 for beta in update.optimizer.betas):
        reason = f"decay rates lie in [0, 1), not {list(update.optimizer.betas)}"
        yield Problem("update.optimizer.betas", reason, "use betas: [0.9, 0.95]")


def _denominator(recipe: Recipe) -> Iterator[Problem]:
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


def _budget(recipe: Recipe) -> Iterator[Problem]:
    budget = recipe.budget
    counted = (budget.episodes, budget.rollout_tokens, budget.train_tokens, budget.tool_calls)
    if not any(counted) and budget.seconds is None:
        reason = "without any budget the run would never end"
        yield Problem("budget", reason, "use for example budget: {episodes: 4096}")
    elif not any(counted) and recipe.update.optimizer.schedule != "constant":
        reason = "a learning rate that decays over seconds differs between equal runs"
        fix = "add a counted budget such as episodes, or use schedule: constant"
        yield Problem("update.optimizer.schedule", reason, fix)
    if budget.rollout_tokens is not None and recipe.data.regime == "fixed":
        reason = "fixed data samples no tokens, so this budget would never be used up"
        yield Problem("budget.rollout_tokens", reason, "use budget.train_tokens or episodes")


def _evaluation(recipe: Recipe) -> Iterator[Problem]:
    evaluation, task = recipe.run.evaluation, recipe.task
    if evaluation.until is not None and evaluation.every is None:
        reason = "a target on selection needs evaluations on selection"
        yield Problem("run.evaluation.until", reason, "set run.evaluation.every, or drop until")
    for split in ("selection", "hidden", "gate"):
        if getattr(task, split).count is None:
            reason = "only train may draw as many tasks as the budget consumes"
            yield Problem(f"task.{split}.count", reason, f"use task.{split}.count: 200")
    count = task.selection.count
    if evaluation.every is not None and count is not None and evaluation.tasks > count:
        reason = f"selection holds {count} tasks, fewer than the {evaluation.tasks} asked for"
        yield Problem("run.evaluation.tasks", reason, f"use at most {count}")


@dataclass(frozen=True, slots=True)
class _Inert:
    """``key`` decides nothing unless ``choice`` is one of ``alive``."""

    key: str
    choice: str
    alive: tuple[str, ...]


_INERT = (
    _Inert("credit.baseline", "credit.estimator", ("reinforce",)),
    _Inert("credit.std", "credit.estimator", ("grpo",)),
    _Inert("credit.threshold", "credit.estimator", ("grpo",)),
    _Inert("update.clip_low", "update.surrogate", ("clip",)),
    _Inert("update.clip_high", "update.surrogate", ("clip",)),
    _Inert("update.target_kl", "update.surrogate", ("plain", "clip")),
    _Inert("action.length", "action.denominator", ("fixed",)),
    _Inert("action.inner", "action.denominator", ("prompt",)),
    _Inert("data.size", "data.regime", ("fixed",)),
    _Inert("feedback.weights", "feedback.source", ("verifier",)),
    _Inert("update.optimizer.floor", "update.optimizer.schedule", ("linear", "cosine")),
)
_DEFAULTS = Recipe()


def _inert(recipe: Recipe) -> Iterator[Problem]:
    for rule in _INERT:
        choice = lookup(recipe, rule.choice)
        default = lookup(_DEFAULTS, rule.key)
        if choice not in rule.alive and lookup(recipe, rule.key) != default:
            reason = f"has no effect with {rule.choice}: {choice}"
            wanted = " or ".join(rule.alive)
            yield Problem(rule.key, reason, f"remove it, or use {rule.choice}: {wanted}")


RULES: tuple[Callable[[Recipe], Iterator[Problem]], ...] = (
    _feedback,
    _data,
    _credit,
    _sampling,
    _update,
    _denominator,
    _budget,
    _evaluation,
    _inert,
)
"""Every rule, in the order in which problems are reported."""
