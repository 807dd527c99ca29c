"""Rules of feedback, data and sampling."""

from __future__ import annotations

from collections.abc import Iterator

from hexad.contract.support import MAX_SUPPORT
from hexad.recipe import legal
from hexad.recipe.axes import Recipe
from hexad.recipe.problem import Problem


def feedback(recipe: Recipe) -> Iterator[Problem]:
    """Imitation with demonstrations or kept samples, advantages with a verifier."""
    if recipe.update.surrogate in legal.PREFERENCES:
        return  # rules.preference
    imitates = recipe.update.surrogate == "nll"
    source = recipe.feedback.source
    kept = recipe.data.rounds is not None and recipe.data.rounds.keep is not None
    weighed = recipe.data.advantage is not None
    if imitates and source != "demonstrations" and not (kept or weighed):
        reason = "surrogate nll imitates, and a verifier gives no actions to imitate"
        yield Problem("update.surrogate", reason, "use plain or clip, or method: sft")
    if source == "demonstrations" and not imitates:
        reason = f"demonstrations carry no reward for surrogate {recipe.update.surrogate}"
        yield Problem("feedback.source", reason, "use update.surrogate: nll, or source: verifier")
    if source == "preferences":
        reason = f"surrogate {recipe.update.surrogate} compares nothing"
        yield Problem("feedback.source", reason, "use source: verifier, or update.surrogate: dpo")
    estimates = recipe.credit.estimator != "none"
    if imitates and estimates:
        reason = "imitation has no advantage, so the estimator would be ignored"
        yield Problem("credit.estimator", reason, "use credit.estimator: none")
    if not imitates and not estimates:
        reason = f"surrogate {recipe.update.surrogate} multiplies an advantage, and none is there"
        yield Problem("credit.estimator", reason, "use reinforce, rloo, grpo or dr_grpo")


def data(recipe: Recipe) -> Iterator[Problem]:
    """Who produced the data fits where feedback comes from."""
    data, demonstrated = recipe.data, recipe.feedback.source == "demonstrations"
    labelled = data.rounds is not None and data.rounds.keep == "expert"
    if demonstrated and data.regime != "fixed" and not labelled:
        reason = "demonstrations are stored episodes, not sampled by the current policy"
        yield Problem("data.regime", reason, "use data.regime: fixed")
    preferred = recipe.feedback.source == "preferences"
    weighed = data.advantage is not None
    if not (demonstrated or preferred or weighed) and data.regime == "fixed":
        reason = "the estimators here need episodes of the current policy"
        yield Problem("data.regime", reason, "use data.regime: online, or method: sft")
    if data.regime != "fixed" and data.origin != "policy":
        reason = f"{data.regime} data is sampled by the policy, not by {data.origin!r}"
        yield Problem("data.origin", reason, "use data.origin: policy")
    if data.regime == "fixed" and data.origin == "policy":
        reason = "fixed data is not sampled while training"
        yield Problem(
            "data.origin", reason, "use data.origin: expert, data_set, or a folder of episodes"
        )
    if demonstrated and data.group_size != 1:
        reason = f"a demonstration has no group, so {data.group_size} attempts mean nothing"
        yield Problem("data.group_size", reason, "use data.group_size: 1")


def overlong(recipe: Recipe) -> Iterator[Problem]:
    """A punishment that can be reached and has room to fall."""
    spec, limits = recipe.feedback.overlong, recipe.task.limits
    if spec is None:
        return
    if recipe.feedback.source != "verifier":
        reason = "a demonstration has no reward to punish"
        yield Problem("feedback.overlong", reason, "remove it, or use feedback.source: verifier")
    if spec.cache > spec.limit:
        reason = "it would fall from less than no token on"
        yield Problem("feedback.overlong.cache", reason, f"use at most {spec.limit}")
    if spec.limit - spec.cache >= limits.turns * limits.turn_tokens:
        reason = "no episode may become that long"
        fix = f"use a limit near {limits.turns * limits.turn_tokens} (turns x turn_tokens)"
        yield Problem("feedback.overlong.limit", reason, fix)


def sampling(recipe: Recipe) -> Iterator[Problem]:
    """A behaviour distribution that the learner can evaluate."""
    sampling = recipe.policy.sampling
    if sampling.temperature <= 0:
        reason = "at temperature 0 nothing is sampled: log-probs and ratios have no meaning"
        yield Problem("policy.sampling.temperature", reason, "use temperature: 1.0")
    greedy = {"top_k": (1, 0), "top_p": (0.0, 1.0), "min_p": (1.0, 0.0)}
    for key, (alone, whole) in greedy.items():
        if getattr(sampling, key) == alone:
            reason = "it keeps one token at every place: greedy rollouts have no usable ratio"
            yield Problem(f"policy.sampling.{key}", reason, f"use {key}: {whole}, which keeps all")
    if sampling.top_k > MAX_SUPPORT:
        reason = f"at most {MAX_SUPPORT} tokens a position can be recorded, whatever the vocabulary"
        fix = f"use top_k: {MAX_SUPPORT} or less, or 0, which keeps all"
        yield Problem("policy.sampling.top_k", reason, fix)
