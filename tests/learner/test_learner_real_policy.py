"""The learner on the policy that Hexad ships."""

import numpy as np
import pytest
import torch
from learner_world import assign, episode, random_segment, recipe

from hexad.learner.assemble import assemble
from hexad.learner.learner import Learner
from hexad.policy.load import load_policy
from hexad.policy.transforms import distribution

SETTINGS = recipe(
    policy={"sampling": {"temperature": 0.8}},
    update={"epochs": 2, "minibatches": 2},
)


def batch():
    rng = np.random.default_rng(0)
    rows = [random_segment(rng, vocab=200, longest=20) for _ in range(8)]
    return assemble(
        [episode(str(i), [r], reward=i % 2, group=f"g{i // 4}") for i, r in enumerate(rows)]
    )


def test_old_is_the_samplers_transform_of_the_models_logits():
    learner = Learner(load_policy("builtin:tiny", seed=0), SETTINGS)
    facts = batch()
    old = learner.score(facts).old.logprob
    end = int(facts.offsets[1])
    ids = facts.ids[:end]
    logits = learner.policy.model(ids[None]).logits[0]
    logs, _ = distribution(logits, SETTINGS.policy.sampling.build())
    expected = logs[:-1].gather(1, ids[1:, None])[:, 0]
    mask = facts.action[1:end]
    assert torch.allclose(old[1:end][mask], expected[mask], atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_reward_goes_up_where_it_was_paid(dtype):
    learner = Learner(load_policy("builtin:tiny", seed=0, dtype=dtype), SETTINGS)
    facts = batch()
    credit = assign(facts, SETTINGS)
    before = learner.score(facts).old.logprob
    for _ in range(3):
        learner.update(facts, learner.score(facts), credit, 0.0)
    gain = learner.score(facts).old.logprob - before
    paid = facts.action & facts.success[facts.token_episode]
    unpaid = facts.action & ~facts.success[facts.token_episode]
    assert gain[paid].mean() > 0.1 > -0.1 > gain[unpaid].mean()
    assert learner.version == 3 and learner.steps == 12
