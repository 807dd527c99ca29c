"""What an episode costs a worker: a trial of the worker's own code, in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from hexad.contract.arrow import from_ipc
from hexad.contract.faults import ContractViolation
from hexad.environments.wrap import undisturbed
from hexad.evidence.barrier import Streaming
from hexad.evidence.costs import Cost, step_costs
from hexad.recipe.axes import Recipe
from hexad.recipe.timing_axis import TimingSpec
from hexad.rollout.plan import plan_group
from hexad.schedule.cursor import train_limit, train_tasks
from hexad.schedule.frame import Frame
from hexad.schedule.messages import Finished, Play, read
from hexad.schedule.sitting import Order, Stage

_SERIAL = 8
"""Episodes that are played one by one, to tell the cost of a step from that of a row."""


def streamed(recipe: Recipe, wal: Path) -> Streaming:
    """Play a batch of ``recipe`` as a worker does, recorded in the folder ``wal``, and sent.

    First a few episodes one by one, undisturbed; then all at once, with the recipe's latency, which
    decides how many rows decode together.
    """
    with ExitStack() as held:
        stage = Stage(recipe.model_copy(update={"timing": TimingSpec()}), wal, held)
        return asyncio.run(_streamed(recipe, stage))


async def _streamed(recipe: Recipe, stage: Stage) -> Streaming:
    stage.know({stage.engines.newest.version: "trial"})
    orders = _orders(recipe, stage)
    world = stage.world
    try:
        stage.world = replace(world, family=undisturbed(world.family))
        await _play(stage, orders[:1])  # imports and caches
        serial, _ = await _cost(stage, [[order] for order in orders[1 : 1 + _SERIAL]])
        stage.world = world
        batch, frames = await _cost(stage, [orders[1 + _SERIAL :]])
    finally:
        await stage.engines.close()
    step, row = step_costs(serial, batch)
    if other := {message.kind for message in map(read, frames)} - {Finished.kind}:
        raise ContractViolation(f"a trial from the start was answered by {sorted(other)}")
    began = time.process_time()
    for frame in frames:
        from_ipc(frame.body)
    return Streaming(step, row, (time.process_time() - began) / len(frames))


def _orders(recipe: Recipe, stage: Stage) -> list[Order]:
    """One order more than is measured, for the warm-up; tasks begin again where they end."""
    data, family = recipe.data, stage.world.family
    limit = train_limit(family, recipe.task.train.count)
    count = 1 + _SERIAL + data.groups * data.group_size
    found = []
    for number in range(-(-count // data.group_size)):
        index = number if limit is None else number % limit
        (task,) = train_tasks(family, limit, index, 1)
        plans = plan_group(
            task, data.group_size, name=f"trial-{number}", seed=0, environment=family.name
        )
        found += [Order(Play.of(plan, index), b"") for plan in plans]
    return found[:count]


async def _cost(stage: Stage, rounds: Sequence[Sequence[Order]]) -> tuple[Cost, list[Frame]]:
    """The cost of all ``rounds``, played one after the other, and the answers."""
    cpu, before = time.process_time(), stage.engines.stats
    frames = [frame for orders in rounds for frame in await _play(stage, orders)]
    return Cost.of(time.process_time() - cpu, before, stage.engines.stats), frames


async def _play(stage: Stage, orders: Sequence[Order]) -> list[Frame]:
    return list(await asyncio.gather(*(stage.sit(order, _nobody) for order in orders)))


def _nobody() -> None:
    """Nobody waits for the place of an episode that was played."""
