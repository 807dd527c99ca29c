"""Every cause of an end is recorded as itself, with what came last."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from hexad.contract.admission import admit
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.messages import Message, Role
from hexad.contract.needs import Needs
from hexad.environments.protocol import Step
from hexad.policy.scripted import Reply
from hexad.recipe.axes import LimitsSpec
from hexad.rollout.agent import run_episode
from toyworld import HEADER, ToyEnvironment, ids_of, say, toy_plans, toy_world


def run(world):
    return asyncio.run(run_episode(toy_plans()[0], world))


def limited(world, **limits):
    return replace(world, limits=LimitsSpec(**(world.limits.model_dump() | limits)))


def test_a_terminal_episode_is_whole_scored_and_admitted():
    episode = run(toy_world([say("ab"), say(".")]))
    (segment,) = episode.segments
    row = [*ids_of("t0", HEADER), *ids_of("ab", 0), *ids_of("ok", HEADER), *ids_of(".", 0)]
    assert segment.ids.tolist() == [int(i) for i in row]
    assert episode.ending.kind is EndingKind.TERMINAL
    assert [(r.component, r.value) for r in episode.rewards] == [("env", 1.0), ("task", 1.0)]
    assert episode.costs.sampled_tokens == 5 and episode.costs.observation_tokens == 3
    assert episode.costs.tool_calls == 1 and episode.costs.turns == 2
    assert episode.times.tool_seconds == 0.5
    assert episode.provenance.versions == ((0, "lineage-0"),)
    assert admit(episode, Needs(final_observation=True)) == []


def test_o07_out_of_turns_keeps_the_final_observation_without_header():
    episode = run(limited(toy_world([say("ab"), say("cd")]), turns=2))
    assert episode.ending == Ending.of(EndingKind.TRUNCATED_TURNS, "limits.turns")
    assert episode.segments[0].ids[-2:].tolist() == ids_of("ok").tolist()
    assert episode.segments[0].turn[-1] == 1
    assert admit(episode, Needs(final_observation=True)) == []


def test_o07_a_cut_turn_truncates_and_the_environment_never_sees_it():
    episode = run(toy_world([say("ab"), Reply(ids_of("cdefghij"))]))
    assert episode.ending.kind is EndingKind.TRUNCATED_TOKENS and episode.ending.truncated
    assert "turn_tokens" in episode.ending.reason
    assert episode.segments[0].action[-8:].all()
    assert episode.costs.tool_calls == 1


@pytest.mark.parametrize(("size", "reason"), [(8, "limits.context_tokens"), (9, "cut by")])
def test_o07_a_full_context_truncates(size, reason):
    # Prompt 3 + turn 3 + observation 2 + header 1 = 9 tokens.
    world = limited(toy_world([say("ab"), Reply(ids_of("cdefghij"))]), context_tokens=size + 1)
    episode = run(world if size == 9 else limited(world, context_tokens=9))
    assert episode.ending.kind is EndingKind.TRUNCATED_TOKENS
    assert reason in episode.ending.reason
    if size == 8:
        assert episode.segments[0].ids[-2:].tolist() == ids_of("ok").tolist()
    else:
        assert len(episode.segments[0]) == 10 and episode.segments[0].action[-1]


def test_o07_out_of_time_is_its_own_cause():
    now = iter(np.arange(0.0, 100.0, 1.0))
    world = limited(toy_world([say("ab")] * 9, clock=lambda: float(next(now))), seconds=4.0)
    episode = run(world)
    assert episode.ending.kind is EndingKind.TRUNCATED_TIME
    assert episode.segments[0].ids[-2:].tolist() == ids_of("ok").tolist()


def test_a_prompt_that_fills_the_context_is_truncated_without_action():
    episode = run(limited(toy_world([]), context_tokens=3))
    assert episode.ending.kind is EndingKind.TRUNCATED_TOKENS
    assert episode.action_count == 0


class Refusing(ToyEnvironment):
    async def step(self, turn):
        ending = Ending(EndingKind.INVALID_ACTION, terminated=True, truncated=False, reason="no")
        return Step((Message(Role.TOOL, "illegal"),), ending)


def test_the_environments_ending_goes_before_the_trainers():
    episode = run(limited(toy_world([say("ab")], kind=Refusing), turns=1))
    assert episode.ending.kind is EndingKind.INVALID_ACTION and episode.ending.terminated
    assert episode.segments[0].ids[-7:].tolist() == ids_of("illegal").tolist()


def test_an_episode_that_ends_in_time_is_not_out_of_time():
    class Late(ToyEnvironment):
        async def step(self, turn):
            now[0] = 9.0
            return await super().step(turn)

    now = [0.0]
    episode = run(limited(toy_world([say(".")], kind=Late, clock=lambda: now[0]), seconds=4.0))
    assert episode.ending.kind is EndingKind.TERMINAL
