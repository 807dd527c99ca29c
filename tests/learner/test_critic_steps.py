import numpy as np
import pytest
import torch
from learner_world import episode, random_episodes, recipe, segment, tiny

from hexad.contract.faults import ContractViolation
from hexad.learner.assemble import assemble
from hexad.learner.critic import Critic
from hexad.learner.report import NonFiniteUpdate


def settings(micro=10_000, **critic):
    base = {"optimizer": {"lr": 1e-2, "schedule": "constant", "clip_norm": None}, **critic}
    made = recipe(system={"micro_batch_tokens": micro, "dtype": "float64"})
    return type(made).model_validate({**made.model_dump(), "critic": base})


def critic(seed=0, micro=10_000, **options):
    made = Critic(tiny(seed), settings(micro, **options))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # not the zero head: values must differ
        made.net.head.weight.normal_(generator=generator)
    return made


def wanted(batch):
    """Where the tokens of actions are decided on."""
    positions = torch.zeros_like(batch.action)
    positions[batch.action.nonzero().squeeze(1) - 1] = True
    return positions


def parameters(made):
    return torch.cat([p.detach().reshape(-1) for p in made.net.parameters()])


def prepared(made, episodes):
    batch = assemble(episodes)
    held = made.score(batch, wanted(batch)).value.roll(1)
    target = torch.where(batch.action, torch.linspace(0, 1, len(batch.ids)).double(), torch.nan)
    return batch, held, target


def test_the_value_is_that_of_the_prefix_ending_with_the_token():
    made = critic()
    batch = assemble([episode("a", [segment([5, 6, 7, 8], [0, 1, 0, 1])])])
    found = made.score(batch, torch.tensor([True, False, True, True]))
    hidden = made.net.trunk(input_ids=torch.tensor([[5, 6, 7, 8]])).last_hidden_state[0]
    expected = made.net.head(hidden).squeeze(-1)
    assert found.value.isnan().tolist() == [False, True, False, False]
    torch.testing.assert_close(found.value[[0, 2, 3]], expected[[0, 2, 3]])
    assert found.digest == made.lineage()


def test_a_new_critic_says_one_value_everywhere_and_leaves_the_policy_alone():
    policy = tiny()
    before = policy.lineage()
    made = Critic(policy, settings())
    batch, held, target = prepared(made, random_episodes(1))
    assert set(held[batch.action].tolist()) == {0.0}
    made.update(batch, held, target, 0.0)
    assert policy.lineage() == before
    assert made.lineage() != before


def test_one_step_is_the_mean_of_half_squared_errors_over_steps():
    made = critic()
    batch, held, target = prepared(made, random_episodes(2))
    own = critic()
    raw = torch.cat(
        [
            own.net(row[None], torch.arange(len(row)))[:-1, 0][action[1:]]
            for row, action in zip(
                batch.ids.tensor_split(batch.offsets[1:-1]),
                batch.action.tensor_split(batch.offsets[1:-1]),
                strict=True,
            )
        ]
    )
    loss = 0.5 * (raw - target[batch.action]).square().mean()
    own.stepper.zero()
    loss.backward()
    work = made.update(batch, held, target, 0.0)
    tallies = work.tallies
    assert tallies["loss"].mean == pytest.approx(loss.item(), rel=1e-12)
    assert tallies["grad_norm"].mean == pytest.approx(float(own.stepper.norm()), rel=1e-9)
    assert (work.steps, work.train_tokens) == (1, int(batch.action.sum()))


@pytest.mark.parametrize("micro", [1, 40])
@pytest.mark.parametrize("head", [{}, {"head": "hl_gauss", "support": (0.0, 1.0)}])
def test_the_step_does_not_depend_on_micro_batches(micro, head):
    whole, split = critic(**head), critic(micro=micro, **head)
    for made in (whole, split):
        made.update(*prepared(made, random_episodes(3)), 0.0)
    torch.testing.assert_close(parameters(split), parameters(whole), rtol=1e-9, atol=1e-11)


def test_what_stands_off_the_targets_is_inert():
    plain, noisy = critic(), critic()
    batch, held, target = prepared(plain, random_episodes(4))
    plain.update(batch, held, target, 0.0)
    noisy.update(batch, torch.where(batch.action, held, torch.nan), target, 0.0)
    assert torch.equal(parameters(plain), parameters(noisy))


def test_passes_and_minibatches_make_the_steps_they_say():
    made = critic(updates=3, minibatches=2)
    assert made.update(*prepared(made, random_episodes(5)), 0.0).steps == 6
    assert (made.steps, made.batches) == (6, 1)


def test_the_denominator_episode_weighs_episodes_alike():
    rows = [segment(np.arange(12), [0] + [1] * 11), segment([1, 2, 3], [0, 0, 1])]
    batch = assemble([episode("a", rows[:1]), episode("b", rows[1:])])
    target = torch.where(batch.action, 1.0, torch.nan).double()
    target[1:12] = 0.0
    losses = {}
    for name in ("token", "episode"):
        made = Critic(tiny(), settings(denominator=name))  # zero head: V = 0 everywhere
        work = made.update(batch, torch.zeros(len(batch.ids)), target, 0.0)
        losses[name] = work.tallies["loss"].mean
    assert losses == pytest.approx({"token": 0.5 / 12, "episode": 0.25})


def test_frozen_attention_stays_and_the_rest_learns():
    made = critic(freeze="attention")
    before = {name: p.detach().clone() for name, p in made.net.named_parameters()}
    made.update(*prepared(made, random_episodes(6)), 0.0)
    moved = {name for name, p in made.net.named_parameters() if not torch.equal(p, before[name])}
    assert not any("attn" in name for name in moved)
    assert any("mlp" in name for name in moved)


def test_it_learns_what_it_is_shown():
    made = critic(updates=60)
    batch, held, _ = prepared(made, random_episodes(7))
    target = torch.where(batch.action, 0.7, torch.nan).double()
    made.update(batch, held, target, 0.0)
    after = made.score(batch, wanted(batch)).value.roll(1)[batch.action]
    assert float((after - 0.7).abs().mean()) < 0.05


def test_state_continues_bit_for_bit():
    whole, resumed = critic(), critic()
    whole.update(*prepared(whole, random_episodes(8)), 0.0)
    resumed.restore(whole.state())
    for made in (whole, resumed):
        made.update(*prepared(made, random_episodes(9)), 0.0)
    assert torch.equal(parameters(whole), parameters(resumed))
    assert (whole.batches, whole.steps) == (resumed.batches, resumed.steps) == (2, 2)


def test_no_target_and_no_number_are_refused_before_a_step():
    made = critic()
    batch, held, target = prepared(made, random_episodes(10))
    with pytest.raises(ContractViolation, match="no token"):
        made.update(batch, held, torch.full_like(target, torch.nan), 0.0)
    with torch.no_grad():
        made.net.head.bias.fill_(torch.inf)
    before = made.steps
    with pytest.raises(NonFiniteUpdate, match="critic step"):
        made.update(batch, held, target, 0.0)
    assert made.steps == before
