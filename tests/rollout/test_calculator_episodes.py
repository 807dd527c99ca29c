"""The real parts together: tiny policy, local engine, calculator, verifier."""

import asyncio
import random
import time

import pytest
import torch

from hexad.contract.admission import admit, admit_group
from hexad.contract.messages import Role
from hexad.contract.needs import Needs
from hexad.contract.segment import SpanKind
from hexad.contract.task import Split
from hexad.environments.registry import family
from hexad.feedback.judge import Feedback
from hexad.feedback.mapping import mapping
from hexad.feedback.registry import verifier
from hexad.policy.load import load_policy
from hexad.policy.local import LocalEngine
from hexad.rollout.collect import collect
from hexad.rollout.demonstrate import record
from hexad.rollout.plan import plan_tasks
from hexad.rollout.world import PolicyIdentity, World
from toyworld import untimed


@pytest.fixture(scope="module")
def policy():
    return load_policy("builtin:tiny", seed=0)


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


def test_a_real_rollout_is_the_same_bits_whatever_takes_how_long(policy):
    results = []
    for delays in (None, 1, 2):
        world = make_world(policy, delays)
        episodes = collect(plans(world, 4, 3), world, rows=5)
        results.append([untimed(e) for e in episodes])
    assert results[0] == results[1] == results[2]
    assert all(admit(e, Needs(lineage={0: "lineage"})) == [] for e in results[0])
    assert admit_group(results[0], Needs()) == []


def test_recorded_log_probs_are_the_models_own_on_the_recorded_row(policy):
    world = make_world(policy)
    for episode in collect(plans(world, 2, 2), world):
        (segment,) = episode.segments
        ids = torch.from_numpy(segment.ids.astype("int64"))
        with torch.no_grad():
            logits = policy.model(ids[None]).logits[0].float()
        own = torch.log_softmax(logits[:-1], -1).gather(1, ids[1:, None])[:, 0]
        action = torch.from_numpy(segment.action.copy())
        assert not action[0]
        gap = own[action[1:]] - torch.from_numpy(segment.logprob[segment.action])
        assert gap.abs().max() < 1e-4


def test_expert_rows_are_the_one_shot_render_and_are_judged_correct(policy):
    world = make_world(policy)
    for episode in record(plans(world, 12, 1), world):
        assert episode.verdict.success
        assert admit(episode, Needs.for_sft()) == []
        (segment,) = episode.segments
        kinds = {span.kind for span in segment.spans if segment.action[span.start]}
        assert kinds == {SpanKind.TOOL_CALL, SpanKind.TEXT}
        transcript = world.chat.decode(episode.segments)
        assert [m.role for m in transcript[-2:]] == [Role.TOOL, Role.ASSISTANT]
        again = policy.tokenizer.encode(
            policy.tokenizer.decode(segment.ids.tolist()), add_special_tokens=False
        )
        assert again == segment.ids.tolist()
        assert segment.turn[-1] == episode.costs.turns - 1 == episode.costs.tool_calls
