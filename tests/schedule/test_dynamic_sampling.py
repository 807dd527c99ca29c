from dataclasses import replace

import pytest

from builders import episode, verdict
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.faults import UserError
from hexad.contract.reward import Reward
from hexad.recipe.axes import Recipe
from hexad.schedule.dynamic import Refill


def group(number, correct):
    """A group of ``correct``, a tuple of bools."""
    return tuple(
        replace(
            episode(10 * number + i),
            group_id=f"g{number}",
            verdict=verdict("correct" if right else "wrong"),
            rewards=(Reward("task", float(right)),),
        )
        for i, right in enumerate(correct)
    )


MIXED, RIGHT, WRONG = (True, False), (True, True), (False, False)


class Tasks:
    """Draws the groups of a script, in order."""

    def __init__(self, *script):
        self.groups = [group(i, correct) for i, correct in enumerate(script)]
        self.asked, self.place = [], 0

    def draw(self, count):
        self.asked.append(count)
        found = self.groups[self.place : self.place + count]
        self.place += len(found)
        return found, self.place == len(self.groups)


def refill(groups, **dynamic):
    values = {"surplus": "drop", "rounds": 3, "at_cap": "train", **dynamic}
    data = {"groups": groups, "group_size": 2, "dynamic": values}
    return Refill(Recipe.model_validate({"data": data}))


def groups_of(episodes):
    return list(dict.fromkeys(e.group_id for e in episodes))


def test_groups_without_a_contrast_are_replaced_in_task_order():
    tasks = Tasks(MIXED, RIGHT, WRONG, MIXED, MIXED, MIXED, MIXED)
    harvest = refill(2).fill(0, tasks.draw)
    # One of two is usable: for the one that is missing the refill asks for two.
    assert tasks.asked == [2, 2]
    assert groups_of(harvest.episodes) == ["g0", "g3"]
    reasons = {(e.group_id, reason) for e, reason in harvest.dropped}
    assert reasons == {("g1", "no_signal_all_right"), ("g2", "no_signal_all_wrong")}
    assert groups_of(harvest.sampled) == ["g0", "g1", "g2", "g3"]


def test_a_refill_never_asks_for_more_than_four_times_what_is_missing():
    tasks = Tasks(*[WRONG] * 4, *[MIXED] * 20)
    harvest = refill(4).fill(0, tasks.draw)
    assert tasks.asked == [4, 16]
    assert groups_of(harvest.episodes) == ["g4", "g5", "g6", "g7"]
    assert [reason for _, reason in harvest.dropped].count("surplus") == 24


def test_a_surplus_opens_the_next_batch_and_survives_a_resume():
    tasks = Tasks(WRONG, MIXED, MIXED, MIXED, MIXED, MIXED, MIXED)
    first = refill(2, surplus="carry")
    assert groups_of(first.fill(0, tasks.draw).episodes) == ["g1", "g2"]
    again = refill(2, surplus="carry")
    again.restore(first.state())
    harvest = again.fill(1, tasks.draw)
    assert groups_of(harvest.episodes) == ["g3", "g4"]
    assert harvest.episodes[0] == tasks.groups[3][0]
    assert groups_of(harvest.sampled) == ["g4", "g5"]


def test_the_cap_trains_on_what_there_is_or_stops():
    script = [MIXED, *[RIGHT] * 60]
    harvest = refill(2, rounds=2).fill(0, Tasks(*script).draw)
    assert groups_of(harvest.episodes) == ["g0"]
    with pytest.raises(UserError, match="2 rounds of dynamic sampling drew 4 groups"):
        refill(2, rounds=2, at_cap="stop").fill(0, Tasks(*script).draw)


def test_without_a_single_contrast_the_run_stops():
    with pytest.raises(UserError, match="too few have correct and wrong members"):
        refill(2).fill(0, Tasks(*[RIGHT] * 60).draw)


def test_the_last_tasks_make_a_smaller_batch():
    harvest = refill(4).fill(0, Tasks(MIXED, RIGHT, MIXED).draw)
    assert groups_of(harvest.episodes) == ["g0", "g2"] and harvest.exhausted


def test_members_that_are_masked_do_not_make_a_contrast():
    cut = Ending.of(EndingKind.TRUNCATED_TOKENS)
    mixed = group(0, MIXED)
    script = Tasks(MIXED, MIXED)
    script.groups[0] = (mixed[0], replace(mixed[1], ending=cut))
    recipe = Recipe.model_validate(
        {
            "data": {
                "groups": 1,
                "group_size": 2,
                "dynamic": {"surplus": "drop", "rounds": 2, "at_cap": "train"},
            },
            "credit": {"truncation": "mask"},
        }
    )
    harvest = Refill(recipe).fill(0, script.draw)
    assert groups_of(harvest.episodes) == ["g1"]
