"""The temperature probe: a few train tasks tried again, as they were and hotter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from hexad.contract.episode import Episode
from hexad.contract.task import Task
from hexad.environments.guard import uncontained
from hexad.evidence.archive import Archive
from hexad.policy.local import LocalEngine
from hexad.rollout.build import world_of
from hexad.rollout.collect import collect
from hexad.rollout.plan import plan_group

Row = dict[str, Any]
TASKS = 8
"""Groups that are tried at each temperature."""


def temperatures(archive: Archive, episodes: Sequence[Episode]) -> list[Row] | None:
    """Groups with a contrast among the first tasks of ``episodes``, at two temperatures.

    Played by the policy of the newest checkpoint, at the recipe's temperature and at a higher one
    (1, or half as much again). ``None`` where a reset does not undo what the tools do.
    """
    if uncontained(archive.family):
        return None
    first = {episode.group_id: episode for episode in reversed(episodes)}
    tasks = [archive.task(episode) for episode in list(first.values())[-TASKS:]]
    own = archive.recipe.policy.sampling.temperature
    return [_tried(archive, tasks, each) for each in (own, 1.0 if own < 0.75 else 1.5 * own)]


def _tried(archive: Archive, tasks: Sequence[Task], temperature: float) -> Row:
    recipe = archive.recipe
    sampling = recipe.policy.sampling.model_copy(update={"temperature": temperature})
    policy = recipe.policy.model_copy(update={"sampling": sampling})
    recipe = recipe.model_copy(update={"policy": policy})
    size, seed, name = recipe.data.group_size, recipe.run.seed, archive.family.name
    plans = [
        plan
        for number, task in enumerate(tasks)
        for plan in plan_group(task, size, name=f"probe-{number}", seed=seed, environment=name)
    ]
    engine = LocalEngine(archive.policy, rows=recipe.system.engine_rows)
    lineage = archive.policy.lineage()
    with ExitStack() as held:
        held.callback(lambda: asyncio.run(engine.close()))
        asyncio.run(engine.publish(None, archive.version))
        world = world_of(recipe, archive.policy, engine, lambda version: lineage, held)
        played = collect(plans, world, rows=recipe.system.engine_rows)
    scores = [episode.score(recipe.feedback.weights) for episode in played]
    groups = [[v for v in scores[at : at + size] if v == v] for at in range(0, len(scores), size)]
    hits = [e.verdict.success for e in played if e.verdict is not None and e.scored]
    return {
        "temperature": temperature,
        "groups": len(groups),
        "contrast": sum(len(set(group)) > 1 for group in groups),
        "success": sum(hits) / len(hits) if hits else None,
    }
