import math

import pytest
import torch
from clockworld import at, ints, tensor, ticking

from hexad.credit.continuation import continuation_advantage, continued
from hexad.credit.cross_segment import cross_segment
from hexad.credit.gae import gae
from hexad.credit.group_relative import Deviation, dr_grpo
from hexad.credit.reward_to_go import reward_to_go
from hexad.credit.shaping import shaped
from hexad.credit.step_groups import UNKNOWN, gigpo, turn_relative

NAN = math.nan


def close(values):
    return pytest.approx(values, abs=1e-9)


# -- GiGPO ----------------------------------------------------------------------------------------


def trio(used=None):
    """algorithms.md 6.11: returns (1, 0, 1); t1: s0 s1, t2: s0 s1, t3: s0 s2."""
    items = [(1.0, 0), (0.0, 1), (1.0, 2)]
    return ticking(["p0o1"] * 3, "ttt", *items, kind="turn", used=used)


STATES = ints([0, 1, 0, 1, 0, 2])
ONE = ints([5, 5, 5])


def test_gigpo_golden():
    whole = [1 / 3, -2 / 3, 1 / 3]
    inner = [0.95 / 3, 0.5, -1.9 / 3, -0.5, 0.95 / 3, 0]
    expected = [whole[i // 2] + inner[i] for i in range(6)]
    found = gigpo(trio(), ONE, STATES, gamma=0.95).tolist()
    assert found == close(expected)
    assert found[:2] == pytest.approx([0.650, 0.833], abs=5e-4)
    half = gigpo(trio(), ONE, STATES, gamma=0.95, omega=0.5).tolist()
    assert half == close([whole[i // 2] + inner[i] / 2 for i in range(6)])


def test_gigpo_with_a_standard_deviation():
    found = gigpo(trio(), ONE, STATES, gamma=0.95, by=Deviation()).tolist()
    whole, inner = [0.5**0.5, -(2**0.5)], [0.5**0.5, 1, -(2**0.5), -1, 0.5**0.5, 0]
    assert found == close([(whole[0], whole[1], whole[0])[i // 2] + inner[i] for i in range(6)])


def test_equal_states_of_two_groups_never_meet():
    groups = ints([1, 2, 2])
    found = gigpo(trio(), groups, STATES, gamma=0.95).tolist()
    assert found[:2] == [0, 0]
    assert found[2:] == close([-0.5 - 0.475, -0.5, 0.5 + 0.475, 0.5])


def test_unknown_states_are_compared_with_nothing():
    unknown = torch.full((6,), UNKNOWN)
    found = gigpo(trio(), ONE, unknown, gamma=0.95).tolist()
    assert found == close([1 / 3] * 2 + [-2 / 3] * 2 + [1 / 3] * 2)


def test_gigpo_scores_are_not_discounted_and_unused_episodes_take_no_part():
    c = trio(used=torch.tensor([True, False, True]))
    found = gigpo(c, ONE, ints([0, 1, 0, 2]), gamma=0.5)
    assert found.tolist() == [0, 0, 0, 0]
    long = ticking(["p0o1o2", "p0"], "tt", (1.0, 0), (1.0, 1), kind="turn")
    found = gigpo(long, ints([0, 0]), ints([1, 2, 3, 4]), gamma=0.5)
    assert found.tolist() == [0, 0, 0, 0]


def test_step_groups_are_checked():
    for state in (STATES[:2], STATES.float()):
        with pytest.raises(ValueError, match="one code a step"):
            gigpo(trio(), ONE, state, gamma=0.95)
    with pytest.raises(ValueError, match="negative"):
        gigpo(trio(), ONE, STATES - 2, gamma=0.95)
    for group in (ONE[:2], ONE.float()):
        for run in (
            lambda g: gigpo(trio(), g, STATES, gamma=1.0),
            lambda g: turn_relative(trio(), g, gamma=1.0),
        ):
            with pytest.raises(ValueError, match="one an episode"):
                run(group)


# -- turn-level groups ----------------------------------------------------------------------------


def test_turn_relative_by_hand():
    """Step k against step k: returns (.75, .5), (.25, .25) and (1,): the third has no second."""
    items = [at(1, 0.25), (0.5, 0), (0.25, 1), (1.0, 2)]
    c = ticking(["p0o1", "p0o1", "p0"], "ttt", *items, kind="turn")
    found = turn_relative(c, ONE, gamma=1.0).tolist()
    mean = 2 / 3
    assert found == close([0.75 - mean, 0.125, 0.25 - mean, -0.125, 1 - mean])
    found = turn_relative(c, ONE, gamma=1.0, by=Deviation()).tolist()
    assert [found[1], found[3]] == close([1, -1])
    apart = turn_relative(c, ints([1, 2, 2]), gamma=1.0).tolist()
    assert apart == close([0, 0, -0.375, 0, 0.375])


def test_the_threshold_decides_what_counts_as_equal():
    c = ticking(["p0", "p0"], "tt", (0.5, 0), (0.3, 1), kind="turn")
    group, state = ints([1, 1]), ints([0, 0])
    for threshold, expected in ((0.05, 1.0), (0.2, 0.0)):
        by = Deviation("population", threshold)
        assert turn_relative(c, group, gamma=1.0, by=by).tolist() == close([expected, -expected])
        twice = gigpo(c, group, state, gamma=1.0, by=by).tolist()
        assert twice == close([2 * expected, -2 * expected])


def test_turn_relative_numbers_steps_inside_episodes_not_rows():
    c = ticking(["p0", "p1", "p0", "p1"], "tt", (1.0, 0), kind="turn", owners=[0, 0, 1, 1])
    found = turn_relative(c, ints([3, 3]), gamma=0.5).tolist()
    assert found == [0.25, 0.5, -0.25, -0.5]
    mirrored = ticking(["p0", "p1", "p0"], "tt", (1.0, 1), kind="turn", owners=[1, 1, 0])
    found = turn_relative(mirrored, ints([3, 3]), gamma=1.0).tolist()
    assert found == [0.5, 0, -0.5]


def test_permuting_episodes_permutes_credit():
    rows, scores = ["p0o1", "p0", "p0o1o2"], [1.0, 0.5, 0.0]
    straight = ticking(rows, "ttt", *[(s, i) for i, s in enumerate(scores)], kind="turn")
    turned = ticking(rows[::-1], "ttt", *[(s, i) for i, s in enumerate(scores[::-1])], kind="turn")
    a, b = (turn_relative(c, ONE, gamma=0.9, by=Deviation()).tolist() for c in (straight, turned))
    assert a == close([*b[4:], b[3], *b[:3]])


def test_empty_clocks():
    c = trio(used=torch.tensor([False] * 3))
    none = ints([])
    assert gigpo(c, ONE, none, gamma=1.0).tolist() == []
    assert turn_relative(c, ONE, gamma=1.0, by=Deviation("sample")).tolist() == []
    assert continuation_advantage(c, tensor([]), gamma=1.0).tolist() == []
    value = torch.zeros(len(c.step))
    assert cross_segment(c, value, none, gamma=1.0, policy=1.0, critic=1.0).target.tolist() == []
    assert shaped(c, value, gamma=1.0, bootstrap=True).reward.tolist() == []


# -- continuation values --------------------------------------------------------------------------


def test_vineppo_golden():
    """3 of 9 succeed at s_t, 6 of 9 at s_t+1, reward 0: A = 1/3."""
    found = continued(tensor([[1.0] * 3 + [0.0] * 6, [1.0] * 6 + [0.0] * 3]))
    assert found.tolist() == close([1 / 3, 2 / 3])
    c = ticking(["p0o1"], "t", (1.0, 0), kind="turn")
    found = continuation_advantage(c, found, gamma=1.0)
    assert found.tolist() == close([1 / 3, 1 / 3])


def test_missing_continuations_are_missing():
    found = continued(tensor([[1, NAN, 0], [NAN, NAN, NAN]]))
    assert found[0] == 0.5
    assert found[1].isnan()
    for bad in (tensor([1.0]), torch.ones(1, 1)):
        with pytest.raises(ValueError, match=r"\[N, K\]"):
            continued(bad)


def test_nothing_is_worth_anything_behind_an_end():
    c = ticking(["p0o1o", "p0"], "ct", at(1, 0.25), (1.0, 1), kind="turn")
    found = continuation_advantage(c, tensor([0.5, 0.4, 0.75]), gamma=0.5)
    assert found.tolist() == close([0.25 + 0.2 - 0.5, -0.4, 0.25])
    with pytest.raises(ValueError, match="finite"):
        continuation_advantage(c, tensor([0.5, NAN, 0.75]), gamma=0.5)
    for bad in (tensor([0.5, 0.4]), torch.ones(3)):
        with pytest.raises(ValueError, match="one a step"):
            continuation_advantage(c, bad, gamma=0.5)
    with pytest.raises(ValueError, match="gamma"):
        continuation_advantage(c, tensor([0.5, 0.4, 0.75]), gamma=1.5)


# -- shaping --------------------------------------------------------------------------------------


def test_shaping_telescopes():
    """Phi = (.2, .5, 0), gamma .99: F = (.295, -.5), whose discounted sum is -Phi(s_0)."""
    c = ticking(["p0oo1o"], "t")
    potential = tensor([0.2, NAN, NAN, 0.5, NAN, 0.9])
    for bootstrap in (True, False):
        found = shaped(c, potential, gamma=0.99, bootstrap=bootstrap)
        assert found.reward.tolist() == close([0.295, -0.5])
        assert float(reward_to_go(found, gamma=0.99)[0]) == close(-0.2)
    cut = ticking(["p0oo1o"], "c")
    kept = shaped(cut, potential, gamma=0.99, bootstrap=True)
    assert float(reward_to_go(kept, gamma=0.99)[0]) == close(0.99**2 * 0.9 - 0.2)
    stopped = shaped(cut, potential, gamma=0.99, bootstrap=False)
    assert float(reward_to_go(stopped, gamma=0.99)[0]) == close(-0.2)


def test_shaping_and_a_shaped_critic_agree_behind_a_truncation():
    """gamma .9, Phi(s) .3, Phi(s_N) .6, V(s_N) .5: both .15."""
    c = ticking(["p0o"], "c")
    potential, value = tensor([0.3, NAN, 0.6]), tensor([0.77, NAN, 0.5])
    dense = shaped(c, potential, gamma=0.9, bootstrap=True)
    critic = value - potential
    found = gae(dense, critic, gamma=0.9, policy=1.0, critic=1.0)
    assert found.target.tolist() == close([0.15])
    plain = gae(c, value, gamma=0.9, policy=1.0, critic=1.0)
    assert found.advantage.tolist() == close(plain.advantage.tolist())


def test_shaping_adds_to_rewards_and_changes_no_group_advantage():
    c = ticking(["p0o1"] * 3, "ttt", (1.0, 0), (0.0, 1), (1.0, 2), at(1, 0.0))
    potential = tensor([0.3, NAN, 0.9, NAN, 0.3, NAN, 0.1, NAN, 0.3, NAN, -4.0, NAN])
    found = shaped(c, potential, gamma=1.0, bootstrap=False)
    assert found.scores().tolist() == close([0.7, -0.3, 0.7])
    counted, group = torch.ones(3, dtype=torch.bool), ints([0, 0, 0])
    for scores in (found.scores(), c.scores()):
        assert dr_grpo(scores, counted, group).tolist() == close([1 / 3, -2 / 3, 1 / 3])


def test_shaping_needs_its_states():
    c = ticking(["p0"], "c")
    with pytest.raises(ValueError, match="final state"):
        shaped(c, tensor([0.1, 0.2]), gamma=1.0, bootstrap=True)
    assert shaped(c, tensor([0.1, 0.2]), gamma=1.0, bootstrap=False).reward.tolist() == [-0.1]
    with pytest.raises(ValueError, match="not finite"):
        shaped(c, tensor([NAN, 0.2]), gamma=1.0, bootstrap=False)
    with pytest.raises(ValueError, match="gamma"):
        shaped(c, tensor([0.1, 0.2]), gamma=2.0, bootstrap=False)


# -- cross-segment --------------------------------------------------------------------------------


def compacted(endings="t", *more):
    rows = ["p00", "p1" if endings == "t" else "p1o"]
    return ticking(rows, endings, *((1.0, 0), *more), owners=[0, 0])


def test_cross_segment_golden():
    """algorithms.md 2.5: sizes (2, 1), V = (.2, .4 | .6), R = 1, gamma 1, lambda .8."""
    c, segment = compacted(), ints([0, 0, 1])
    value = tensor([0.2, 0.4, NAN, 0.6, NAN])
    found = cross_segment(c, value, segment, gamma=1.0, policy=0.8, critic=0.8)
    assert found.advantage.tolist() == close([0.544, 0.480, 0.400])
    assert found.target.tolist() == close([0.88, 1.00, 1.00])
    flat = torch.zeros(5)
    found = cross_segment(c, flat, segment, gamma=1.0, policy=0.8, critic=1.0)
    assert found.advantage.tolist() == close([0.64, 0.80, 1.00])
    assert found.target.tolist() == [1, 1, 1]


def test_later_steps_are_counted_and_gamma_too():
    """Three later steps, gamma .99, lambda .95: a factor of .831910."""
    c = ticking(["p0", "p1", "p22", "p0"], "tt", (1.0, 0), (1.0, 1), owners=[0, 0, 0, 1])
    found = cross_segment(c, torch.zeros(9), ints([0, 1, 2, 2, 3]), gamma=0.99, policy=0.95,
                          critic=1.0)  # fmt: skip
    decay = 0.99 * 0.95
    assert float(found.advantage[0]) == pytest.approx(0.831910, abs=5e-7)
    assert found.advantage.tolist() == close([decay**3, decay**2, decay, 1, 1])
    lam = tensor([0.95] * 4 + [0.5])
    each = cross_segment(c, torch.zeros(9), ints([0, 1, 2, 2, 3]), gamma=0.99, policy=lam,
                         critic=lam)  # fmt: skip
    assert each.advantage.tolist() == close(found.advantage.tolist())


def test_without_values_or_decay_it_is_the_unbroken_trajectory():
    segment = ints([0, 0, 1])
    value = tensor([0.2, 0.4, NAN, 0.6, NAN])
    for values, lam in ((torch.zeros(5), 0.7), (value, 1.0)):
        c = compacted()
        found = cross_segment(c, values, segment, gamma=1.0, policy=lam, critic=lam)
        unbroken = gae(c, values, gamma=1.0, policy=lam, critic=lam)
        assert found.advantage.tolist() == close(unbroken.advantage.tolist())


def test_only_the_last_segment_bootstraps():
    c = compacted("c")
    value = tensor([0.2, 0.4, NAN, 0.6, NAN, 0.5])
    found = cross_segment(c, value, ints([0, 0, 1]), gamma=1.0, policy=1.0, critic=1.0)
    assert found.advantage.tolist() == close([0.8, 0.6, 0.9])
    with pytest.raises(ValueError, match="episode's end"):
        cross_segment(compacted("t", at(1, 1.0)), value[:5], ints([0, 0, 1]), gamma=1.0,
                      policy=1.0, critic=1.0)  # fmt: skip
    with pytest.raises(ValueError, match="one a step"):
        cross_segment(c, value, ints([0]), gamma=1.0, policy=1.0, critic=1.0)
    with pytest.raises(ValueError, match="policy"):
        cross_segment(c, value, ints([0, 0, 1]), gamma=1.0, policy=2.0, critic=1.0)
