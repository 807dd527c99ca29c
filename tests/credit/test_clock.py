import math
from dataclasses import replace

import pytest
import torch
from clockworld import at, ints, rewards, tensor, ticking, tokens

from hexad.credit.clock import MISSING, TERMINAL, clock
from hexad.credit.rewards import Owner, Rewards


def test_decisions_and_successors_by_hand():
    c = ticking(["p00ooo1"], "t", (1.0, 0))
    assert c.decision.tolist() == [0, 1, 5]
    assert c.first.tolist() == [1, 2, 6]
    assert c.successor.tolist() == [1, 5, TERMINAL]
    assert c.last.tolist() == [False, False, True]
    assert c.step.tolist() == [-1, 0, 1, -1, -1, -1, 2]
    assert c.reward.tolist() == [0, 0, 1]
    assert c.lengths.tolist() == [3]
    assert c.episode.tolist() == [0, 0, 0]


def test_a_truncated_episode_is_read_at_its_last_stored_token():
    assert ticking(["p00oo"], "c").successor.tolist() == [1, 4]
    assert ticking(["p00oo"], "t").successor.tolist() == [1, TERMINAL]


def test_a_missing_final_state_is_missing():
    c = ticking(["p0o1", "p0oo"], "cc")
    assert c.missing.tolist() == [True, False]
    assert c.successor.tolist() == [2, MISSING, 7]
    assert ticking(["p0o1"], "t").missing.tolist() == [False]
    cut = ticking(["p0o1"], "c", final=torch.tensor([True]))
    assert cut.successor.tolist() == [2, 3]
    assert not cut.missing.any()
    stated = ticking(["p0oo"], "c", final=torch.tensor([False]))
    assert stated.missing.tolist() == [True]
    unused = ticking(["p0", "p0"], "ct", used=torch.tensor([False, True]))
    assert unused.missing.tolist() == [False, False]


def test_a_seam_is_not_an_end():
    """The carry goes on, and V(s') is read where the next segment first decides."""
    c = ticking(["p00", "pp1o2", "pp0"], "tt", (2.0, 0), (3.0, 1), owners=[0, 0, 1])
    assert c.decision.tolist() == [0, 1, 4, 6, 9]
    assert c.successor.tolist() == [1, 4, 6, TERMINAL, TERMINAL]
    assert c.last.tolist() == [False, False, False, True, True]
    assert c.reward.tolist() == [0, 0, 0, 2, 3]


def test_a_last_row_without_an_action_holds_the_final_state():
    c = ticking(["p00", "pp"], "c", owners=[0, 0])
    assert c.successor.tolist() == [1, 4]
    assert not c.missing.any()


@pytest.mark.parametrize(
    ("kind", "decision", "step"),
    [
        ("token", [0, 1, 2, 4, 5, 7], [-1, 0, 1, 2, -1, 3, 4, -1, 5]),
        ("span", [0, 1, 4, 7], [-1, 0, 1, 1, -1, 2, 2, -1, 3]),
        ("turn", [0, 4, 7], [-1, 0, 0, 0, -1, 1, 1, -1, 2]),
        ("segment", [0, 7], [-1, 0, 0, 0, -1, 0, 0, -1, 1]),
    ],
)
def test_the_four_clocks(kind, decision, step):
    rows = ["p000o11", "p1"]
    spans = ints([0, 1, 2, 2, 3, 4, 4, 0, 1])
    items = [(7.0, 0), at(3, 1.0), (2.0, 0, Owner.TURN, 0)]
    c = ticking(rows, "t", *items, kind=kind, owners=[0, 0], span=spans)
    assert c.kind == kind
    assert c.decision.tolist() == decision
    assert c.successor.tolist() == [*decision[1:], TERMINAL]
    assert c.step.tolist() == step
    assert float(c.reward[-1]) == 7.0
    assert float(c.reward[c.step[3]]) == 3.0
    assert c.scores().tolist() == [10.0]


def test_equal_turn_numbers_of_two_rows_are_two_steps():
    c = ticking(["p0", "p0", "p0"], "tt", kind="turn", owners=[0, 0, 1])
    assert c.decision.tolist() == [0, 2, 4]
    same_span = ints([0, 1, 0, 1, 0, 1])
    c = ticking(["p0", "p0", "p0"], "tt", kind="span", owners=[0, 0, 1], span=same_span)
    assert c.decision.tolist() == [0, 2, 4]


# -- rewards --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "step"), [(1, 0), (2, 1), (3, 1), (5, 1), (6, 2), (7, 2), (8, 2), (9, 3)]
)
def test_a_reward_on_an_observation_is_paid_to_the_action_before_it(position, step):
    c = ticking(["p00ooo1o", "p2"], "t", at(position, 0.5), owners=[0, 0])
    expected = [0.0] * 4
    expected[step] = 0.5
    assert c.reward.tolist() == expected


def test_rewards_add_up_and_find_their_turn():
    items = [(1.0, 0), at(2, 0.5), at(3, 0.25), (4.0, 0, Owner.TURN, 0), (8.0, 1, Owner.TURN, 0)]
    c = ticking(["p00o1", "p0"], "tt", *items)
    assert c.reward.tolist() == [0, 4.75, 1, 8]
    assert c.scores().tolist() == [5.75, 8]


def test_turn_rewards_of_far_numbers_do_not_meet():
    items = [(1.0, 0, Owner.TURN, 7), (2.0, 1, Owner.TURN, 2)]
    c = ticking(["p2o7", "p2o9"], "tt", *items)
    assert c.reward.tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize(
    "item",
    [
        at(0, 1.0),
        at(5, 1.0, 1),
        (1.0, 0, Owner.TURN, 5),
        (1.0, 0, Owner.TURN, -1),
        (1.0, 1, Owner.TURN, 1),
        (1.0, 0, 3, 0),
    ],
)
def test_a_reward_without_an_owner_is_refused(item):
    with pytest.raises(ValueError, match="no action owns"):
        ticking(["p00o1", "pp0"], "tt", item)


def test_a_reward_outside_its_episode_is_refused():
    for item in (at(5, 1.0, 0), at(8, 1.0, 1), at(-1, 1.0, 0)):
        with pytest.raises(ValueError, match="outside its episode"):
            ticking(["p00o1", "pp0"], "tt", item)
    with pytest.raises(ValueError, match="not in the batch"):
        ticking(["p0"], "t", (1.0, 1))
    with pytest.raises(ValueError, match="not in the batch"):
        ticking(["p0"], "t", (1.0, -1))


def test_a_reward_before_the_first_action_is_not_the_neighbour_s():
    with pytest.raises(ValueError, match="no action owns"):
        ticking(["p0", "pp0"], "tt", at(3, 1.0, 1))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reward_that_is_not_finite_is_refused_where_it_is_used(bad):
    with pytest.raises(ValueError, match="not finite"):
        ticking(["p0", "p0"], "tt", (bad, 1))
    c = ticking(["p0", "p0"], "t-", (1.0, 0), (bad, 1), used=torch.tensor([True, False]))
    assert c.reward.tolist() == [1.0]


def test_rewards_at_the_end():
    both = rewards((1.0, 0), (2.0, 1)) + rewards(at(1, 0.5))
    c = clock(tokens(["p00", "p0"], "tt"), both, kind="token")
    assert c.reward.tolist() == [0.5, 1.0, 2.0]


def test_rewards_are_checked():
    one, where = tensor([1.0]), ints([0])
    with pytest.raises(ValueError, match=r"must be \[K\]"):
        Rewards(one, where, where, ints([0, 0]))
    with pytest.raises(ValueError, match="float64"):
        Rewards(one.float(), where, where, where)
    with pytest.raises(ValueError, match="float64"):
        Rewards(one, one, where, where)


# -- use and views --------------------------------------------------------------------------------


def test_unused_episodes_have_no_step():
    used = torch.tensor([False, True, False])
    c = ticking(["p0", "p00", "pp"], "-t-", (5.0, 0), (2.0, 1), (9.0, 2), used=used)
    assert c.episode.tolist() == [1, 1]
    assert c.decision.tolist() == [2, 3]
    assert c.step.tolist() == [-1, -1, -1, 0, 1, -1, -1]
    assert c.lengths.tolist() == [0, 2, 0]
    assert c.reward.tolist() == [0, 2]


def test_keep_equals_not_having_used_the_rest():
    rows, used = ["p0o1", "p00o", "p0", "p00"], torch.tensor([False, True, False, True])
    items = [(float(i + 1), i) for i in range(4)]
    c = ticking(rows, "ccct", *items, kind="turn")
    less = ticking(rows, "ccct", *items, kind="turn", used=used)
    kept = c.keep(used)
    for name in ("episode", "decision", "successor", "last", "reward", "step", "missing"):
        assert getattr(kept, name).tolist() == getattr(less, name).tolist(), name
    bootstraps = c.keep(~c.missing)
    assert not (bootstraps.successor == MISSING).any()
    assert bootstraps.lengths.tolist() == [0, 1, 0, 1]


def test_spread_and_sum():
    c = ticking(["p00o1", "p0"], "tt", kind="turn", used=torch.tensor([True, False]))
    assert c.spread(tensor([3.0, 4.0])).tolist() == [0, 3, 3, 0, 4, 0, 0]
    junk = tensor([math.nan, 1.0, 2.0, math.nan, 4.0, math.nan, math.nan])
    assert c.sum(junk).tolist() == [3.0, 4.0]
    assert c.rewarded(tensor([1.0, 2.0])).reward.tolist() == [1, 2]
    with pytest.raises(ValueError, match="float64"):
        c.rewarded(tensor([1.0]))


def test_nothing_used_is_an_empty_clock():
    c = ticking(["p0"], "t", (1.0, 0), used=torch.tensor([False]))
    assert len(c.episode) == len(c.reward) == 0
    assert c.lengths.tolist() == [0]
    assert c.step.tolist() == [-1, -1]


# -- broken contracts -----------------------------------------------------------------------------


def test_the_end_of_an_episode_is_recorded_exactly_once():
    with pytest.raises(ValueError, match="neither"):
        ticking(["p0"], "-")
    facts = tokens(["p0"], "t")
    with pytest.raises(ValueError, match="twice"):
        clock(replace(facts, truncated=torch.tensor([True])), rewards(), kind="token")


def test_a_row_may_not_begin_with_an_action():
    for kind in ("token", "turn", "segment"):
        with pytest.raises(ValueError, match="begins with an action"):
            ticking(["p0", "0o1"], "t", kind=kind, owners=[0, 0])


def test_an_episode_without_actions_is_refused():
    with pytest.raises(ValueError, match=r"\[1\] have no action"):
        ticking(["p0", "po"], "tt")


def test_episodes_lie_together():
    with pytest.raises(ValueError, match="adjacent"):
        ticking(["p0", "p0", "p0"], "tt", owners=[0, 1, 0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": torch.zeros(2, dtype=torch.int64)}, "bool"),
        ({"turn": torch.zeros(3, dtype=torch.int64)}, "should be"),
        ({"turn": torch.zeros(2)}, "int64"),
        ({"offsets": ints([0, 1])}, "offsets must"),
        ({"offsets": ints([1, 2])}, "offsets must"),
        ({"offsets": ints([0, 2, 2]), "row_episode": ints([0, 0])}, "no row is empty"),
        ({"row_episode": ints([1])}, "not in the batch"),
        ({"row_episode": ints([-1])}, "not in the batch"),
        ({"truncated": torch.tensor([False, False])}, "should be"),
        ({"final": torch.tensor([1])}, "bool"),
        ({"span": ints([0])}, "should be"),
    ],
)
def test_shapes_and_types_are_checked(change, message):
    facts = replace(tokens(["p0"], "t"), **change)
    with pytest.raises(ValueError, match=message):
        clock(facts, rewards(), kind="token")


def test_other_bad_requests():
    facts = tokens(["p0"], "t")
    with pytest.raises(ValueError, match="needs the span"):
        clock(facts, rewards(), kind="span")
    with pytest.raises(ValueError, match="unknown clock"):
        clock(facts, rewards(), kind="word")
    with pytest.raises(ValueError, match="used"):
        clock(facts, rewards(), kind="token", used=torch.tensor([True, True]))
