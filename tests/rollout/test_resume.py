"""An episode goes on from its log as if nobody had stopped it."""

import asyncio
import json

import pytest

from hexad.contract.digest import digest
from hexad.environments.tools import Effect
from hexad.rollout.agent import play
from hexad.rollout.attempt import Seat
from hexad.rollout.host import Hosts
from hexad.rollout.log import EpisodeLog
from toyworld import ToyEnvironment, chatter, toy_plans, toy_world, untimed


class Counter(ToyEnvironment):
    """Counts its turns; the family counts every step that was really executed."""

    turns = 0

    async def step(self, turn):
        self.turns += 1
        self.family.executed = getattr(self.family, "executed", 0) + 1
        return await super().step(turn)

    def state_digest(self):
        return digest([self.task.data, self.turns])

    def snapshot(self):
        return json.dumps([self.task.task_id, self.turns]).encode()

    def fork(self, snapshot):
        made = Counter(self.family)
        name, made.turns = json.loads(snapshot)
        made.task = next(p.task for p in toy_plans(9) if p.task.task_id == name)
        return made


def counting(effect=Effect.REVERSIBLE, script=chatter):
    """A world of counters whose only tool is of class ``effect``."""
    world = toy_world(script, kind=Counter)
    world.family.effects = {"look": effect}
    return world


async def sit(plan, world, log, **seat):
    hosts = Hosts(1)
    try:
        return await play(plan, world, Seat(world.engine.sample, hosts, **seat), log)
    finally:
        hosts.stop()


def played(plan, world, log=None, **seat):
    return asyncio.run(sit(plan, world, log or EpisodeLog.create(), **seat))


@pytest.mark.parametrize("seed", range(6))
def test_an_episode_resumed_anywhere_is_the_uninterrupted_one(seed):
    plan = toy_plans(seed=seed)[0]
    world = counting()
    log = EpisodeLog.create()
    whole = played(plan, world, log)
    assert untimed(whole) == untimed(asyncio.run(sit(plan, counting(), None)))
    data = log.data()
    for end in range(0, len(data) + 1, 97):
        again = counting()
        part = EpisodeLog.read(data[:end])
        answered = sum(type(entry).__name__ == "Stepped" for entry in part.entries())
        assert untimed(played(plan, again, part)) == untimed(whole)
        assert getattr(again.family, "executed", 0) == whole.costs.turns - answered
