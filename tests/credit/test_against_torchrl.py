"""Our recurrences beside torchrl's, on random batches of equal rows without observations.

torchrl rounds discounts to float32, hence the tolerance.
"""

import pytest
import torch
from torchrl.objectives.value.functional import (
    generalized_advantage_estimate,
    vtrace_advantage_estimate,
)

from hexad.credit.clock import Tokens, clock
from hexad.credit.gae import gae
from hexad.credit.rewards import Owner, Rewards
from hexad.credit.vtrace import vtrace

ROWS, STEPS = 7, 12


def batch(seed, truncated):
    """Our flat form and torchrl's [rows, steps, 1] of the same facts."""
    generator = torch.Generator().manual_seed(seed)
    value = torch.rand(ROWS, STEPS + 1, dtype=torch.float64, generator=generator)
    reward = torch.rand(ROWS, STEPS, dtype=torch.float64, generator=generator)
    ratio = torch.rand(ROWS, STEPS, dtype=torch.float64, generator=generator) * 2 - 1
    # A row: the prompt token, then the actions. V(s_k) stands on token k, V(s_K) on the last.
    width = STEPS + 1
    action = torch.ones(ROWS, width, dtype=torch.bool)
    action[:, 0] = False
    cut = torch.full((ROWS,), truncated)
    tokens = Tokens(
        action=action.reshape(-1),
        turn=torch.zeros(ROWS * width, dtype=torch.int64),
        offsets=torch.arange(ROWS + 1) * width,
        row_episode=torch.arange(ROWS),
        terminated=~cut,
        truncated=cut,
        final=cut,
    )
    places = (torch.arange(ROWS)[:, None] * width + torch.arange(1, width)).reshape(-1)
    episode = torch.arange(ROWS).repeat_interleave(STEPS)
    kind = torch.full_like(places, int(Owner.TOKEN))
    steps = clock(tokens, Rewards(reward.reshape(-1), episode, kind, places), kind="token")
    done = torch.zeros(ROWS, STEPS, 1, dtype=torch.bool)
    done[:, -1] = True
    theirs = {
        "state_value": value[:, :-1, None],
        "next_state_value": value[:, 1:, None],
        "reward": reward[..., None],
        "done": done,
        "terminated": done if not truncated else torch.zeros_like(done),
    }
    return steps, value.reshape(-1), ratio, theirs


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.99, 0.95), (0.9, 0.0)])
def test_gae_equals_torchrl(truncated, gamma, lam):
    steps, value, _, theirs = batch(1, truncated)
    found = gae(steps, value, gamma=gamma, policy=lam, critic=lam)
    advantage, target = generalized_advantage_estimate(gamma, lam, **theirs)
    torch.testing.assert_close(found.advantage, advantage.reshape(-1), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.target, target.reshape(-1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("truncated", [False, True])
def test_vtrace_equals_torchrl(truncated):
    steps, value, ratio, theirs = batch(2, truncated)
    found = vtrace(steps, value, ratio.reshape(-1), gamma=0.97, lam=1.0, bars=(1.2, 0.9))
    advantage, target = vtrace_advantage_estimate(
        0.97,
        ratio[..., None],
        torch.zeros_like(ratio)[..., None],
        **theirs,
        rho_thresh=torch.tensor(1.2, dtype=torch.float64),
        c_thresh=torch.tensor(0.9, dtype=torch.float64),
    )
    torch.testing.assert_close(found.target, target.reshape(-1), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.advantage, advantage.reshape(-1), rtol=1e-6, atol=1e-6)
