import time
from dataclasses import replace

import pytest

from hexad.contract.ending import EndingKind
from hexad.contract.task import Split
from hexad.contract.verdict import VerdictStatus
from hexad.feedback.judge import Feedback
from hexad.recipe.axes import TaskSpec
from hexad.recipe.task_axis import ChaosSpec, LatencySpec, SlowStartSpec
from hexad.rollout.collect import collect
from hexad.rollout.disturb import disturbed, flaky
from hexad.rollout.world import Patience
from toyworld import ToyEnvironment, ToyVerifier, chatter, toy_plans, toy_world, untimed


def world_with(retries=0, patience=None, **keys):
    world = toy_world(chatter, retries=retries)
    task = TaskSpec(**keys)
    feedback = Feedback(flaky(world.feedback.verifier, task), world.feedback.mapping)
    return replace(
        world,
        family=disturbed(world.family, task),
        feedback=feedback,
        patience=patience or Patience(),
    )


def plain_of(episode):
    return replace(untimed(episode), provenance=None)


def test_a_slow_world_gives_the_same_episodes_in_the_time_that_was_drawn():
    plans = toy_plans(3, size=2)
    latency = LatencySpec(kind="pareto", mean=0.06, alpha=1.5, cap=0.2)
    slow = collect(plans, world_with(latency=latency))
    again = collect(plans, world_with(latency=latency))
    fast = collect(plans, toy_world(chatter))
    assert [plain_of(e) for e in slow] == [plain_of(e) for e in fast]
    pairs = zip(slow, again, strict=True)
    assert [e.times.tool_seconds for e, _ in pairs] == [e.times.tool_seconds for e in again]
    assert len({e.times.tool_seconds for e in slow}) == 6
    for episode, bare in zip(slow, fast, strict=True):
        waited = episode.times.tool_seconds - bare.times.tool_seconds
        steps = bare.costs.turns
        assert 0.02 * bare.costs.tool_calls <= waited <= 0.2 * steps + 1e-9
        assert episode.times.seconds >= waited


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (ChaosSpec(crash=1.0), "reset raised ChaosError: chaos: call 0 crashed"),
        (ChaosSpec(hang=1.0), "reset took longer than 0.2 s"),
        (ChaosSpec(junk=1.0), "reset returned a"),
        (ChaosSpec(slow_start=SlowStartSpec(p=1.0, seconds=5.0)), "reset took longer than 0.2 s"),
    ],
)
def test_a_failure_that_was_asked_for_is_a_fault_of_the_environment(spec, says):
    started = time.monotonic()
    [episode] = collect(toy_plans(1), world_with(chaos=spec, patience=Patience(0.2, 0.2, 0.2)))
    assert time.monotonic() - started < 3
    assert episode.ending.kind is EndingKind.ENVIRONMENT_ERROR
    assert episode.faults[0].boundary == "environment" and says in episode.faults[0].message
    assert episode.rewards == () and not episode.scored


def test_faults_repeat_differ_by_attempt_and_leave_other_splits_alone():
    plans = toy_plans(8, size=4)
    chaos = ChaosSpec(crash=0.15, junk=0.1)
    first = collect(plans, world_with(retries=1, chaos=chaos))
    second = collect(plans, world_with(retries=1, chaos=chaos))
    assert [untimed(e) for e in first] == [untimed(e) for e in second]
    assert {len(e.faults) for e in first} == {0, 1, 2}
    recovered = [e for e in first if len(e.faults) == 1]
    assert recovered and all(e.attempt == 1 and not e.faulted for e in recovered)
    hidden = [replace(p, task=replace(p.task, split=Split.HIDDEN)) for p in plans]
    assert not any(e.faults for e in collect(hidden, world_with(chaos=ChaosSpec(crash=1.0))))


def test_a_flaky_verifier_leaves_episodes_unscored_and_never_wrong():
    plans = toy_plans(10, size=4)
    made = collect(plans, world_with(chaos=ChaosSpec(flaky_verifier=0.3)))
    plain = collect(plans, toy_world(chatter))
    failed = [e.verdict.status is VerdictStatus.VERIFIER_ERROR for e in made]
    assert 4 <= sum(failed) <= 20  # 12 expected, sd 2.9
    for episode, bare, bad in zip(made, plain, failed, strict=True):
        assert episode.rewards == (() if bad else bare.rewards)
    assert made[failed.index(True)].verdict.evidence.count("ChaosError") == 1
    repeated = collect(plans, world_with(chaos=ChaosSpec(flaky_verifier=0.3)))
    assert [untimed(e) for e in made] == [untimed(e) for e in repeated]
    hidden = [replace(p, task=replace(p.task, split=Split.HIDDEN)) for p in plans]
    judged = collect(hidden, world_with(chaos=ChaosSpec(flaky_verifier=1.0)))
    assert all(e.scored for e in judged)


def test_what_disturbs_is_in_the_provenance():
    plain, slow = toy_world(chatter), world_with(latency=LatencySpec(kind="constant", mean=0.1))
    shaky = world_with(chaos=ChaosSpec(flaky_verifier=0.5))
    digests = [w.provenance([]).environment for w in (plain, slow, shaky)]
    assert len(set(digests)) == 3
    assert plain.provenance([]).verifier != shaky.provenance([]).verifier
    assert plain.provenance([]).verifier == slow.provenance([]).verifier
    toy = ToyVerifier()
    assert flaky(toy, TaskSpec(chaos=ChaosSpec(crash=0.5))) is toy


def test_an_attempt_that_may_not_be_repeated_is_not():
    class Once(ToyEnvironment):
        repeatable = False

    world = toy_world(chatter, kind=Once, retries=3)
    task = TaskSpec(chaos=ChaosSpec(junk=1.0))
    [episode] = collect(toy_plans(1), replace(world, family=disturbed(world.family, task)))
    assert len(episode.faults) == 1
