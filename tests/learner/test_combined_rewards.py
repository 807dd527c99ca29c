"""Potentials on the token axis, constraints at a price, and owned calls, in a batch."""

from dataclasses import replace

import pytest
import torch
from learner_world import assign, episode, recipe, segment

from hexad.contract.ending import EndingKind
from hexad.contract.faults import ContractViolation
from hexad.contract.refusal import Refusal, RefusalReason
from hexad.contract.reward import Gate, Levels, Owner, OwnerKind, Reward
from hexad.contract.segment import Span, SpanKind
from hexad.credit.shaping import require_telescoping
from hexad.learner.assemble import assemble
from hexad.learner.assign import Assigner
from hexad.learner.combine import Combiner
from hexad.learner.potential import completed, held
from hexad.learner.steps import steps_of

POTENTIAL = {"process": {"left": {"signal": "x:y", "paid": "potential"}}}
SPANS = (
    Span(SpanKind.USER, "", 0, 0, 1),
    Span(SpanKind.TOOL_CALL, "calculate", 0, 1, 3),
    Span(SpanKind.OBSERVATION, "", 1, 3, 5),
    Span(SpanKind.TEXT, "", 1, 5, 6),
)


def two_turns(name="a", levels=(-1.0, -0.4, 0.3), **changes):
    """[q | a0 a1 | o o | a2]: turn 0 is a call of two tokens, turn 1 one token of text."""
    row = segment([9, 1, 2, 5, 5, 3], [0, 1, 1, 0, 0, 1], turn=[0, 0, 0, 1, 1, 1])
    made = episode(name, [replace(row, spans=SPANS)])
    return replace(made, signals=(Levels("left", levels),), **changes)


def test_a_potential_is_held_inside_a_turn():
    other = episode("b", [segment([9, 1, 5], [0, 1, 0], turn=[0, 0, 0])])
    other = replace(other, signals=(Levels("left", (-2.0, -3.0)),))
    batch = assemble([two_turns(), other])
    assert completed(batch).tolist() == [0, 0, 1, 1, 1, 2, 0, 1, 1]
    expected = [-1.0, -1.0, -0.4, -0.4, -0.4, 0.3, -2.0, -3.0, -3.0]
    assert held(batch, {"left": 1.0}).tolist() == expected
    assert held(batch, {"left": 0.5}).tolist() == [v / 2 for v in expected]


def test_a_seam_between_segments_is_no_end_of_a_turn():
    first = segment([9, 1, 5], [0, 1, 0], turn=[0, 0, 0])
    second = segment([8, 8, 2], [0, 0, 1], turn=[1, 1, 1])
    made = replace(episode("a", [first, second]), signals=(Levels("left", (1.0, 2.0, 3.0)),))
    assert held(assemble([made]), {"left": 1.0}).tolist() == [1.0, 2.0, 2.0, 2.0, 2.0, 3.0]


def shaped_rewards(made, **credit):
    spec = recipe(credit={"estimator": "reinforce_pp", "whiten": "batch", **credit})
    feedback = spec.feedback.model_copy(
        update={"process": recipe(feedback=POTENTIAL).feedback.process}
    )
    assigner = Assigner(spec.model_copy(update={"feedback": feedback}))
    return assigner._clock(assemble([made]), None).reward.tolist()


def test_a_turn_clock_is_paid_once_a_turn_and_a_token_clock_at_every_token():
    """Phi -1, -.4, then 0 behind the end; gamma .9; task reward 1 at the end."""
    turn = shaped_rewards(two_turns(), gamma=0.9, clock="turn")
    assert turn == pytest.approx([0.9 * -0.4 + 1.0, 1.0 + 0.4])
    token = shaped_rewards(two_turns(), gamma=0.9, clock="token")
    assert token == pytest.approx([0.9 * -1.0 + 1.0, 0.9 * -0.4 + 1.0, 1.0 + 0.4])
    whole = sum(0.9**t * r for t, r in enumerate(token))
    assert whole == pytest.approx(0.9**2 * 1.0 + 1.0), "less the task's .81 it is -Phi(s0)"


def test_a_cut_episode_has_no_potential_left_without_a_bootstrap():
    cut = replace(two_turns(), ending=episode("x", [], ending=EndingKind.TRUNCATED_TURNS).ending)
    assert shaped_rewards(cut, clock="turn") == pytest.approx([0.6, 1.0 + 0.4])


def test_what_does_not_telescope_is_refused():
    batch = assemble([two_turns()])
    steps = steps_of(batch, "turn", batch.scored, {})
    now, after = torch.tensor([-1.0, -0.4]), torch.tensor([-0.4, 0.0])
    now, after = now.double(), after.double()
    right = 0.9 * after - now
    require_telescoping(steps, right, (now, after), 0.9)
    for wrong in (right + torch.tensor([0.0, 1e-3]).double(), right.flip(0)):
        with pytest.raises(ValueError, match="does not telescope"):
            require_telescoping(steps, wrong, (now, after), 0.9)


@pytest.mark.parametrize("levels", [(), (-1.0, 0.0), (-1.0, 0.0, 0.0, 0.0)])
def test_every_state_of_a_scored_episode_has_a_level(levels):
    with pytest.raises(ContractViolation, match="has 3 states"):
        held(assemble([two_turns(levels=levels)]), {"left": 1.0})


def test_what_was_not_scored_needs_no_level():
    unscored = episode("b", [segment([9, 1], [0, 1])], reward=None)
    potential = held(assemble([two_turns(), unscored]), {"left": 1.0})
    assert potential[-2:].isnan().all() and potential[:-2].isfinite().all()


# -- components, calls and gates ------------------------------------------------------------------


def test_a_calls_reward_belongs_to_the_calls_last_token():
    call = Reward("tool", 0.5, Owner(OwnerKind.CALL, 0))
    batch = assemble([two_turns(rewards=(Reward("task", 1.0), call))])
    steps = steps_of(batch, "token", batch.scored, {"tool": 2.0})
    assert steps.reward.tolist() == [0.0, 1.0, 1.0]


def test_a_gated_episode_is_paid_at_its_end_alone():
    call = Reward("tool", 0.5, Owner(OwnerKind.CALL, 0))
    batch = assemble([two_turns(rewards=(call,), gate=Gate(-2.0, "violation"))], {"tool": 9.0})
    assert batch.score.tolist() == [-2.0]
    assert steps_of(batch, "token", batch.scored, {"tool": 9.0}).reward.tolist() == [0.0, 0.0, -2.0]


def constrained(initial, **spec):
    declared = {"of": "violations", "limit": 0.1, "rate": 0.05, "initial": initial, **spec}
    return Combiner(recipe(feedback={"constraints": {"safe": declared}}).feedback)


def group(group="g"):
    """Rewards (1, 1, 0, 0), violations (1, 0, 0, 0)."""
    found = []
    refusal = (Refusal(0, 0, "calculate", RefusalReason.FORBIDDEN),)
    for number, (reward, violated) in enumerate(((1.0, 1), (1.0, 0), (0.0, 0), (0.0, 0))):
        made = replace(two_turns(f"{group}{number}"), group_id=group)
        rewards = (Reward("task", reward),)
        found.append(replace(made, rewards=rewards, refusals=refusal * violated))
    return found


@pytest.mark.parametrize(
    ("multiplier", "advantages"),
    [
        (0.0, [0.5, 0.5, -0.5, -0.5]),
        (0.5, [0.125, 0.625, -0.375, -0.375]),
        (2.0, [-1.0, 1.0, 0.0, 0.0]),
    ],
)
def test_reward_and_cost_are_combined_before_they_are_compared(multiplier, advantages):
    """algorithms.md 8.4."""
    batch = assemble(constrained(multiplier)(group(), 0.0))
    spec = recipe(credit={"estimator": "dr_grpo"}, action={"denominator": "fixed", "length": 3})
    found = assign(batch, spec).advantage[batch.action].tolist()
    assert found[::3] == pytest.approx(advantages)


def test_a_normalised_multiplier_divides_everything():
    """A_R 1, A_C .4, lambda .5: (1 - .5 * .4) / 1.5 = .5333 (algorithms.md 8.4)."""
    prices = {"costs": {"tools": {"calculate": 0.4}}, "weights": {"cost": 0.0}}
    declared = {"of": "cost", "limit": 1.0, "rate": 0.1, "initial": 0.5, "normalise": True}
    combiner = Combiner(recipe(feedback={**prices, "constraints": {"c": declared}}).feedback)
    (made,) = combiner([two_turns(rewards=(Reward("task", 1.0),))], 0.0)
    assert made.score({}) == pytest.approx(0.5333, abs=1e-4)
    assert made.rewards[-1].owner == Owner(OwnerKind.CALL, 0)
    (gated,) = combiner([two_turns(gate=Gate(-3.0, "violation"))], 0.0)
    assert gated.score({}) == pytest.approx(-2.0)


def test_the_mean_cost_is_over_all_that_were_sampled():
    """Unscored episodes are conduct too; faulted ones are nobody's."""
    combiner = constrained(0.5)
    unscored = replace(group()[0], verdict=None)
    faulted = replace(unscored, ending=episode("x", [], ending=EndingKind.ENVIRONMENT_ERROR).ending)
    assert combiner.measure([*group(), unscored, faulted]) == {"safe": 0.4}
    assert combiner.measure([faulted]) == {}
    told = combiner.step({"safe": 0.3})
    assert told["constraint/safe/multiplier"] == pytest.approx(0.51)
    assert told["constraint/safe/cost"] == 0.3 and told["constraint/safe/limit"] == 0.1
    again = constrained(0.0)
    again.restore(combiner.state())
    assert again.duals["safe"].multiplier == combiner.duals["safe"].multiplier


def test_length_begins_late():
    spec = recipe(feedback={"length": {"begin": 0.5}}).feedback
    episodes = tuple(group())
    assert Combiner(spec)(episodes, 0.4) == episodes
    assert [e.rewards[-1].component for e in Combiner(spec)(episodes, 0.5)] == ["length"] * 4
