"""Rules of what is added to an outcome's reward."""

from __future__ import annotations

from collections.abc import Iterator

from hexad.recipe import legal
from hexad.recipe.axes import Recipe
from hexad.recipe.problem import Problem

RESERVED = ("task", "cost", "length", "gate")
"""Components that are not a signal's."""


def feedback(recipe: Recipe) -> Iterator[Problem]:
    """Something is scored that the terms can be added to, and something reads them.

    Pairs by a gap and the best of a group are made by score, and read all that an episode has by
    itself. Kept samples, labels and the shortest correct are made by verdict, and read gates; the
    labels of visited states read nothing.
    """
    spec = recipe.feedback
    if spec.source == "verifier" and recipe.credit.estimator != "none":
        return
    for name in _inert(recipe):
        if getattr(spec, name):
            reason = "nothing here is credited with such a reward"
            fix = "remove it, or use feedback.source: verifier with an estimator"
            yield Problem(f"feedback.{name}", reason, fix)


_SUMMED = ("process", "costs")
"""Terms that only a score shows."""
_GATES = ("effort", "gate")
"""Terms that may close on an episode."""
_LATE = ("length", "constraints")
"""Terms that a batch as a whole decides."""


def _inert(recipe: Recipe) -> tuple[str, ...]:
    """Terms that nothing reads, where no estimator credits rewards."""
    rounds, made = recipe.data.rounds, recipe.data.pairs
    keep = rounds.keep if rounds is not None else None
    if recipe.data.regime != "iterative" or keep == "expert":
        return (*_SUMMED, *_GATES, *_LATE)
    scored = keep == "best" or (made is not None and made.rule in ("reward_gap", "branch"))
    return _LATE if scored else (*_SUMMED, *_LATE)


def signals(recipe: Recipe) -> Iterator[Problem]:
    """Names that mean one thing, and potentials where steps are rewarded."""
    rule = legal.estimator(recipe.credit.estimator)
    reads = "shaping" in (*rule.required, *rule.optional)
    able = [n for n, r in legal.ESTIMATORS.items() if "shaping" in (*r.required, *r.optional)]
    for name, spec in recipe.feedback.process.items():
        where = f"feedback.process.{name}"
        if name in RESERVED or name.startswith("constraint:"):
            yield Problem(where, f"the component {name} is another one", "give it another name")
        if spec.paid == "potential" and not reads:
            reason = (
                f"a potential adds the same to all attempts at a task, and "
                f"{recipe.credit.estimator} compares whole episodes: it would change nothing"
            )
            yield Problem(f"{where}.paid", reason, f"use credit.estimator: {' or '.join(able)}")
        if spec.paid == "potential" and spec.owner != "turn":
            reason = "a potential is paid at every step of the clock"
            yield Problem(f"{where}.owner", reason, "use owner: turn")
    if "gate" in recipe.feedback.weights:
        reason = "a gate's reward is what it declares, whatever the weights are"
        yield Problem("feedback.weights.gate", reason, "change feedback.gate.reward")


def gate(recipe: Recipe) -> Iterator[Problem]:
    """A gate has something to see."""
    if recipe.feedback.gate is not None and recipe.task.guard is None:
        reason = "nothing is forbidden, so no episode could break it"
        fix = "declare task.guard ({} where only the environment's card forbids), or remove it"
        yield Problem("feedback.gate", reason, fix)


def constraints(recipe: Recipe) -> Iterator[Problem]:
    """A multiplier that moves by one rule, over something that is counted."""
    feedback = recipe.feedback
    for name, spec in feedback.constraints.items():
        where = f"feedback.constraints.{name}"
        if (spec.rate is None) == (spec.pid is None):
            reason = "the multiplier moves by a rate, or as a PID controller says"
            yield Problem(f"{where}.rate", reason, "set rate: 0.05, or pid: {}")
        if spec.most is not None and spec.initial > spec.most:
            yield Problem(f"{where}.initial", f"it is over most = {spec.most:g}", "lower it")
        if spec.of == "cost" and feedback.costs is None:
            reason = "there are no prices"
            yield Problem(f"{where}.of", reason, "declare feedback.costs, or use of: calls")
        if spec.of == "cost" and feedback.weights.get("cost", 1.0) != 0:
            reason = "the cost would be charged twice: at its weight, and at the multiplier"
            yield Problem(f"{where}.of", reason, "set feedback.weights: {cost: 0.0}")
        if spec.of == "violations" and recipe.task.guard is None:
            yield Problem(f"{where}.of", "nothing is forbidden", "declare task.guard")


def comparisons(recipe: Recipe) -> Iterator[Problem]:
    """Rewards of a batch cannot be compared with scores that were taken without them."""
    spec = recipe.feedback
    for name in _LATE:
        if getattr(spec, name) and recipe.credit.baseline == "greedy":
            reason = "the greedy rollout's score does not hold it"
            yield Problem(f"feedback.{name}", reason, "use another credit.baseline")
    if spec.length is not None and recipe.data.group_size < 2:
        reason = "one attempt has no group to be shorter than"
        yield Problem("feedback.length", reason, "use data.group_size: 2 or more")
    if legal.estimator(recipe.credit.estimator).forks:
        dense = [n for n in ("costs", *_LATE) if getattr(spec, n)]
        dense += ["process"] if any(s.paid != "potential" for s in spec.process.values()) else []
        for name in dense:
            reason = "a continuation's score holds what was paid before it, too"
            yield Problem(f"feedback.{name}", reason, "use an estimator that needs no forks")
