"""Rounds sample once and reuse; stored episodes make pairs; both go on where they stopped."""

import json
from dataclasses import replace

import pytest

from hexad.contract.digest import digest
from hexad.contract.events import EpisodeDone, ItemsMade
from hexad.contract.faults import UserError
from hexad.contract.store import Store
from hexad.recipe.axes import LimitsSpec, Recipe
from hexad.schedule.pairs import PairSource, RoundSource, stored_pairs
from hexad.schedule.synchronous import SynchronousSource
from toyworld import chatter, toy_world

SHORT = LimitsSpec(turns=2, turn_tokens=8, context_tokens=64)
"""Chatter ends 58 % of its episodes in time, so that most groups are mixed."""
DPO = {
    "feedback": {"source": "preferences"},
    "credit": {"estimator": "none"},
    "action": {"denominator": "pair"},
    "update": {"surrogate": "dpo", "preference": {"beta": 0.1, "reduction": "sum"}},
}


def recipe(rule="reward_gap", keep=None, most=1, **rounds):
    pairs = {"rule": rule, "most": most} | ({"gap": 0.5} if rule == "reward_gap" else {})
    data = {
        "regime": "iterative",
        "groups": 2,
        "group_size": 6,
        "rounds": {"tasks": 4, "keep": keep, **rounds},
        "pairs": None if keep else pairs,
    }
    return Recipe.model_validate({**DPO, "data": data})


def source(folder, plan, events=None, world=None):
    world = world or toy_world(chatter, limits=SHORT)
    folder.mkdir(exist_ok=True)
    made = RoundSource(world, plan, folder, (lambda e: None) if events is None else events.append)
    made.publish(None, 0, digest(0))
    return made


def run(made, folder, batches, first=0):
    """Harvests of ``batches`` batches; every one is stored and published, as the loop does."""
    found = []
    for version in range(first, first + batches):
        made.publish(None, version, digest(version))
        found.append(made.next(version))
        if found[-1].sampled:
            Store(folder / "episodes").append(version, found[-1].sampled)
    return found


def names(harvest):
    return [(e.group_id, e.member, e.episode_id) for e in harvest.episodes]


def test_a_round_samples_once_and_hands_out_whole_pairs(tmp_path):
    events = []
    made = source(tmp_path, recipe(passes=2), events)
    batches = run(made, tmp_path, 4)
    assert [len(b.sampled) for b in batches] == [24, 0, 0, 0]
    assert sum(isinstance(e, EpisodeDone) for e in events) == 24
    for batch in batches:
        for chosen, rejected in zip(batch.episodes[::2], batch.episodes[1::2], strict=True):
            assert chosen.group_id == rejected.group_id
            assert (chosen.member, rejected.member) == (0, 1)
            assert chosen.task_id == rejected.task_id
            assert chosen.verdict.success and not rejected.verdict.success
    assert [b.exhausted for b in batches] == [False, False, False, True]


def test_every_sample_is_used_or_dropped_once_and_later_passes_are_no_news(tmp_path):
    made = source(tmp_path, recipe(passes=2))
    batches = run(made, tmp_path, 4)
    every = {e.episode_id for e in batches[0].sampled}
    dropped = [e.episode_id for b in batches for e, reason in b.dropped if reason == "unused"]
    used = [e.episode_id for b in batches for e in b.episodes if e.episode_id not in b.reused]
    assert sorted(dropped + used) == sorted(every)
    assert all(b.reused == {e.episode_id for e in b.episodes} for b in batches[2:])
    assert not any(b.reused for b in batches[:2])


def test_passes_come_in_different_orders(tmp_path):
    batches = run(source(tmp_path, recipe(passes=4)), tmp_path, 8)
    orders = {tuple(names(batches[i]) + names(batches[i + 1])) for i in range(0, 8, 2)}
    assert len(orders) > 1 and len({tuple(sorted(order)) for order in orders}) == 1


def test_the_next_round_samples_new_tasks_with_the_policy_as_it_is_then(tmp_path):
    made = source(tmp_path, recipe(passes=1, rounds=2))
    batches = run(made, tmp_path, 4)
    first, second = (
        {(e.task_id, e.provenance.versions[0][0]) for e in batches[i].sampled} for i in (0, 2)
    )
    assert {task for task, _ in first} == {f"toy:{i}" for i in range(4)}
    assert {task for task, _ in second} == {f"toy:{i}" for i in range(4, 8)}
    assert {version for _, version in second} == {2}
    assert [b.exhausted for b in batches] == [False, False, False, True]


def test_no_round_begins_without_a_task(tmp_path):
    plan = recipe(passes=1, rounds=3)
    train = plan.task.train.model_copy(update={"count": 4})
    plan = plan.model_copy(update={"task": plan.task.model_copy(update={"train": train})})
    assert [b.exhausted for b in run(source(tmp_path, plan), tmp_path, 2)] == [False, True]


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_resumed_round_goes_on_with_the_same_pairs_without_sampling(tmp_path, stop):
    plan = recipe(passes=2)
    whole = [names(b) for b in run(source(tmp_path / "a", plan), tmp_path / "a", 4)]
    made = source(tmp_path / "b", plan)
    run(made, tmp_path / "b", stop)
    state = json.loads(json.dumps(made.state()))
    events = []
    again = source(tmp_path / "b", plan, events)
    again.restore(state)
    rest = run(again, tmp_path / "b", 4 - stop, first=stop)
    assert [names(b) for b in rest] == whole[stop:]
    assert events == []


def test_the_audit_is_stored_and_told(tmp_path):
    events = []
    run(source(tmp_path, recipe(passes=2), events), tmp_path, 4)
    (row,) = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert row["pairs"] == row["covered"] == 4 and row["tasks"] == 4 and row["round"] == 0
    (told,) = [e.text for e in events if isinstance(e, ItemsMade)]
    assert told.startswith("round 0: 4 pairs of 4 of 4 tasks")


def test_rejection_sampling_keeps_correct_attempts_as_they_are(tmp_path):
    (batch,) = run(source(tmp_path, recipe(keep="correct", passes=1)), tmp_path, 1)
    by_id = {e.episode_id: e for e in batch.sampled}
    assert all(e == by_id[e.episode_id] and e.verdict.success for e in batch.episodes)


def test_best_of_n_keeps_one_a_task(tmp_path):
    made = source(tmp_path, recipe(keep="best", passes=1))
    kept = [e for b in run(made, tmp_path, 2) for e in b.episodes]
    assert sorted(e.task_id for e in kept) == [f"toy:{i}" for i in range(4)]


def test_labels_are_single_episodes(tmp_path):
    (batch,) = run(source(tmp_path, recipe("labels", passes=1)), tmp_path, 1)
    assert len({e.group_id for e in batch.episodes}) == len(batch.episodes)


def test_attempts_that_all_fail_make_a_clear_error(tmp_path):
    def mute(request):
        return replace(chatter(request), ids=[97, 0], logprobs=[-1.0, -1.0])

    with pytest.raises(UserError, match="make nothing to learn from: 0 pairs of 0 of 4 tasks"):
        run(source(tmp_path, recipe(), world=toy_world(mute)), tmp_path, 1)


# -- stored ----------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path):
    """Two tasks, six attempts each, as a run stores them."""
    world = toy_world(chatter, limits=SHORT)
    plan = Recipe.model_validate({"data": {"groups": 2, "group_size": 6}})
    online = SynchronousSource(world, plan)
    online.publish(None, 0, digest(0))
    Store(tmp_path / "episodes").append(0, online.next(0).episodes)
    return tmp_path / "episodes"


def fixed(folder, **changes):
    data = {
        "regime": "fixed",
        "origin": str(folder),
        "groups": 1,
        "pairs": {"rule": "reward_gap", "gap": 0.5, "most": 2},
        **changes,
    }
    return Recipe.model_validate({**DPO, "data": data})


def test_stored_episodes_make_pairs_that_repeat_until_a_budget_ends_the_run(stored, tmp_path):
    events, plan = [], fixed(stored)
    found = stored_pairs(plan)
    made = PairSource(found, toy_world(), plan, tmp_path, events.append)
    size = len(found.items)
    batches = [made.next(version) for version in range(2 * size)]
    assert size >= 2 and not any(b.exhausted for b in batches)
    first, second = (
        {e.group_id for b in half for e in b.episodes} for half in (batches[:size], batches[size:])
    )
    assert first == second and len(first) == size
    assert sum(isinstance(e, EpisodeDone) for e in events) == 4 * size
    assert len((tmp_path / "pairs.jsonl").read_text().splitlines()) == 1
    again = PairSource(found, toy_world(), plan, tmp_path)
    again.restore({"position": size})
    assert [names(again.next(0))] == [names(batches[size])]


def test_a_folder_without_a_difference_makes_a_clear_error(stored):
    with pytest.raises(UserError, match="make nothing to learn from"):
        stored_pairs(fixed(stored, pairs={"rule": "reward_gap", "gap": 3.0}))
