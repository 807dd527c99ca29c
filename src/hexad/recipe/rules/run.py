"""Rules of budgets and evaluations."""

from __future__ import annotations

from collections.abc import Iterator

from hexad.recipe.axes import Recipe
from hexad.recipe.problem import Problem


def budget(recipe: Recipe) -> Iterator[Problem]:
    """A budget that ends the run and that the run uses up."""
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


def evaluation(recipe: Recipe) -> Iterator[Problem]:
    """Evaluations on tasks that exist."""
    evaluation, task = recipe.run.evaluation, recipe.task
    if evaluation.every is not None and evaluation.points is not None:
        reason = "evaluations come after batches or at shares of the budget, not both"
        yield Problem("run.evaluation.points", reason, "set run.evaluation.every: null")
    measured = evaluation.every is not None or evaluation.points is not None
    if evaluation.until is not None and not measured:
        reason = "a target on selection needs evaluations on selection"
        yield Problem("run.evaluation.until", reason, "set run.evaluation.every, or drop until")
    for split in ("selection", "hidden", "gate"):
        if getattr(task, split).count is None:
            reason = "only train may draw as many tasks as the budget consumes"
            yield Problem(f"task.{split}.count", reason, f"use task.{split}.count: 200")
    count = task.selection.count
    if measured and count is not None and evaluation.tasks > count:
        reason = f"selection holds {count} tasks, fewer than the {evaluation.tasks} asked for"
        yield Problem("run.evaluation.tasks", reason, f"use at most {count}")
