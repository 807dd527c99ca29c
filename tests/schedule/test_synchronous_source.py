"""Tasks are drawn once each, in order, and a resumed source draws the same ones."""

from dataclasses import replace

import pytest

from hexad.contract.events import EpisodeDone, TasksDrawn
from hexad.contract.faults import ContractViolation, FaultRateExceeded, UserError
from hexad.contract.task import Split
from hexad.recipe.axes import DataSpec, Recipe, RunSpec, SplitSpec, TaskSpec
from hexad.schedule.cursor import train_limit
from hexad.schedule.synchronous import SynchronousSource
from toyworld import ToyEnvironment, ToyFamily, chatter, toy_world, untimed


def recipe(groups=2, size=2, count=None, **data):
    return Recipe(
        task=TaskSpec(train=SplitSpec(count=count)),
        data=DataSpec(groups=groups, group_size=size, **data),
        run=RunSpec(seed=7),
    )


def source(plan, events=None, **changes):
    sink = (lambda event: None) if events is None else events.append
    made = SynchronousSource(toy_world(chatter, **changes), plan, sink)
    made.publish(None, 0, "digest-0")
    return made


def harvest(made, versions):
    found = []
    for version in versions:
        found.append(made.next(version))
        made.publish(None, version + 1, f"digest-{version + 1}")
    return found


def test_groups_of_a_batch_are_whole_and_named_by_version_and_task():
    events = []
    first, second = harvest(source(recipe(), events), [0, 1])
    ids = [e.episode_id for e in first.episodes + second.episodes]
    assert ids == [f"v{v}-{t}-{m}" for v, t in ((0, 0), (0, 1), (1, 2), (1, 3)) for m in (0, 1)]
    assert [e.group_id for e in second.episodes] == ["v1-2", "v1-2", "v1-3", "v1-3"]
    assert {e.split for e in first.episodes} == {Split.TRAIN}
    assert [e.provenance.versions for e in second.episodes] == [((1, "digest-1"),)] * 4
    drawn = [event for event in events if isinstance(event, TasksDrawn)]
    assert [(d.version, d.tasks, d.episodes) for d in drawn] == [(0, 2, 4), (1, 2, 4)]
    done = [event.episode.episode_id for event in events if isinstance(event, EpisodeDone)]
    assert done == ids


def test_o18_an_interrupted_source_continues_bit_for_bit():
    whole = harvest(source(recipe()), range(4))
    part = source(recipe())
    harvest(part, range(2))
    resumed = SynchronousSource(toy_world(chatter), recipe())
    resumed.restore(part.state())
    resumed.publish(None, 2, "digest-2")
    again = harvest(resumed, range(2, 4))
    left = [untimed(e) for h in whole[2:] for e in h.episodes]
    assert left == [untimed(e) for h in again for e in h.episodes]


def test_o18_a_finite_split_ends_with_a_partial_batch_and_never_restarts():
    made = source(recipe(groups=2, size=1, count=3))
    first, last = harvest(made, range(2))
    assert [e.task_id for e in first.episodes] == ["toy:0", "toy:1"] and not first.exhausted
    assert [e.task_id for e in last.episodes] == ["toy:2"] and last.exhausted
    (after,) = harvest(made, [2])
    assert after.episodes == () and after.exhausted


def counted(size):
    world = toy_world(chatter)
    world.family.task_count = lambda split: size
    return world


def test_o18_a_family_that_knows_its_size_ends_the_data_without_a_count():
    made = SynchronousSource(counted(3), recipe(groups=2, size=1))
    made.publish(None, 0, "digest-0")
    first, last = harvest(made, range(2))
    assert len(first.episodes) == 2 and not first.exhausted
    assert [e.task_id for e in last.episodes] == ["toy:2"] and last.exhausted
    assert train_limit(counted(3).family, 2) == 2 and train_limit(counted(None).family, 9) == 9
    assert train_limit(ToyFamily(), None) is None


@pytest.mark.parametrize(("size", "count"), [(3, 4), (0, None), ("3", None), (True, None)])
def test_a_count_beyond_the_family_and_a_senseless_size_are_refused(size, count):
    with pytest.raises(UserError) as caught:
        SynchronousSource(counted(size), recipe(count=count))
    assert caught.value.where in ("task.train.count", "ToyFamily.task_count") and caught.value.fix


def test_only_train_tasks_are_accepted():
    class Leaky(ToyFamily):
        def tasks(self, split, count, *, offset=0):
            return super().tasks(Split.HIDDEN, count, offset=offset)

    world = replace(toy_world(chatter), family=Leaky())
    made = SynchronousSource(world, recipe())
    with pytest.raises(UserError, match="only train tasks"):
        made.next(0)


def test_a_version_that_the_engine_has_not_loaded_is_refused():
    with pytest.raises(ContractViolation, match="version 1 was not published"):
        source(recipe()).next(1)


class Broken(ToyEnvironment):
    async def step(self, turn):
        raise OSError("gone")


def test_o16_too_many_faults_stop_the_run_and_are_on_the_books():
    events = []
    made = source(recipe(fault_limit=0.2, retries=0), events, kind=Broken, retries=0)
    with pytest.raises(FaultRateExceeded, match="4 of 4 episodes faulted"):
        made.next(0)
    assert sum(isinstance(event, EpisodeDone) for event in events) == 4
    assert made.state() == {"cursor": 0}
