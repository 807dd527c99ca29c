"""Families that misbehave: ``bad_environment:BadFamily`` with ``options: {how: ..., where: ...}``.

``how``: ``raise`` (any exception), ``fault`` (``EnvironmentFault``), ``tool_fault``, ``hang`` (an
``await`` that never ends), ``block`` (the thread sleeps), ``junk`` (not an observation), ``text``
(a message whose content is a number). ``where``: ``make``, ``reset``, ``step``, ``close``.
``times``: how often it goes wrong before it behaves (all environments of a family together);
without it, always. Everything else is the calculator.
"""

import asyncio
import time

from hexad.contract.faults import EnvironmentFault, ToolFault
from hexad.contract.messages import Message, Role
from hexad.environments.calculator import CalculatorFamily
from hexad.environments.protocol import Start, Step

BLOCK_SECONDS = 20.0


class BadFamily(CalculatorFamily):
    def __init__(self, options, split_options, workers=4):
        options = dict(options)
        self.how = options.pop("how", "raise")
        self.where = options.pop("where", "step")
        self.left = options.pop("times", None)
        self.hits = 0
        super().__init__(options, split_options, workers)

    def make(self):
        world = super().make()
        if self.where == "make" and self.strikes():
            raise RuntimeError("a bad environment: make")
        return BadEnvironment(self, world)

    def strikes(self):
        if self.left == 0:
            return False
        self.left = None if self.left is None else self.left - 1
        self.hits += 1
        return True


class BadEnvironment:
    def __init__(self, family, world):
        self.family, self.world = family, world

    @property
    def repeatable(self):
        return self.world.repeatable

    async def reset(self, task, seed):
        start = await self.world.reset(task, seed)
        return await self.spoil("reset", start)

    async def step(self, turn):
        return await self.spoil("step", await self.world.step(turn))

    def state_digest(self):
        return self.world.state_digest()

    async def close(self):
        await self.world.close()
        await self.spoil("close", None)

    async def spoil(self, where, good):
        if where != self.family.where or not self.family.strikes():
            return good
        how = self.family.how
        if how == "raise":
            raise ZeroDivisionError(f"a bad environment: {where}")
        if how == "fault":
            raise EnvironmentFault(f"a bad environment: {where}")
        if how == "tool_fault":
            raise ToolFault(f"a bad tool: {where}")
        if how == "hang":
            await asyncio.Event().wait()
        if how == "block":
            time.sleep(BLOCK_SECONDS)
        message = Message(Role.TOOL, 7)
        if how == "text":
            return Step((message,)) if where == "step" else Start((message,), (), "x")
        return {"junk": where}


def not_a_family(options, split_options, workers):
    return object()


def too_few(options):
    return CalculatorFamily(options)
