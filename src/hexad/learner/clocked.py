"""The estimators that run on the clock, by the recipe's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hexad.contract.faults import ContractViolation
from hexad.credit.baselines import group_mean
from hexad.credit.clock import Clock
from hexad.credit.continuation import continuation_advantage
from hexad.credit.gae import adaptive, gae, n_step
from hexad.credit.group_relative import Deviation
from hexad.credit.reward_to_go import less, reward_to_go
from hexad.credit.step_groups import gigpo, turn_relative
from hexad.credit.values import Estimate, at_decision
from hexad.credit.vtrace import vtrace
from hexad.learner.batch import Batch, Scores
from hexad.recipe.credit_axis import CreditSpec
from hexad.update import ratio


def _deviation(spec: CreditSpec) -> Deviation | None:
    """The standard deviation that the recipe divides by, if any."""
    if spec.std is None:
        return None
    return Deviation(spec.std, 1e-6 if spec.threshold is None else spec.threshold)


Values = Mapping[str, Sequence[float]]
"""Episode id -> a number for each of its turns."""


@dataclass(frozen=True, slots=True)
class Question:
    """What an estimator on the clock is asked: facts, values, and what was said of them.

    ``values`` holds the continued value of the state that each turn began in, by episode id.
    """

    batch: Batch
    scores: Scores
    clock: Clock
    spec: CreditSpec
    values: Values = field(default_factory=dict)


def _gae(asked: Question) -> Estimate:
    spec, steps = asked.spec, asked.clock
    assert asked.scores.value is not None
    policy: float | Tensor | None = spec.lambda_policy
    if spec.alpha is not None:
        policy = adaptive(steps, alpha=spec.alpha)
    assert policy is not None and spec.lambda_critic is not None
    value = asked.scores.value.value
    return gae(steps, value, gamma=spec.gamma, policy=policy, critic=spec.lambda_critic)


def _vtrace(asked: Question) -> Estimate:
    spec, steps, scores = asked.spec, asked.clock, asked.scores
    assert scores.value is not None and scores.old is not None
    assert spec.lambda_policy is not None and spec.rho_bar is not None and spec.c_bar is not None
    log = ratio.proximal(
        old=scores.old.logprob, behaviour=asked.batch.behaviour, mask=steps.step >= 0
    )
    return vtrace(
        steps,
        scores.value.value,
        steps.sum(log),
        gamma=spec.gamma,
        lam=spec.lambda_policy,
        bars=(spec.rho_bar, spec.c_bar),
    )


def _gigpo(asked: Question) -> Estimate:
    spec, steps = asked.spec, asked.clock
    assert spec.omega is not None
    advantage = gigpo(
        steps,
        asked.batch.episode_group,
        _states(asked.batch, steps),
        gamma=spec.gamma,
        omega=spec.omega,
        by=_deviation(spec),
    )
    return Estimate(advantage, advantage)


def _states(batch: Batch, steps: Clock) -> Tensor:
    """int64 [M]: a number for every state that a turn began in.

    Raises ``ContractViolation`` for an episode whose environment names no states.
    """
    codes: dict[str, int] = {}
    turns = batch.turn[steps.first].tolist()
    found = []
    for episode, turn in zip(steps.episode.tolist(), turns, strict=True):
        known = batch.episodes[episode]
        if turn >= len(known.states):
            raise ContractViolation(
                f"estimator gigpo: episode {known.episode_id} names no state for turn {turn}; its "
                f"environment {known.environment!r} needs a state_digest"
            )
        found.append(codes.setdefault(known.states[turn], len(codes)))
    return torch.tensor(found, dtype=torch.int64)


def _to_go(asked: Question) -> Estimate:
    steps, spec = asked.clock, asked.spec
    returns = reward_to_go(steps, gamma=spec.gamma)
    if spec.baseline == "group":
        group = asked.batch.episode_group
        returns = less(steps, returns, group_mean(steps.scores(), steps.lengths > 0, group))
    return Estimate(returns, returns)


def _turn_group(asked: Question) -> Estimate:
    spec, group = asked.spec, asked.batch.episode_group
    advantage = turn_relative(asked.clock, group, gamma=spec.gamma, by=_deviation(spec))
    return Estimate(advantage, advantage)


def _n_step(asked: Question) -> Estimate:
    spec, steps = asked.spec, asked.clock
    assert asked.scores.value is not None and spec.steps is not None
    value = asked.scores.value.value
    target = n_step(steps, value, gamma=spec.gamma, n=spec.steps)
    return Estimate(target - at_decision(steps, value), target)


def _vine(asked: Question) -> Estimate:
    batch, steps = asked.batch, asked.clock
    turns = batch.turn[steps.first].tolist()
    held = []
    for episode, turn in zip(steps.episode.tolist(), turns, strict=True):
        name = batch.episodes[episode].episode_id
        if turn >= len(asked.values.get(name, ())):
            raise ContractViolation(f"estimator vine: turn {turn} of {name} was not continued")
        held.append(asked.values[name][turn])
    value = torch.tensor(held, dtype=torch.float64)
    advantage = continuation_advantage(steps, value, gamma=asked.spec.gamma)
    return Estimate(advantage, advantage)


CLOCKED: dict[str, Callable[[Question], Estimate]] = {
    "gae": _gae,
    "n_step": _n_step,
    "vtrace": _vtrace,
    "reinforce_pp": _to_go,
    "turn_group": _turn_group,
    "gigpo": _gigpo,
    "vine": _vine,
}
"""Estimators on the clock: name -> the function."""
