"""Foreign failures are retried, counted and never become a reward."""

import asyncio
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from hexad.contract.ending import Ending, EndingKind
from hexad.contract.faults import (
    ContractViolation,
    EngineFault,
    FaultRateExceeded,
    ToolFault,
    VerifierFault,
)
from hexad.contract.messages import Message, Role
from hexad.contract.reward import Reward
from hexad.contract.verdict import VerdictStatus
from hexad.environments.protocol import Start, Step
from hexad.feedback.judge import Feedback
from hexad.policy.scripted import Reply
from hexad.rollout.agent import assess, run_episode
from hexad.rollout.collect import collect
from hexad.rollout.rates import check_fault_rate, check_unscored_rate
from hexad.rollout.world import Patience
from toyworld import ToyEnvironment, chatter, say, toy_plans, toy_world, untimed


def run(world):
    return asyncio.run(run_episode(toy_plans()[0], world))


def failing(times, error):
    """An environment class whose first ``times`` instances fail at the second step."""

    class Failing(ToyEnvironment):
        steps = 0

        async def step(self, turn):
            self.steps += 1
            if self.steps == 2 and len(self.family.made) <= times:
                raise error
            return await super().step(turn)

    return Failing


SCRIPT = {f"g0-0/{attempt}": [say("ab"), say("cd"), say(".")] for attempt in range(5)}


def test_a_retry_overcomes_a_fault_and_books_what_was_lost():
    world = toy_world(SCRIPT, kind=failing(1, RuntimeError("boom")))
    episode = run(world)
    assert episode.ending.kind is EndingKind.TERMINAL and episode.scored
    assert episode.attempt == 1
    (fault,) = episode.faults
    assert (fault.boundary, fault.attempt) == ("environment", 0)
    assert "RuntimeError: boom" in fault.message
    assert episode.costs.lost_tokens == 6 and episode.costs.sampled_tokens == 8
    assert episode.costs.tool_calls == 3
    assert [request.key.attempt for request in world.engine.requests] == [0, 0, 1, 1, 1]
    assert len(set(world.family.seeds)) == 2
    assert all(environment.closed for environment in world.family.made)


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (RuntimeError("x"), EndingKind.ENVIRONMENT_ERROR, VerdictStatus.ENVIRONMENT_FAILURE),
        (SystemExit(3), EndingKind.ENVIRONMENT_ERROR, VerdictStatus.ENVIRONMENT_FAILURE),
        (
            asyncio.CancelledError(),
            EndingKind.ENVIRONMENT_ERROR,
            VerdictStatus.ENVIRONMENT_FAILURE,
        ),
        (TimeoutError("x"), EndingKind.ENVIRONMENT_ERROR, VerdictStatus.ENVIRONMENT_FAILURE),
        (ToolFault("x"), EndingKind.ENVIRONMENT_ERROR, VerdictStatus.ENVIRONMENT_FAILURE),
    ],
)
def test_o16_after_the_budget_the_episode_is_a_counted_fault(error, kind, status):
    world = toy_world(SCRIPT, kind=failing(9, error), retries=2)
    episode = run(world)
    assert episode.ending.kind is kind and episode.faulted
    assert not episode.ending.terminated and not episode.ending.truncated
    assert [fault.attempt for fault in episode.faults] == [0, 1, 2]
    assert episode.rewards == () and not episode.scored
    assert episode.verdict.status is status and episode.verdict.score is None
    assert episode.action_count == 6 == episode.costs.sampled_tokens
    assert episode.costs.lost_tokens == 12


def test_an_engine_fault_is_infrastructure_and_hits_its_episode_alone():
    def script(request):
        if request.session.startswith("g1-0"):
            return Reply(fault=EngineFault("non-finite logits"))
        return say(".")

    episodes = collect(toy_plans(3), toy_world(script, retries=1))
    kinds = [episode.ending.kind for episode in episodes]
    bad = EndingKind.INFRASTRUCTURE_ERROR
    assert kinds == [EndingKind.TERMINAL, bad, EndingKind.TERMINAL]
    assert [fault.boundary for fault in episodes[1].faults] == ["engine", "engine"]
    assert episodes[1].verdict.status is VerdictStatus.INFRASTRUCTURE_ERROR


def test_an_engine_that_returns_nan_is_a_fault():
    world = toy_world([say("ab", logprobs=[-1.0, np.nan, -1.0])], retries=0)
    episode = run(world)
    assert episode.ending.kind is EndingKind.INFRASTRUCTURE_ERROR
    assert "non-finite" in episode.ending.reason
    assert episode.action_count == 0


def test_what_a_reset_does_not_undo_is_not_repeated():
    class Irreversible(failing(9, RuntimeError("boom"))):
        @property
        def repeatable(self):
            return self.steps == 0

    world = toy_world(SCRIPT, kind=Irreversible, retries=5)
    episode = run(world)
    assert episode.faulted and len(episode.faults) == 1 and len(world.family.made) == 1


def answering(value, where="step"):
    class Junk(ToyEnvironment):
        async def reset(self, task, seed):
            return value if where == "reset" else await super().reset(task, seed)

        async def step(self, turn):
            return value

    return Junk


TOOLS = toy_world().family.tools
BAD_STEPS = [
    None,
    "ok",
    Step(messages=["ok"]),
    Step(messages=[Message(Role.TOOL, "ok")]),
    Step(messages=(Message(Role.TOOL, 7),)),
    Step(messages=(Message(Role.TOOL, "\ud800"),)),
    Step(messages=(Message("nobody", "x"),)),
    Step(ending=True),
    Step(ending=Ending(EndingKind.TERMINAL, True, True)),
    Step(ending=Ending(EndingKind.TERMINAL, False, False)),
    Step(ending=Ending.of(EndingKind.PAUSED)),
    Step(ending=Ending.of(EndingKind.ENVIRONMENT_ERROR, "gave up")),
    Step(rewards=(Reward("x", float("nan")),)),
    Step(rewards=(1.0,)),
    Step(rewards=None),
    Step(tool_calls="many"),
    Step(tool_calls=2**63),
    Step(messages=(Message(Role.TOOL, "x", 7),)),
    Step(rewards=(Reward(7, 1.0),)),
    Step(rewards=(Reward("x", 10**400),)),
    Step(ending=Ending(EndingKind.TERMINAL, True, False, b"over")),
    Step(ending=Ending(EndingKind.TERMINAL, True, False, "\ud800")),
    Step(tool_seconds=float("nan")),
]
BAD_STARTS = [
    None,
    (),
    Start((), TOOLS, "s"),
    Start((Message(Role.USER, "x"),), TOOLS, ""),
    Start((Message(Role.USER, "x"),), (), "s"),
    Start((Message(Role.USER, None),), TOOLS, "s"),
]


@pytest.mark.parametrize(
    "kind",
    [answering(v) for v in BAD_STEPS] + [answering(v, "reset") for v in BAD_STARTS],
    ids=lambda kind: None,
)
def test_junk_from_the_environment_is_its_fault(kind):
    episode = run(toy_world([say("ab")] * 9, kind=kind, retries=0))
    assert episode.ending.kind is EndingKind.ENVIRONMENT_ERROR
    assert episode.faults[0].boundary == "environment"
    assert episode.rewards == ()


class Hanging(ToyEnvironment):
    async def step(self, turn):
        if self.task.task_id == "toy:0":
            await asyncio.sleep(3600)
        return await super().step(turn)


class Blocking(ToyEnvironment):
    async def step(self, turn):
        if self.task.task_id == "toy:0":
            time.sleep(3)
        return await super().step(turn)


@pytest.mark.parametrize("kind", [Hanging, Blocking])
def test_a_hanging_environment_faults_and_blocks_nobody(kind):
    patience = Patience(step=0.3, close=0.3)
    world = toy_world(lambda r: say("." if len(r.ids) > 3 else "a"), kind=kind)
    world = replace(world, patience=patience, retries=1)
    started = time.monotonic()
    episodes = collect(toy_plans(4), world)
    assert time.monotonic() - started < 2.5
    assert episodes[0].ending.kind is EndingKind.ENVIRONMENT_ERROR
    assert "took longer than 0.3 s" in episodes[0].ending.reason
    assert [e.ending.kind for e in episodes[1:]] == [EndingKind.TERMINAL] * 3
    assert [len(e.faults) for e in episodes] == [2, 0, 0, 0]


def test_a_bug_of_ours_stops_everything():
    for error in (ContractViolation("bug"), LookupError("bug")):

        def script(request, error=error):
            if request.session.startswith("g1"):
                raise error
            return say("a")

        world = toy_world(script)
        with pytest.raises(type(error), match="bug"):
            collect(toy_plans(3), world)
        assert all(environment.closed for environment in world.family.made)


def test_a_contract_violation_inside_the_environment_is_not_swallowed():
    with pytest.raises(ContractViolation):
        run(toy_world(SCRIPT, kind=failing(9, ContractViolation("ours"))))


def test_a_failing_close_is_counted_and_changes_nothing():
    class Sticky(ToyEnvironment):
        async def close(self):
            raise OSError("busy")

    episode = run(toy_world(SCRIPT, kind=Sticky))
    assert episode.scored and [fault.message for fault in episode.faults] == [
        "close raised OSError: busy"
    ]


class Flaky(ToyEnvironment):
    """Fails by a draw of its seed, so by run, episode and attempt."""

    async def step(self, turn):
        if self.seed % 3 == 0:
            raise RuntimeError("flaky")
        return await super().step(turn)


def test_seeded_faults_repeat_and_differ_by_member_and_attempt():
    plans = toy_plans(6, size=4)
    first = collect(plans, toy_world(chatter, kind=Flaky, retries=1))
    second = collect(plans, toy_world(chatter, kind=Flaky, retries=1))
    assert [untimed(e) for e in first] == [untimed(e) for e in second]
    counts = [len(episode.faults) for episode in first]
    assert set(counts) == {0, 1, 2}
    groups = [counts[i : i + 4] for i in range(0, 24, 4)]
    assert any(len(set(group)) > 1 for group in groups)


def test_the_fault_rate_limit_names_counts_and_the_way_out():
    episodes = collect(toy_plans(8), toy_world(chatter, kind=Flaky, retries=0))
    share = sum(e.faulted for e in episodes) / 8
    assert 0 < share < 1
    check_fault_rate(episodes, share)
    with pytest.raises(
        FaultRateExceeded, match=r"of 8 .*\n.*EnvironmentFault x(.|\n)*data.retries"
    ):
        check_fault_rate(episodes, share - 0.01)


def test_a_failing_verifier_leaves_episodes_unscored_and_is_noticed():
    class Broken:
        digest = "broken"

        def verify(self, task, episode, transcript):
            raise VerifierFault("no")

    world = toy_world(SCRIPT)
    world = replace(world, feedback=Feedback(Broken(), world.feedback.mapping))
    episode = run(world)
    assert episode.ending.kind is EndingKind.TERMINAL
    assert not episode.scored and episode.rewards == ()
    check_unscored_rate([episode], 1.0)
    with pytest.raises(FaultRateExceeded, match="verifier_error x 1"):
        check_unscored_rate([episode], 0.5)


def test_a_faulted_episode_has_no_reward_even_without_a_verifier():
    class Generous(failing(9, RuntimeError("boom"))):
        async def step(self, turn):
            step = await super().step(turn)
            return Step(step.messages, rewards=(Reward("env", 1.0),))

    episode = run(toy_world(SCRIPT, kind=Generous, feedback=None, retries=0))
    assert episode.faulted and episode.costs.turns == 2 and episode.rewards == ()


def test_a_cancelled_judgement_ends_its_verifier():
    """Else a verifier that hangs holds its thread, and the thread holds the exit."""
    ended = threading.Event()

    class Hanging:
        digest = "hanging"

        def apply(self, task, episode, transcript):
            assert ended.wait(20), "nobody ended the verifier"
            return episode

        def close(self):
            ended.set()

    world = toy_world([say("ab")] * 9)
    episode = run(world)

    async def cancel():
        judged = replace(world, feedback=Hanging())
        judging = asyncio.create_task(assess(toy_plans()[0], judged, episode))
        await asyncio.sleep(0.05)
        judging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await judging

    started = time.monotonic()
    asyncio.run(cancel())  # waits for the thread
    assert ended.is_set() and time.monotonic() - started < 15
