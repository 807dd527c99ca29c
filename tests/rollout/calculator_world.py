"""The calculator with the tiny policy: what the tests of real episodes share."""

import asyncio
import random
import time
from dataclasses import replace

from hexad.contract.sampling import Sampling
from hexad.contract.task import Split
from hexad.environments.registry import family
from hexad.feedback.judge import Feedback
from hexad.feedback.mapping import mapping
from hexad.feedback.registry import verifier
from hexad.policy.local import LocalEngine
from hexad.rollout.plan import plan_tasks
from hexad.rollout.world import PolicyIdentity, World


class Slowed:
    """A calculator whose steps take random times, on its host's thread."""

    def __init__(self, inner, clock):
        self._inner, self._clock = inner, clock

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def step(self, turn):
        time.sleep(self._clock.random() * 0.01)
        await asyncio.sleep(self._clock.random() * 0.01)
        return await self._inner.step(turn)


def make_world(policy, delays=None, rows=8):
    calculator = family("calculator", {}, {})
    if delays is not None:
        clock, make = random.Random(delays), calculator.make
        calculator.make = lambda: Slowed(make(), clock)
    engine = LocalEngine(policy, rows=rows)
    asyncio.run(engine.publish(None, 0))
    identity = PolicyIdentity(
        policy.tokenizer_digest, policy.template_digest, policy.precision, policy.adapter
    )
    return World(
        engine=engine,
        chat=policy.chat(calculator.tools),
        family=calculator,
        policy=identity,
        stop_ids=policy.stop_ids,
        lineage=lambda version: "lineage",
        feedback=Feedback(verifier(None, calculator), mapping("binary")),
    )


def plans(world, tasks, size):
    found = world.family.tasks(Split.TRAIN, tasks)
    return plan_tasks(found, size, prefix="g", seed=5, environment=world.family.name)


def calling(world, policy):
    """``world`` whose turns are calls or, less often, an answer: an untrained policy that acts."""
    syntax = world.chat.syntax
    head = '{\\"name\\": \\"calculate\\", \\"arguments\\": {\\"a\\": '
    grammar = (
        f'start: <[{syntax.open_id}]> call <[{syntax.close_id}]> | "0" N\n'
        f'call: "{head}" N ", \\"op\\": \\"" OP "\\", \\"b\\": " N "}}}}"\n'
        "N: /[1-9]/\nOP: /[-+*]/\n"
    )
    return replace(world, sampling=Sampling(temperature=1.3, top_k=40, grammar=grammar))
