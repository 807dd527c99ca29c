"""Rules of the policy roles: who is ``old``, whom ``sampled`` can be said of."""

from __future__ import annotations

from collections.abc import Iterator

from hexad.recipe import legal
from hexad.recipe.axes import Recipe
from hexad.recipe.problem import Problem

_LAG = "timing: {mode: asynchronous, max_lag: 4}"


def roles(recipe: Recipe) -> Iterator[Problem]:
    """``old`` and ``sampled`` are who the recipe's ratios suppose them to be."""
    update, correction = recipe.update, recipe.update.correction
    lag = recipe.timing.max_lag or 0
    if (update.old == "ewma") != (update.decay is not None):
        reason = "the average of old: ewma forgets by its decay, no other old has one"
        yield Problem("update.decay", reason, "set old: ewma and decay: 0.9, or neither")
    for key in ("old", "sampled"):
        if getattr(update, key) == "snapshot" and not lag:
            reason = "without lag the version that sampled is the learner itself"
            yield Problem(f"update.{key}", reason, f"remove it, or use {_LAG}")
    if update.sampled != "this_version" and legal.surrogate(update.surrogate).ratio == "none":
        yield Problem("update.sampled", f"has no effect with {update.surrogate}", "remove it")
    if correction is not None and correction.ratio == "engine" and update.sampled == "none":
        reason = "correction engine divides by sampled, which nobody says"
        yield Problem("update.sampled", reason, "use sampled: this_version or snapshot")
    meets = correction is not None and correction.ratio == "engine" and lag > 0
    if correction is not None and meets != (correction.missing is not None):
        reason = (
            "on stale data the engine's ratio is missing for tokens of other versions, and only"
        )
        fix = "use missing: drop, keep or refuse with ratio: engine and stale data; else remove it"
        yield Problem("update.correction.missing", f"{reason} there", fix)
    if update.old != "recomputed":
        yield from _stand_in(recipe)


def _stand_in(recipe: Recipe) -> Iterator[Problem]:
    """Where another than the learner before the first step may be ``old``."""
    update, correction, key = recipe.update, recipe.update.correction, "update.old"
    ratio = legal.surrogate(update.surrogate).ratio
    if ratio != "update":
        reason = f"surrogate {update.surrogate} does not divide by old"
        yield Problem(key, reason, "use old: recomputed, or surrogate: clip")
    if recipe.credit.estimator == "vtrace":
        reason = "V-trace asks for the learner's own ratio to behaviour"
        yield Problem(key, reason, "use old: recomputed, or credit.estimator: gae")
    if update.kl is not None and update.kl.target is not None:
        reason = "an adaptive coefficient is moved by the learner's own log-probs"
        yield Problem("update.kl.target", reason, "remove target and horizon, or old: recomputed")
    proximal = correction is not None and correction.ratio == "proximal"
    if update.old == "snapshot":
        if update.sampled != "snapshot":
            yield Problem("update.sampled", "old: snapshot is it", "use sampled: snapshot")
        if proximal:
            reason = "old is the version that sampled, so old / behaviour is the engine's ratio"
            yield Problem("update.correction.ratio", reason, "use ratio: engine")
    elif not proximal:
        reason = f"old: {update.old} did not sample, so current / old must be weighed by old / mu"
        fix = "use correction: {ratio: proximal, rule: tis, high: 5.0}, or old: recomputed"
        yield Problem("update.correction", reason, fix)
    if update.old == "interpolated":
        yield from _interpolated(recipe)


def _interpolated(recipe: Recipe) -> Iterator[Problem]:
    if not recipe.timing.max_lag:
        reason = "without lag it is the engine's record, which the learner can say better"
        yield Problem("update.old", reason, f"use old: recomputed, or {_LAG}")
    if recipe.system.dtype == "bfloat16":
        reason = "it takes the engine's record for fresh tokens, which bfloat16 falsifies"
        yield Problem("update.old", reason, "use old: recomputed, or system.dtype: float32")
