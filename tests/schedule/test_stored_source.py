"""Fixed data is handed out in a fixed order, whatever interrupts it."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import episode
from hexad.contract.events import EpisodeDone
from hexad.contract.faults import UserError
from hexad.contract.store import Store
from hexad.contract.task import Split
from hexad.recipe.axes import DataSpec, Recipe, RunSpec, SplitSpec, TaskSpec
from hexad.schedule.cursor import next_indices, shuffled
from hexad.schedule.stored import ExpertShelf, FolderShelf, StoredSource
from toyworld import ToyEnvironment, toy_world


def recipe(groups=2, size=None, count=None, seed=0):
    return Recipe(
        task=TaskSpec(train=SplitSpec(count=count)),
        data=DataSpec(regime="fixed", origin="expert", groups=groups, group_size=1, size=size),
        run=RunSpec(seed=seed),
    )


def expert(plan, events=None):
    world = toy_world([])
    sink = (lambda event: None) if events is None else events.append
    return StoredSource(ExpertShelf(world, plan), world, plan, sink), world


def tasks(made, batches):
    return [[e.task_id for e in made.next(v).episodes] for v in range(batches)]


def test_without_a_size_every_train_task_is_demonstrated_once_in_order():
    made, world = expert(recipe())
    assert tasks(made, 3) == [["toy:0", "toy:1"], ["toy:2", "toy:3"], ["toy:4", "toy:5"]]
    assert len(world.family.made) == 6


def test_o18_a_finite_expert_ends_with_a_partial_batch():
    made, _ = expert(recipe(count=3))
    assert not made.next(0).exhausted
    last = made.next(1)
    assert [e.task_id for e in last.episodes] == ["toy:2"] and last.exhausted
    assert made.next(2).episodes == () and made.next(2).exhausted


def test_a_sized_shelf_repeats_whole_passes_in_new_orders_and_records_once():
    events = []
    made, world = expert(recipe(size=5), events)
    seen = tasks(made, 12)
    assert [len(batch) for batch in seen] == [2, 2, 1] * 4
    passes = [[t for batch in seen[i : i + 3] for t in batch] for i in range(0, 12, 3)]
    assert all(sorted(p) == [f"toy:{i}" for i in range(5)] for p in passes)
    assert len({tuple(p) for p in passes}) > 1
    assert len(world.family.made) == 5
    assert sum(isinstance(event, EpisodeDone) for event in events) == 20


@settings(max_examples=30, deadline=None)
@given(size=st.integers(1, 9), count=st.integers(1, 5), cut=st.integers(0, 11))
def test_o18_the_multiset_of_trained_items_survives_an_interruption(size, count, cut):
    def walk(position, batches):
        found = []
        for _ in range(batches):
            found.append(next_indices(size, 3, position, count))
            position += len(found[-1])
        return found, position

    whole, _ = walk(0, 12)
    before, position = walk(0, cut)
    after, _ = walk(position, 12 - cut)
    assert before + after == whole
    assert all(len(set(batch)) == len(batch) > 0 for batch in whole)
    counts = Counter(index for batch in whole for index in batch)
    assert max(counts.values()) - min(counts.get(i, 0) for i in range(size)) <= 1


def test_o18_a_resumed_source_hands_out_what_was_left():
    plan = recipe(size=5, seed=4)
    whole = tasks(expert(plan)[0], 8)
    first, _ = expert(plan)
    start = tasks(first, 3)
    resumed, _ = expert(plan)
    resumed.restore(first.state())
    assert start + tasks(resumed, 5) == whole


def test_the_order_depends_on_seed_and_pass_only():
    assert shuffled(50, 1, 2) == shuffled(50, 1, 2)
    assert len({tuple(shuffled(50, s, e)) for s in (1, 2) for e in (1, 2)}) == 4
    assert sorted(shuffled(50, 1, 2)) == list(range(50))


def test_more_demonstrations_than_train_tasks_are_refused():
    with pytest.raises(UserError, match="5 demonstrations of 3 train tasks"):
        expert(recipe(size=5, count=3))


def test_a_demonstration_that_faulted_is_recorded_again():
    class Once(ToyEnvironment):
        async def step(self, turn):
            if len(self.family.made) <= 3:
                raise OSError("gone")
            return await super().step(turn)

    plan = recipe(groups=1, size=1).model_copy(
        update={"data": DataSpec(regime="fixed", groups=1, group_size=1, size=1, fault_limit=1.0)}
    )
    world = toy_world([], kind=Once)
    made = StoredSource(ExpertShelf(world, plan), world, plan)
    assert made.next(0).episodes[0].faulted
    assert not made.next(1).episodes[0].faulted


def test_a_folder_is_read_and_checked(tmp_path):
    episodes = [episode(episode_id=f"e{i}", group_id=f"g{i}") for i in range(3)]
    Store(tmp_path / "good").append(0, episodes)
    shelf = FolderShelf(tmp_path / "good", size=None)
    assert shelf.size == 3 and shelf.take([2, 0]) == [episodes[2], episodes[0]]
    assert FolderShelf(tmp_path / "good", size=2).size == 2
    with pytest.raises(UserError, match=r"holds 3 episodes, 4 are needed"):
        FolderShelf(tmp_path / "good", size=4)
    with pytest.raises(UserError, match=r"holds 0 episodes"):
        FolderShelf(tmp_path / "missing", size=None)
    Store(tmp_path / "bad").append(0, [episode(split=Split.HIDDEN)])
    with pytest.raises(UserError, match="only train tasks"):
        FolderShelf(tmp_path / "bad", size=None)


def test_a_shelf_asks_the_family_how_many_tasks_there_are():
    world = toy_world([])
    world.family.task_count = lambda split: 3 if split is Split.TRAIN else None
    made = StoredSource(ExpertShelf(world, recipe()), world, recipe())
    assert not made.next(0).exhausted and made.next(1).exhausted
    with pytest.raises(UserError, match="5 demonstrations of 3"):
        ExpertShelf(world, recipe(size=5))
