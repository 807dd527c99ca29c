import math

import pytest
import torch
from clockworld import at, tensor, ticking
from hypothesis import given, settings
from hypothesis import strategies as st

from hexad.credit import scan
from hexad.credit.gae import adaptive, gae, n_step

NAN = math.nan


def run(clock, value, *, gamma=1.0, policy=1.0, critic=1.0):
    found = gae(clock, tensor(value), gamma=gamma, policy=policy, critic=critic)
    return found.advantage.tolist(), found.target.tolist()


def close(values):
    return pytest.approx(values, abs=1e-9)


# -- algorithms.md 1.5: tokens [a a | o o o | a], V = .4 .5 . . . .7, reward 1 at the end ---------

SKIP = [0.4, 0.5, NAN, NAN, NAN, 0.7, NAN]
"""Values by token: the prefixes that end before each action, and junk at all others."""


def skipping(*items, endings="t", row="p00ooo1"):
    return ticking([row], endings, *items)


def test_skip_observation():
    c = skipping((1.0, 0))
    advantage, target = run(c, SKIP, policy=0.9)
    assert advantage == close([0.523, 0.470, 0.300])
    assert target == close([1, 1, 1])
    advantage, _ = run(c, [0.0] * 7, policy=0.9)
    assert advantage == close([0.81, 0.9, 1])


def test_skip_observation_with_the_adaptive_lambda():
    c = skipping((1.0, 0))
    found = gae(c, tensor(SKIP), gamma=1.0, policy=adaptive(c, alpha=1.5), critic=1.0)
    assert found.advantage.tolist() == pytest.approx([0.4370, 0.4333, 0.3000], abs=5e-5)
    assert found.target.tolist() == close([1, 1, 1])


@pytest.mark.parametrize("position", [2, 3, 4, 5])
def test_a_reward_on_an_observation_is_the_preceding_action_s(position):
    advantage, _ = run(skipping((1.0, 0), at(position, 0.5)), SKIP, policy=0.9)
    assert advantage == close([0.973, 0.970, 0.300])


def test_truncation_bootstraps_and_termination_does_not():
    cut = skipping(endings="c", row="p00ooo1o")
    advantage, target = run(cut, [*SKIP, 0.6], policy=0.9)
    assert advantage == close([0.199, 0.110, -0.100])
    assert target == close([0.6, 0.6, 0.6])
    over = skipping(endings="t", row="p00ooo1o")
    advantage, target = run(over, [*SKIP, 0.6], policy=0.9)
    assert advantage == close([-0.287, -0.430, -0.700])
    assert target == close([0, 0, 0])


@pytest.mark.parametrize(
    ("alpha", "steps", "expected"),
    [
        (1.5, 3, 7 / 9),
        (1.5, 10, 0.9333333333),
        (1.5, 100, 0.9933333333),
        (1.5, 1000, 0.9993333333),
        (0.05, 100, 0.8),
        (0.05, 1000, 0.98),
        (0.05, 20, 0),
        (0.05, 10, 0),
        (0.05, 16, 0),
        (0.05, 64, 0.6875),
        (0.05, 256, 0.921875),
        (0.05, 1024, 0.98046875),
    ],
)
def test_adaptive_lambda(alpha, steps, expected):
    c = ticking(["p" + "0" * steps, "p0"], "tt")
    lam = adaptive(c, alpha=alpha)
    assert lam[:steps].tolist() == close([expected] * steps)
    assert float(lam[-1]) == close(max(1 - 1 / alpha, 0))


def test_adaptive_lambda_counts_the_steps_of_the_clock():
    rows, owners = ["p000o111", "p2oo"], [0, 0]
    expected = {"token": 1 - 1 / (1.5 * 7), "turn": 1 - 1 / (1.5 * 3), "segment": 1 - 1 / 3}
    for kind, lam in expected.items():
        c = ticking(rows, "t", kind=kind, owners=owners)
        assert adaptive(c, alpha=1.5).tolist() == close([lam] * len(c.episode))


def test_alpha_is_required_and_positive():
    c = ticking(["p0"], "t")
    with pytest.raises(TypeError):
        adaptive(c)
    for bad in (0.0, -1.0, NAN):
        with pytest.raises(ValueError, match="alpha"):
            adaptive(c, alpha=bad)


# -- contract.md 6.5 ------------------------------------------------------------------------------


def test_packed_rows():
    """gamma .5, lambda .8: two rows, the first truncated with final value 4."""
    c = ticking(["p00o", "p0"], "ct", at(1, 1.0), at(2, 2.0), (10.0, 1))
    advantage, target = run(c, [0.5, 1, NAN, 4, 3, NAN], gamma=0.5, policy=0.8, critic=0.8)
    assert advantage == close([2.2, 3, 7])
    assert target == close([2.7, 4, 10])


@pytest.mark.parametrize(
    ("row", "endings", "value", "expected"),
    [
        ("p00o", "c", [0.5, 0.6, NAN, 0.8], [1.0976, 1.12]),
        ("p00o", "t", [0.5, 0.6, NAN, 0.8], [0.482, 0.4]),
    ],
)
def test_truncated_tail(row, endings, value, expected):
    """gamma .9, lambda .95; the quoted numbers come without inputs; these give them."""
    c = ticking([row], endings, at(1, 0.1), at(2, 1.0))
    advantage, _ = run(c, value, gamma=0.9, policy=0.95)
    assert advantage == close(expected)


def test_n_step_and_lambda_return():
    """r = (1, 2), next values (3, 4), gamma .5, cut behind the second."""
    c = ticking(["p00o"], "c", at(1, 1.0), at(2, 2.0))
    value = tensor([0.77, 3, NAN, 4])
    for n, first in ((1, 2.5), (2, 3.0), (3, 3.0), (9, 3.0)):
        assert n_step(c, value, gamma=0.5, n=n).tolist() == close([first, 4.0])
    blend = gae(c, value, gamma=0.5, policy=0.3, critic=0.8)
    assert blend.target.tolist() == close([2.9, 4.0])
    with pytest.raises(ValueError, match="at least 1"):
        n_step(c, value, gamma=0.5, n=0)


def test_n_step_equals_its_definition():
    c = ticking(["p0o00o", "p000o0", "p00"], "ct", at(2, 0.5), (1.0, 0), (2.0, 1), at(7, -1.0, 1),
                owners=[0, 1, 1])  # fmt: skip
    value = tensor([0.3, NAN, 0.4, 0.1, NAN, 0.9, 0.2, 0.6, -0.5, NAN, 0.8, NAN, 0.7, 0.25, NAN])
    gamma = 0.9
    for n in (1, 2, 3, 4, 7):
        expected = []
        for t in range(len(c.episode)):
            total, weight, k = 0.0, 1.0, t
            while True:
                total += weight * float(c.reward[k])
                weight *= gamma
                if bool(c.last[k]) or k + 1 - t == n:
                    break
                k += 1
            ahead = int(c.successor[k])
            expected.append(total + (0.0 if ahead == -1 else weight * float(value[ahead])))
        assert n_step(c, value, gamma=gamma, n=n).tolist() == close(expected), n


# -- field cases ----------------------------------------------------------------------------------


@pytest.mark.parametrize("junk", [9.0, 0.0, NAN, math.inf, -1e30])
def test_o06_credit_does_not_walk_over_observations(junk):
    c = ticking(["p00oo1"], "t", (1.0, 0))
    advantage, target = run(c, [0.2, 0.4, junk, junk, 0.6, junk], gamma=0.9, policy=0.5, critic=0.5)
    assert advantage == close([0.304, 0.32, 0.4])
    assert target == close([0.504, 0.72, 1.0])


def test_o06_trailing_observations_neither_leak_nor_swallow_rewards():
    c = ticking(["p00o"], "t", at(2, 1.0))
    assert run(c, [0, 0, 100, 100], policy=0.95)[0] == close([0.95, 1.0])
    c = ticking(["p00o"], "t", at(3, 1.0))
    assert run(c, [0.5, 0.5, 7, 7], gamma=0.9, policy=0.5)[0] == close([0.175, 0.5])


def test_o07_the_cause_of_the_end_is_recorded():
    """A is cut behind its own token, with value .7 of the state after the cut; B stops itself."""
    final = torch.tensor([True, False])
    c = ticking(["p00", "p00"], "ct", (1.0, 1), final=final)
    value = [0.5, 0.6, 0.7, 0.5, 0.6, 9.0]
    assert run(c, value, gamma=0.9, policy=1.0)[0] == close([0.067, 0.03, 0.4, 0.4])
    c = ticking(["p00", "p00"], "tt", (1.0, 1))
    assert run(c, value, gamma=0.9, policy=1.0)[0][:2] == close([-0.5, -0.6])


def test_turn_level():
    """algorithms.md 6.13: r = (0, .2, 1), V = (.3, .4, .6), gamma .99, lambda .9."""
    items = [at(4, 0.2), (1.0, 0)]
    c = ticking(["p00o1ooo222"], "t", *items, kind="turn")
    value = [0.3, NAN, NAN, 0.4, NAN, NAN, NAN, 0.6, NAN, NAN, NAN]
    advantage, _ = run(c, value, gamma=0.99, policy=0.9)
    assert advantage == pytest.approx([0.7646, 0.7504, 0.4000], abs=5e-5)


def test_a_seam_carries_bootstrap_and_trace():
    """algorithms.md 2.5: sizes (2, 1), V = (.2, .4 | .6), R = 1: the unbroken trajectory."""
    c = ticking(["p00", "ppp1"], "t", (1.0, 0), owners=[0, 0])
    advantage, _ = run(c, [0.2, 0.4, NAN, NAN, NAN, 0.6, NAN], policy=0.8)
    assert advantage == close([0.616, 0.520, 0.400])


# -- invariants -----------------------------------------------------------------------------------

letters = st.lists(
    st.tuples(st.sampled_from(["0", "1"]), st.integers(0, 3)), min_size=1, max_size=6
)


@st.composite
def worlds(draw):
    """Episodes of several rows, with rewards and values everywhere, and a stored final state."""
    rows, owners, endings = [], [], ""
    for episode in range(draw(st.integers(1, 4))):
        for _ in range(draw(st.integers(1, 3))):
            rows.append("p" + "".join(a + "o" * k for a, k in draw(letters)) + "o")
            owners.append(episode)
        endings += draw(st.sampled_from("tc"))
    size = sum(map(len, rows))
    numbers = st.floats(-2, 2)
    value = draw(st.lists(numbers, min_size=size, max_size=size))
    paid = draw(st.lists(numbers, min_size=size, max_size=size))
    return rows, owners, endings, value, paid


def rewarded(rows, owners, paid):
    """A reward at every token but those before an episode's first action."""
    items, position, begun = [], 0, set()
    for row, owner in zip(rows, owners, strict=True):
        for letter in row:
            if letter.isdigit():
                begun.add(owner)
            if owner in begun:
                items.append(at(position, paid[position], owner))
            position += 1
    return items


def double_sum(clock, value, gamma, lam):
    """A_t = sum over the rest of the episode of (gamma lambda)^k delta, term by term."""
    advantage = []
    for t in range(len(clock.episode)):
        total, weight, k = 0.0, 1.0, t
        while True:
            ahead = int(clock.successor[k])
            after = 0.0 if ahead == -1 else value[ahead]
            total += weight * (
                float(clock.reward[k]) + gamma * after - value[int(clock.decision[k])]
            )
            if bool(clock.last[k]):
                break
            weight *= gamma * lam
            k += 1
        advantage.append(total)
    return advantage


@settings(max_examples=40, deadline=None)
@given(worlds(), st.sampled_from([0.0, 0.5, 0.9, 1.0]), st.sampled_from([0.0, 0.7, 1.0]))
def test_equals_the_direct_sum(world, gamma, lam):
    rows, owners, endings, value, paid = world
    for kind in ("token", "turn", "segment"):
        items = rewarded(rows, owners, paid)
        c = ticking(rows, endings, *items, kind=kind, owners=owners)
        expected = double_sum(c, value, gamma, lam)
        advantage, target = run(c, value, gamma=gamma, policy=lam, critic=0.3)
        assert advantage == pytest.approx(expected, abs=1e-9)
        other = double_sum(c, value, gamma, 0.3)
        now = [value[int(d)] for d in c.decision]
        assert target == pytest.approx([v + a for v, a in zip(now, other, strict=True)], abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(worlds(), st.integers(0, 5), st.sampled_from([NAN, 1e9, 0.0]))
def test_observations_are_inert(world, more, junk):
    """Their length and the values on them change nothing, while values at decisions are fixed."""
    rows, owners, endings, value, paid = world
    longer, moved, position = [], [], 0
    for row in rows:
        text = ""
        for i, letter in enumerate(row):
            decides = i + 1 == len(row) or row[i + 1].isdigit()
            if letter == "o":  # the new ones stand before the token at which a state is read
                text += "o" * more
                moved += [junk] * more
            text += letter
            moved.append(value[position] if decides else junk)
            position += 1
        longer.append(text)
    total = sum(map(len, rows))
    scale = {"gamma": 0.9, "policy": 0.8, "critic": 0.95}
    ends = [(paid[i], i) for i in range(len(endings))]
    short = run(ticking(rows, endings, *ends, owners=owners), value[:total], **scale)
    long = run(ticking(longer, endings, *ends, owners=owners), moved, **scale)
    assert long == short


@settings(max_examples=30, deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_episodes_do_not_touch(world, random):
    """Each episode alone gets what it gets in company."""
    rows, owners, endings, value, paid = world
    c = ticking(rows, endings, *rewarded(rows, owners, paid), owners=owners)
    whole, _ = run(c, value, gamma=0.9, policy=0.8)
    for episode in range(len(endings)):
        only = torch.arange(len(endings)) == episode
        alone, _ = run(c.keep(only), value, gamma=0.9, policy=0.8)
        mine = [a for a, e in zip(whole, c.episode.tolist(), strict=True) if e == episode]
        assert alone == pytest.approx(mine, abs=1e-12)


def test_lambda_zero_is_the_residual_and_one_the_return():
    c = ticking(["p00oo1o"], "c", at(1, 0.3), at(5, 0.2))
    value = [0.4, 0.1, NAN, NAN, 0.9, NAN, 0.5]
    advantage, _ = run(c, value, gamma=0.9, policy=0.0)
    assert advantage == close([0.3 + 0.9 * 0.1 - 0.4, 0.9 * 0.9 - 0.1, 0.2 + 0.9 * 0.5 - 0.9])
    _, target = run(c, value, gamma=0.9)
    assert target == close([0.3 + 0.81 * 0.2 + 0.9**3 * 0.5, 0.9 * 0.2 + 0.81 * 0.5, 0.65])


def test_the_two_lambdas_are_not_mixed_up():
    c = ticking(["p00"], "t", (1.0, 0))
    advantage, target = run(c, [0.5, 0.25, NAN], policy=0.0, critic=1.0)
    assert advantage == close([-0.25, 0.75])
    assert target == close([1, 1])
    advantage, target = run(c, [0.5, 0.25, NAN], policy=1.0, critic=0.0)
    assert advantage == close([0.5, 0.75])
    assert target == close([0.25, 1])


def test_lambda_may_differ_between_steps_of_the_batch():
    c = ticking(["p00", "p00"], "tt", (1.0, 0), (1.0, 1))
    lam = tensor([0.5, 0.5, 1.0, 1.0])
    found = gae(c, torch.zeros(6), gamma=1.0, policy=lam, critic=lam)
    assert found.advantage.tolist() == [0.5, 1, 1, 1]
    assert found.target.tolist() == [0.5, 1, 1, 1]


def test_nothing_carries_a_gradient_and_inputs_stay():
    c = ticking(["p00"], "t", (1.0, 0))
    value = torch.zeros(3, requires_grad=True)
    found = gae(c, value, gamma=1.0, policy=0.9, critic=1.0)
    assert not found.advantage.requires_grad
    assert not found.target.requires_grad
    assert found.advantage.dtype == torch.float64
    exact = tensor([0.1, 0.2, 0.3])
    gae(c, exact, gamma=0.9, policy=0.9, critic=1.0)
    assert exact.tolist() == [0.1, 0.2, 0.3]
    assert c.reward.tolist() == [0.0, 1.0]


def test_float32_values_are_read_as_they_are():
    c = ticking(["p00o"], "c", (1.0, 0))
    value = torch.tensor([0.1, 0.2, NAN, 0.3])
    single, double = (gae(c, v, gamma=0.9, policy=0.8, critic=0.8) for v in (value, value.double()))
    assert torch.equal(single.advantage, double.advantage)
    assert torch.equal(single.target, double.target)


def test_what_is_read_must_be_there():
    with pytest.raises(ValueError, match=r"episodes \[1\] have no final state"):
        run(ticking(["p0o", "p0"], "cc"), [0.0] * 5)
    for broken in ([NAN, 0, 0], [0, 0, math.inf]):
        with pytest.raises(ValueError, match="a value that is read"):
            run(ticking(["p0o"], "c"), broken)
    c = ticking(["p0o"], "c")
    with pytest.raises(ValueError, match="one number a token"):
        run(c, [0.0])
    with pytest.raises(ValueError, match="one number a token"):
        gae(c, torch.zeros(3, dtype=torch.int64), gamma=1.0, policy=1.0, critic=1.0)


@pytest.mark.parametrize("name", ["gamma", "policy", "critic"])
@pytest.mark.parametrize("bad", [-0.1, 1.1, NAN])
def test_discounts_lie_in_the_unit_interval(name, bad):
    with pytest.raises(ValueError, match=name):
        run(ticking(["p0"], "t"), [0.0, 0.0], **{name: bad})


def test_an_empty_clock_is_an_empty_estimate():
    c = ticking(["p0"], "t", used=torch.tensor([False]))
    assert run(c, [NAN, NAN]) == ([], [])
    assert n_step(c, tensor([NAN, NAN]), gamma=1.0, n=1).tolist() == []


@pytest.mark.parametrize("blocks", [1, 2])
def test_chunks_of_the_axis_do_not_show(blocks, monkeypatch):
    """Episodes longer than a chunk, and chunks that end inside one, before one and behind one."""
    generator = torch.Generator().manual_seed(blocks)
    lengths = [150, 42, 64, 1, 130, 62, 2]
    rows = ["p" + "0" * n + "o" for n in lengths]
    c = ticking(rows, "ctctccc", *[(1.0, i) for i in range(7)])
    value = torch.randn(len(c.step), generator=generator, dtype=torch.float64)
    monkeypatch.setattr(scan, "BLOCKS", blocks)
    lam = adaptive(c, alpha=0.5)
    found = gae(c, value, gamma=0.99, policy=0.9, critic=lam)
    assert found.advantage.tolist() == close(double_sum(c, value.tolist(), 0.99, 0.9))
    for episode in range(7):
        mine = c.keep(torch.arange(7) == episode)
        each = float(lam[c.episode == episode][0])
        alone = double_sum(mine, value.tolist(), 0.99, each)
        now = value[mine.decision].tolist()
        expected = [v + a for v, a in zip(now, alone, strict=True)]
        assert found.target[c.episode == episode].tolist() == close(expected)
