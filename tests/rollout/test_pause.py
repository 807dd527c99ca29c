"""A sitting ends after some tokens; the episode goes on later, as if it had not."""

import asyncio
from dataclasses import replace

import pytest
import torch
from calculator_world import calling, make_world, plans
from test_resume import Counter, Fixed, counting, played

from hexad.contract.faults import EnvironmentFault
from hexad.policy.engine import Stop
from hexad.policy.load import load_policy
from hexad.policy.local import LocalEngine
from hexad.rollout.agent import Paused
from hexad.rollout.entries import Left, Sampled, Stepped
from hexad.rollout.log import EpisodeLog
from hexad.rollout.plan import EpisodePlan
from toyworld import say, toy_plans, untimed


@pytest.fixture(scope="module")
def policy():
    return load_policy("builtin:tiny", seed=0)


def in_sittings(plan: EpisodePlan, worlds, pause_after):
    """The episode, the log and the number of pauses; every sitting has a world of its own."""
    data = EpisodeLog.create().data()
    for number, world in enumerate(worlds):
        log = EpisodeLog.read(data)
        before = log.sampled_tokens
        outcome = played(plan, world, log, pause_after=pause_after)
        assert log.sittings == number + 1
        if not isinstance(outcome, Paused):
            assert log.sampled_tokens - before <= pause_after
            return outcome, log, number
        assert outcome.log is log and log.sampled_tokens - before == pause_after
        data = log.data()
    raise AssertionError("the episode does not end")


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("pause_after", [1, 5, 14, 17])
def test_a_paused_episode_has_the_very_tokens_of_one_without_a_pause(policy, free, pause_after):
    world = make_world(policy)
    sampling = world.sampling if free else calling(world, policy).sampling
    world = replace(world, sampling=sampling)
    plan = plans(world, 2, 2)[2 if free else 0]
    whole = played(plan, world)
    worlds = (replace(make_world(policy), sampling=sampling) for _ in range(99))
    episode, log, pauses = in_sittings(plan, worlds, pause_after)
    assert untimed(episode) == untimed(whole)
    tokens = whole.costs.sampled_tokens
    assert log.sampled_tokens == tokens and pauses == (tokens - 1) // pause_after
    kinds = [type(entry) for entry in log.entries()]
    assert kinds.count(Left) == pauses
    assert kinds.count(Stepped) == whole.costs.turns - whole.ending.truncated


def test_a_pause_inside_a_turn_keeps_what_each_version_sampled(policy):
    world = make_world(policy)
    plan = plans(world, 2, 2)[0]
    log = EpisodeLog.create()
    assert isinstance(played(plan, world, log, pause_after=5), Paused)
    newer = replace(world, engine=LocalEngine(policy, rows=2, bind=False))
    weights = {name: tensor * 1.2 for name, tensor in policy.model.state_dict().items()}
    asyncio.run(newer.engine.publish(weights, 3))
    episode = played(plan, newer, log)
    (segment,) = episode.segments
    versions = segment.version[segment.action]
    assert versions[:5].tolist() == [0] * 5 and set(versions[5:].tolist()) == {3}
    assert log.newest_version == 3
    assert [version for version, _ in episode.provenance.versions] == [0, 3]
    model = load_policy("builtin:tiny", seed=0).model
    model.load_state_dict(weights)
    ids = torch.from_numpy(segment.ids.astype("int64"))
    with torch.no_grad():
        old, new = (
            torch.log_softmax(each(ids[None]).logits[0, :-1].float(), -1)
            .gather(1, ids[1:, None])[:, 0]
            .numpy()
            for each in (policy.model, model)
        )
    at = segment.action[1:].nonzero()[0]
    own = segment.logprob[1:]
    first = at[:5]
    turn = at[5 : int((segment.turn[1:][at] == 0).sum())]
    assert abs(old[first] - own[first]).max() < 1e-4 < abs(new[first] - own[first]).max()
    assert abs(new[turn] - own[turn]).max() < 1e-4 < abs(old[turn] - own[turn]).max()


def test_a_pause_between_turns_has_the_answer_already():
    plan, log = toy_plans()[0], EpisodeLog.create()
    world = counting([say("ab"), say(".")])
    assert isinstance(played(plan, world, log, pause_after=3), Paused)
    assert world.family.executed == 1 and all(made.closed for made in world.family.made)
    whole = played(plan, counting([say("ab"), say(".")]))
    assert untimed(played(plan, counting([say(".")]), log)) == untimed(whole)


def test_an_episode_that_ends_with_its_last_token_is_not_paused():
    plan = toy_plans()[0]
    script = [say("ab"), say(".")]
    episode = played(plan, counting(script), pause_after=5)
    assert not isinstance(episode, Paused) and episode.costs.sampled_tokens == 5


def test_the_last_token_of_a_turn_limit_is_a_cut_and_not_a_pause(policy):
    world = make_world(policy)
    world = replace(world, limits=world.limits.model_copy(update={"turn_tokens": 4}))
    plan = plans(world, 2, 2)[2]
    episode, log, _ = in_sittings(plan, [world] * 9, 4)
    assert episode.ending.reason == "a turn was cut by turn_tokens"
    (entry,) = [each for each in log.entries() if isinstance(each, Sampled)]
    assert entry.completion.stop is Stop.LENGTH and not entry.partial


def test_an_environment_that_cannot_fork_plays_on():
    plan = toy_plans()[0]
    world = counting([say("ab"), say("cd"), say(".")], kind=Fixed)
    episode = played(plan, world, pause_after=1)
    assert not isinstance(episode, Paused) and episode.costs.sampled_tokens == 8


class Clinging(Counter):
    async def close(self):
        self.closed = True
        raise EnvironmentFault("will not go")


def test_a_failed_release_at_a_pause_is_remembered():
    plan, log = toy_plans()[0], EpisodeLog.create()
    played(plan, counting([say("ab")], kind=Clinging), log, pause_after=3)
    episode = played(plan, counting([say(".")]), EpisodeLog.read(log.data()))
    assert [fault.message for fault in episode.faults] == ["will not go"]


def test_pauses_need_a_log_and_a_token():
    world, plan = counting(), toy_plans()[0]
    with pytest.raises(ValueError, match="at least one token"):
        played(plan, world, pause_after=0)
