"""The assigner wires estimators of the credit room to batches: numbers, masks, memory, shaping."""

from dataclasses import replace

import pytest
import torch
from learner_world import assign, episode, recipe, segment

from hexad.contract.ending import EndingKind
from hexad.contract.faults import ContractViolation
from hexad.contract.reward import Owner, OwnerKind, Reward
from hexad.contract.segment import Span, SpanKind
from hexad.learner.assemble import assemble
from hexad.learner.assign import Assigner
from hexad.learner.batch import RoleScore, RoleValue, Scores

NAN = torch.nan


def valued(batch, values):
    """Scores whose value stands on the token before each action, in order."""
    value = torch.full((len(batch.ids),), NAN, dtype=torch.float64)
    value[batch.action.nonzero().squeeze(1) - 1] = torch.tensor(values, dtype=torch.float64)
    return Scores(value=RoleValue(value, 0, "d"))


def skipping(reward=1.0, **changes):
    """[a0 a1 | o o o | a2] after a prompt token: algorithms.md 1.5."""
    row = segment([9, 1, 2, 5, 5, 5, 3], [0, 1, 1, 0, 0, 0, 1], turn=[0, 0, 0, 1, 1, 1, 1])
    return replace(episode("a", [row], reward=reward), **changes)


def gae(**credit):
    spec = {"estimator": "gae", "lambda_policy": 0.9, "lambda_critic": 1.0, **credit}
    return recipe(credit=spec)


def test_observations_take_no_time():
    batch = assemble([skipping()])
    credit = assign(batch, gae(), valued(batch, [0.4, 0.5, 0.7]))
    assert credit.advantage[batch.action].tolist() == pytest.approx([0.523, 0.470, 0.300])
    assert credit.target[batch.action].tolist() == pytest.approx([1.0, 1.0, 1.0])
    assert credit.advantage[~batch.action].tolist() == [0.0] * 4
    assert bool(credit.target[~batch.action].isnan().all())


def test_an_adaptive_lambda_counts_clock_steps():
    batch = assemble([skipping()])
    credit = assign(batch, gae(lambda_policy=None, alpha=1.5), valued(batch, [0.4, 0.5, 0.7]))
    expected = [0.4370, 0.4333, 0.3000]
    assert credit.advantage[batch.action].tolist() == pytest.approx(expected, abs=5e-5)


def test_a_reward_on_an_observation_belongs_to_the_action_before_it():
    span = Reward("tool", 0.5, Owner(OwnerKind.TURN, 0))
    batch = assemble([skipping(rewards=(Reward("task", 1.0), span))])
    credit = assign(batch, gae(), valued(batch, [0.4, 0.5, 0.7]))
    assert credit.advantage[batch.action].tolist() == pytest.approx([0.973, 0.970, 0.300])


def test_a_cut_bootstraps_from_what_was_last():
    """Truncated after a2 with V = .6 behind it and no reward: (.199, .110, -.100)."""
    made = skipping(reward=0.0)
    cut = episode("a", made.segments, reward=0.0, ending=EndingKind.TRUNCATED_TOKENS)
    batch = assemble([cut])
    scores = valued(batch, [0.4, 0.5, 0.7])
    scores.value.value[-1] = 0.6
    credit = assign(batch, gae(), scores)
    assert credit.advantage[batch.action].tolist() == pytest.approx([0.199, 0.110, -0.100])
    wanted = Assigner(gae()).wanted(batch)
    assert wanted.tolist() == [True, True, False, False, False, True, True]


def test_pretraining_targets_are_returns():
    batch = assemble([skipping()])
    spec = gae(lambda_critic=0.0)
    scores = valued(batch, [0.4, 0.5, 0.7])
    usual = Assigner(spec)(batch, scores).target[batch.action]
    assert usual.tolist() == pytest.approx([0.5, 0.7, 1.0])
    early = Assigner(spec)(batch, scores, pretrain=True).target[batch.action]
    assert early.tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_an_estimator_that_bootstraps_needs_values():
    batch = assemble([skipping()])
    with pytest.raises(ContractViolation, match="no values"):
        assign(batch, gae())


def test_vtrace_weighs_by_old_over_behaviour():
    """pi / mu = (.5, 2, 1), gamma .9: pg advantage (.305, .6, .5), v (.505, .9, 1)."""
    row = segment([9, 1, 2, 3], [0, 1, 1, 1], logprob=[-1.0, -1.0, -1.0])
    batch = assemble([episode("a", [row], reward=1.0)])
    old = torch.full((4,), NAN, dtype=torch.float64)
    old[1:] = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64).log() - 1.0
    scores = replace(valued(batch, [0.2, 0.3, 0.5]), old=RoleScore(old, 0, "d"))
    spec = {"estimator": "vtrace", "gamma": 0.9, "lambda_policy": 1.0, "rho_bar": 1.0, "c_bar": 1.0}
    credit = assign(batch, recipe(credit=spec), scores)
    assert credit.advantage[1:].tolist() == pytest.approx([0.305, 0.6, 0.5])
    assert credit.target[1:].tolist() == pytest.approx([0.505, 0.9, 1.0])


def test_returns_are_whitened_over_tokens_of_the_batch():
    """Lengths (1, 3, 1, 1) with rewards (1, 0, 1, 1): mean .5 over tokens, not .75."""
    sizes, rewards = (1, 3, 1, 1), (1.0, 0.0, 1.0, 1.0)
    rows = [segment([9, *[1] * n], [0, *[1] * n]) for n in sizes]
    batch = assemble([episode(f"e{i}", [rows[i]], reward=rewards[i]) for i in range(4)])
    spec = {"estimator": "reinforce_pp", "whiten": "batch"}
    credit = assign(batch, recipe(credit=spec))
    assert credit.advantage[batch.action].tolist() == pytest.approx([1, -1, -1, -1, 1, 1])


def one_turn(reward, group):
    return episode(f"{group}{reward}", [segment([9, 1], [0, 1])], reward=reward, group=group)


def test_returns_may_be_taken_less_the_mean_of_their_group():
    """(1, 0 | 5, 5) less group means is (.5, -.5, 0, 0); population deviation sqrt(1/8)."""
    scores = [(1.0, "g"), (0.0, "g"), (5.0, "h"), (5.0, "h"), (None, "h")]
    batch = assemble([one_turn(*pair) for pair in scores])
    spec = {"estimator": "reinforce_pp", "whiten": "batch", "baseline": "group"}
    found = assign(batch, recipe(credit=spec)).advantage[batch.action]
    assert found.tolist() == pytest.approx([2**0.5, -(2**0.5), 0, 0, 0])
    sample = assign(batch, recipe(credit={**spec, "std": "sample"})).advantage[batch.action]
    assert sample.tolist() == pytest.approx([1.5**0.5, -(1.5**0.5), 0, 0, 0])


def test_turns_are_compared_with_turns_of_the_same_number():
    """Returns (.75, .5), (.25, .25) and (1,): the third episode has no second turn."""
    first, second, third = states("1", 0.5), states("2", 0.25), one_turn(1.0, "g")
    first = replace(first, rewards=(*first.rewards, Reward("tool", 0.25, Owner(OwnerKind.TURN, 0))))
    batch = assemble([first, second, third])
    spec = {"estimator": "turn_group", "clock": "turn"}
    found = assign(batch, recipe(credit=spec)).advantage[batch.action]
    mean = 2 / 3
    assert found.tolist() == pytest.approx([0.75 - mean, 0.125, 0.25 - mean, -0.125, 1 - mean])
    spec |= {"std": "population", "threshold": 0.2}
    coarse = assign(batch, recipe(credit=spec)).advantage[batch.action]
    assert coarse[[1, 3]].tolist() == [0.0, 0.0], "their deviation of .125 is under the threshold"
    assert float(coarse[4]) == pytest.approx(1.0690, abs=1e-4)


def test_an_n_step_return_bootstraps_after_n_steps_of_the_clock():
    """V = (.4, .5, .7), reward 1 at the end, gamma .9: targets (.45, .63, 1) and (.567, .9, 1)."""
    batch = assemble([skipping()])
    for n, target in ((1, [0.45, 0.63, 1.0]), (2, [0.567, 0.9, 1.0]), (3, [0.81, 0.9, 1.0])):
        spec = recipe(credit={"estimator": "n_step", "steps": n, "gamma": 0.9})
        scores = valued(batch, [0.4, 0.5, 0.7])
        credit = assign(batch, spec, scores)
        assert credit.target[batch.action].tolist() == pytest.approx(target)
        less = [t - v for t, v in zip(target, (0.4, 0.5, 0.7), strict=True)]
        assert credit.advantage[batch.action].tolist() == pytest.approx(less)
        early = Assigner(spec)(batch, scores, pretrain=True)
        assert early.target[batch.action].tolist() == pytest.approx([0.81, 0.9, 1.0])


def states(name, reward, *digests):
    row = segment([9, 1, 5, 2], [0, 1, 0, 1], turn=[0, 0, 1, 1])
    return replace(episode(name, [row], reward=reward), states=digests)


def test_state_groups_compare_turns_that_began_alike():
    """algorithms.md 6.11: totals .650 and .833 for the first episode."""
    batch = assemble([states("1", 1.0, "s0", "s1"), states("2", 0.0, "s0", "s1"),
                      states("3", 1.0, "s0", "s2")])  # fmt: skip
    spec = {"estimator": "gigpo", "clock": "turn", "gamma": 0.95, "omega": 1.0}
    credit = assign(batch, recipe(credit=spec))
    expected = [0.650, 0.8333, -1.300, -1.1667, 0.650, 0.3333]
    assert credit.advantage[batch.action].tolist() == pytest.approx(expected, abs=5e-4)


def test_state_groups_need_states():
    batch = assemble([states("1", 1.0), states("2", 0.0)])
    spec = {"estimator": "gigpo", "clock": "turn", "omega": 1.0}
    with pytest.raises(ContractViolation, match="state_digest"):
        assign(batch, recipe(credit=spec))


def test_a_masked_truncation_leaves_the_loss_and_still_compares():
    row = segment([9, 1], [0, 1])
    cut = episode("b", [row], reward=0.0, ending=EndingKind.TRUNCATED_TOKENS)
    batch = assemble([episode("a", [row], reward=1.0), cut])
    for truncation, counted in (("score", [True, True]), ("mask", [True, False])):
        spec = {"estimator": "dr_grpo", "truncation": truncation}
        credit = assign(batch, recipe(credit=spec))
        assert credit.counted.tolist() == counted
        assert float(credit.advantage[1]) == 0.5
        assert float(credit.advantage[3]) == (-0.5 if counted[1] else 0.0)


@pytest.mark.parametrize(("truncation", "expected"), [(None, 0.25), ("terminal", -0.5)])
def test_a_critic_bootstraps_at_a_cut_unless_the_limits_belong_to_the_task(truncation, expected):
    """Value .5 before the only action, .75 behind it, no reward: 0 + .75 - .5, or 0 - .5."""
    row = segment([9, 1], [0, 1])
    cut = episode("b", [row], reward=0.0, ending=EndingKind.TRUNCATED_TOKENS)
    batch = assemble([cut])
    spec = {"estimator": "gae", "lambda_policy": 1.0, "lambda_critic": 1.0}
    made = Assigner(recipe(credit=spec | {"truncation": truncation}))
    value = RoleValue(torch.tensor([0.5, 0.75], dtype=torch.float64), 0, "")
    credit = made(batch, Scores(value=value))
    assert float(credit.advantage[1]) == expected
    assert float(credit.target[1]) == 0.5 + expected
    wanted = made.wanted(batch).tolist()
    assert wanted == [True, truncation is None]  # nobody asks what follows an end


def test_a_running_mean_remembers_the_task_and_survives_a_resume():
    row = segment([9, 1], [0, 1])
    spec = recipe(credit={"estimator": "reinforce", "baseline": "prompt_mean", "window": 2})
    first = Assigner(spec)
    found = []
    for reward in (1.0, 0.0, 0.0, 0.0):
        batch = assemble([episode("a", [row], reward=reward)])
        found.append(float(first(batch, Scores()).advantage[1]))
        again = Assigner(spec)
        again.restore(first.state())
        first = again
    # Unseen: the batch's mean, which is its own score. Then 1, then (1 + 0) / 2, then 0.
    assert found == [0.0, -1.0, -0.5, 0.0]


def test_a_beta_tracker_forgets_as_the_policy_moves():
    spec = {"low": 0.875, "high": 0.96, "half_life": 0.06, "initial": 0.5}
    made = Assigner(recipe(credit={"estimator": "reinforce", "baseline": "beta", "tracker": spec}))
    row = segment([9, 1], [0, 1], logprob=-1.0)
    near = segment([9, 1], [0, 1], logprob=-1.003)
    batches = [assemble([episode("a", [r], reward=1.0)]) for r in (row, near, near)]
    found = [float(made(b, Scores()).advantage[1]) for b in batches]
    # Counts (4, 4): v = .5. No drift: rho .96 -> (4.84, 3.84), v = .5576. Drift .003: .96 again.
    assert found[:2] == pytest.approx([0.5, 1 - 0.5576], abs=1e-4)
    again = Assigner(made.recipe)
    again.restore(made.state())
    assert again.state() == made.state()


def potential(batch):
    """Number of tokens so far: a function of the state."""
    return torch.arange(len(batch.ids), dtype=torch.float64) / 10


def test_shaping_telescopes_and_leaves_a_return_less_its_first_potential(monkeypatch):
    import hexad.learner.assign as module

    monkeypatch.setattr(module, "load_object", lambda name, where: potential)
    batch = assemble([skipping()])
    base = gae(lambda_policy=1.0)
    shaped = gae(lambda_policy=1.0, shaping="somewhere:potential")
    scores = valued(batch, [0.0, 0.0, 0.0])
    plain = assign(batch, base, scores).advantage[batch.action]
    found = assign(batch, shaped, scores).advantage[batch.action]
    first = potential(batch)[batch.action.nonzero().squeeze(1) - 1]
    torch.testing.assert_close(found, plain - first)
    monkeypatch.setattr(module, "load_object", lambda name, where: lambda b: torch.zeros(1))
    with pytest.raises(ContractViolation, match="one potential a token"):
        assign(batch, shaped, scores)


def test_a_greedy_rollout_is_the_baseline_of_its_group():
    """ReMax: R - R_greedy; without a scored greedy rollout there is no baseline and no signal."""
    row = segment([9, 1], [0, 1])
    batch = assemble(
        [
            episode("a", [row], reward=1.0, group="g"),
            episode("b", [row], reward=0.0, group="g"),
            episode("c", [row], reward=1.0, group="h"),
        ]
    )
    made = Assigner(recipe(credit={"estimator": "reinforce", "baseline": "greedy"}))
    credit = made(batch, Scores(), greedy={"g": 1.0, "h": NAN})
    assert credit.advantage[batch.action].tolist() == [0.0, -1.0, 0.0]
    with pytest.raises(ContractViolation, match="no greedy rollouts"):
        made(batch, Scores())


def test_a_reward_of_a_span_never_moves_to_the_action_after_it():
    """The observation's span ends right before a2: its reward is a1's all the same."""
    spans = (
        Span(SpanKind.USER, "", 0, 0, 1),
        Span(SpanKind.TEXT, "", 0, 1, 3),
        Span(SpanKind.OBSERVATION, "", 1, 3, 6),
        Span(SpanKind.TEXT, "", 1, 6, 7),
    )
    first = segment([8, 4], [0, 1])
    row = replace(skipping().segments[0], spans=spans)
    paid = Reward("tool", 0.5, Owner(OwnerKind.SPAN, 2, 1))
    made = episode("a", [first, row])
    batch = assemble([replace(made, rewards=(Reward("task", 1.0), paid))])
    spec = {"estimator": "reinforce_pp", "whiten": None}
    returns = assign(batch, recipe(credit=spec)).advantage[batch.action]
    assert returns.tolist() == [1.5, 1.5, 1.5, 1.0]


def test_a_penalty_is_taken_off_the_reward_of_its_own_step():
    batch = assemble([skipping()])
    penalty = torch.where(batch.action, 0.1, NAN).double()
    spec = {"estimator": "reinforce_pp", "whiten": None}
    credit = Assigner(recipe(credit=spec))(batch, Scores(), penalty)
    assert credit.advantage[batch.action].tolist() == pytest.approx([0.7, 0.8, 0.9])
    whole = Assigner(recipe(credit={"estimator": "reinforce"}))(batch, Scores(), penalty)
    assert whole.advantage[batch.action].tolist() == pytest.approx([0.7, 0.7, 0.7])
