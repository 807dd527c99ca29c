import math

import pytest
import torch
from clockworld import at, ints, tensor, ticking

from hexad.credit.baselines import advantage, greedy, group_mean
from hexad.credit.group_relative import dr_grpo
from hexad.credit.prompt_mean import PromptMean
from hexad.credit.reward_to_go import less, reward_to_go
from hexad.credit.tracker import BetaTracker, Forgetting
from hexad.credit.whiten import whiten

NAN = math.nan


def close(values):
    return pytest.approx(values, abs=1e-9)


# -- returns --------------------------------------------------------------------------------------


def test_o06_returns_survive_observations():
    assert reward_to_go(ticking(["p00oo11"], "t", (1.0, 0)), gamma=1.0).tolist() == [1, 1, 1, 1]
    assert reward_to_go(ticking(["p0o1"], "t", (1.0, 0)), gamma=0.5).tolist() == [0.5, 1]
    c = ticking(["p0o", "p1"], "t", at(2, 4.0), (1.0, 0), owners=[0, 0])
    assert reward_to_go(c, gamma=0.5).tolist() == [4.5, 1]


def test_the_discount_ticks_once_a_step_of_the_clock():
    rows, items = ["p00o11", "p2"], [(1.0, 0)]
    steps = {"token": 5, "turn": 3, "segment": 2}
    for kind, count in steps.items():
        c = ticking(rows, "t", *items, kind=kind, owners=[0, 0])
        expected = [0.5 ** (count - 1 - i) for i in range(count)]
        assert reward_to_go(c, gamma=0.5).tolist() == expected
    with pytest.raises(ValueError, match="gamma"):
        reward_to_go(c, gamma=1.5)


# -- baselines ------------------------------------------------------------------------------------

SCORE = tensor([1, 0, 0.5, NAN, 1])
SCORED = torch.tensor([True, True, True, True, False])
GROUP = ints([7, 7, 7, 7, 7])


def test_baselines_by_hand():
    args = SCORE, SCORED, GROUP
    for found, expected in (
        (group_mean(*args), [0.5, 0.5, 0.5]),
        (greedy(*args, tensor([1, 1, NAN, 1, 1])), [1, 1, NAN]),
    ):
        assert found[:3].tolist() == pytest.approx(expected, nan_ok=True)
        assert found[3:].isnan().all()
    assert advantage(SCORE, SCORED, greedy(*args, tensor([1, 1, NAN, 1, 1]))).tolist() == [
        0, -1, 0, 0, 0,
    ]  # fmt: skip


def test_the_baseline_and_the_estimator_agree():
    generator = torch.Generator().manual_seed(0)
    score = torch.rand(12, generator=generator, dtype=torch.float64)
    scored = torch.rand(12, generator=generator) < 0.8
    group = torch.randint(0, 4, (12,), generator=generator)
    found = advantage(score, scored, group_mean(score, scored, group))
    assert found.tolist() == close(dr_grpo(score, scored, group).tolist())
    flat = torch.full((7,), 0.1 + 0.2, dtype=torch.float64)
    args = flat, torch.ones(7, dtype=torch.bool), torch.zeros(7, dtype=torch.int64)
    assert advantage(flat, args[1], group_mean(*args)).tolist() == [0.0] * 7


def test_less_a_baseline():
    c = ticking(["p00", "p0", "p0"], "ttt", (1.0, 0), (0.5, 1), (9.0, 2))
    returns = reward_to_go(c, gamma=0.5)
    found = less(c, returns, tensor([0.25, 0.75, NAN]))
    assert found.tolist() == [0.25, 0.75, -0.25, 0]
    with pytest.raises(ValueError, match=r"\[M\]"):
        less(c, returns[:1], tensor([0.0] * 3))
    with pytest.raises(ValueError, match=r"\[E\]"):
        less(c, returns, returns)
    with pytest.raises(ValueError, match="float64"):
        less(c, returns, torch.zeros(3))
    with pytest.raises(ValueError, match=r"\[E\]"):
        greedy(SCORE, SCORED, GROUP, tensor([1.0]))
    with pytest.raises(ValueError, match=r"\[E\]"):
        advantage(SCORE, SCORED, tensor([1.0]))


# -- running mean of a prompt ---------------------------------------------------------------------


def yes(count):
    return torch.ones(count, dtype=torch.bool)


def test_the_running_mean_is_read_before_it_is_updated():
    memory = PromptMean(window=2, initial=0.5)
    tasks, score = ["a", "a", "b"], tensor([1, 0, 1])
    assert memory.baseline(tasks, score, yes(3)).tolist() == [0.5, 0.5, 0.5]
    memory.update(tasks, score, yes(3))
    assert memory.baseline(tasks, score, yes(3)).tolist() == [0.5, 0.5, 1]
    memory.update(["a", "a"], tensor([1.0, 1.0]), yes(2))
    assert memory.baseline(["a"], tensor([0.0]), yes(1)).tolist() == [1.0]
    memory.update(["a"], tensor([0.0]), yes(1))
    assert memory.baseline(["a"], tensor([0.0]), yes(1)).tolist() == [0.5]


def test_an_unseen_prompt_may_begin_at_the_batch_mean():
    memory = PromptMean(window=8, initial="batch")
    scored = torch.tensor([True, True, False, True])
    found = memory.baseline(["a", "b", "c", "d"], tensor([1, 0, 9, NAN]), scored)
    assert found[:2].tolist() == [0.5, 0.5]
    assert found[2:].isnan().all()
    memory.update(["a", "b", "c", "d"], tensor([1, 0, 9, NAN]), scored)
    assert memory.state() == {"scores": {"a": [1.0], "b": [0.0]}}
    assert memory.baseline(["a"], tensor([NAN]), yes(1)).isnan().all()


def test_the_running_mean_resumes():
    memory = PromptMean(window=3, initial=0.0)
    for value in (1.0, 0.0, 1.0, 1.0):
        memory.update(["a"], tensor([value]), yes(1))
    other = PromptMean(window=3, initial=0.0)
    other.restore(memory.state())
    for each in (memory, other):
        each.update(["a"], tensor([0.0]), yes(1))
    assert memory.state() == other.state() == {"scores": {"a": [1.0, 1.0, 0.0]}}
    held = memory.state()
    memory.update(["a"], tensor([7.0]), yes(1))
    assert held == {"scores": {"a": [1.0, 1.0, 0.0]}}
    with pytest.raises(ValueError, match="window"):
        PromptMean(window=0, initial=0.0)
    for args in ((["a", "b"], tensor([1.0]), yes(1)), (["a"], torch.ones(1), yes(1))):
        with pytest.raises(ValueError):
            memory.baseline(*args)


# -- Beta tracker ---------------------------------------------------------------------------------


def tracker():
    return BetaTracker(Forgetting(low=0.875, high=0.96, half_life=0.06), initial=0.5)


def test_spo_golden():
    """alpha = beta = 4, D = .003: rho .9659 -> .96; r = 1: A .5, then v .5576 with count 8.68."""
    found = tracker()
    assert found.counts("a") == (4.0, 4.0)
    score = tensor([1.0])
    baseline = found.baseline(["a"], score, yes(1))
    assert advantage(score, yes(1), baseline).tolist() == [0.5]
    found.update(["a"], score, yes(1), {"a": 0.003})
    assert found.value("a") == pytest.approx(0.5576, abs=5e-5)
    assert sum(found.counts("a")) == close(8.68)
    assert found.value("b") == 0.5


def test_forgetting():
    rule = Forgetting(low=0.875, high=0.96, half_life=0.06)
    assert rule.kept(0.003) == 0.96
    assert rule.kept(0.006) == close(2**-0.1)
    assert rule.kept(0.06) == 0.875
    assert rule.kept(0.0) == 0.96
    steady = tracker()
    for _ in range(500):
        steady.update(["a"], tensor([1.0]), yes(1), {"a": 0.0})
    assert sum(steady.counts("a")) == pytest.approx(25.0, abs=1e-6)
    for bad in (-1.0, NAN, math.inf):
        with pytest.raises(ValueError, match="drift"):
            rule.kept(bad)
    for low, high, half in ((0.9, 0.8, 1), (1, 1, 1), (0, 2, 1), (0, 1, 0), (-1, 1, 1)):
        with pytest.raises(ValueError, match="needs"):
            Forgetting(low, high, half)


def test_a_batch_forgets_once_and_missing_members_do_not_count():
    found = tracker()
    scored = torch.tensor([True, True, False, True])
    tasks, score = ["a", "a", "a", "b"], tensor([1, 0, 1, NAN])
    found.update(tasks, score, scored, {"a": 0.06})
    assert found.counts("a") == (4 * 0.875 + 1, 4 * 0.875 + 1)
    assert list(found.state()["counts"]) == ["a"]
    assert found.baseline(tasks, score, scored)[2:].isnan().all()


def test_the_tracker_resumes():
    found = tracker()
    found.update(["a"], tensor([1.0]), yes(1), {"a": 0.06})
    assert found.counts("a") == (4.5, 3.5)
    other = BetaTracker(found.forgetting, initial=0.5)
    other.restore(found.state())
    for each in (found, other):
        each.update(["a"], tensor([0.0]), yes(1), {"a": 0.01})
    assert found.state() == other.state()
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        found.baseline(["a"], tensor([1.5]), yes(1))
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        found.update(["a"], tensor([-0.5]), yes(1), {"a": 0.0})
    with pytest.raises(ValueError, match=r"\[E\]"):
        found.baseline(["a", "b"], tensor([1.0]), yes(1))
    with pytest.raises(ValueError, match="float64"):
        found.baseline(["a"], torch.ones(1), yes(1))
    with pytest.raises(ValueError, match="initial"):
        BetaTracker(found.forgetting, initial=1.5)


# -- whitening ------------------------------------------------------------------------------------


def test_whitening_weighs_steps():
    """Batch (1, 0, 1, 1), sample std: (.5, -1.5, .5, .5); lengths weigh tokens."""
    assert whiten(
        ticking(["p0"] * 4, "tttt"), tensor([1, 0, 1, 1]), std="sample"
    ).tolist() == close([0.5, -1.5, 0.5, 0.5])
    c = ticking(["p0", "p0oo00", "p0", "p0"], "tttt")
    found = whiten(c, tensor([1, 0, 0, 0, 1, 1]))
    assert found.tolist() == close([1, -1, -1, -1, 1, 1])  # the mean is .5, not .75


def test_whitening_has_a_declared_scope():
    c = ticking(["p00", "p0", "p0o0"], "ttt")
    values = tensor([0, 1, 2, 10, 30])
    whole = whiten(c, values)
    assert float(whole.mean()) == pytest.approx(0, abs=1e-12)
    assert float(whole.square().mean()) == pytest.approx(1)
    by_group = whiten(c, values, group=ints([4, 4, 2]))
    assert by_group.tolist() == close([-(1.5**0.5), 0, 1.5**0.5, -1, 1])
    flat = whiten(c, torch.full((5,), 0.1 + 0.2, dtype=torch.float64))
    assert flat.tolist() == [0] * 5
    with pytest.raises(ValueError, match="finite"):
        whiten(c, tensor([0, 1, 2, NAN, 1]))
    with pytest.raises(ValueError, match="float64"):
        whiten(c, values[:2])
