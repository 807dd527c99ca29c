"""A method, a surrogate, an estimator and a reward of your own, each with its record.

    cd examples && hexad train own_method.yaml

Names of the form ``package.module:object`` stand wherever a built-in's name does. What is yours is
validated like what is ours: a number that your rule requires and the recipe lacks is an error with
the key, and so is one that nothing reads.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hexad.contract.episode import Episode
from hexad.contract.reward import Reward
from hexad.contract.verdict import Verdict
from hexad.recipe.legal import Estimator, EstimatorRule, Surrogate, SurrogateRule
from hexad.recipe.methods import Assumptions, Method


def asymmetric(log_ratio: Tensor, current: Tensor, advantage: Tensor, *, tau: float) -> Tensor:
    """``-rho A`` for A > 0, ``-tau rho A`` for A < 0: failures weigh ``tau`` as much."""
    weight = torch.where(advantage < 0, tau, 1.0)
    return -(log_ratio.clamp(-20.0, 20.0).exp() * weight * advantage)


SURROGATE = Surrogate(SurrogateRule("update", required=("tau",)), asymmetric)


def best_of(score: Tensor, scored: Tensor, group: Tensor) -> Tensor:
    """``R_i - max R`` of the group, plus the group's mean distance: the best attempt leads."""
    found = torch.zeros_like(score)
    for number in torch.unique(group):
        mine = scored & (group == number)
        if bool(mine.any()):
            behind = score[mine] - score[mine].max()
            found[mine] = behind - behind.mean()
    return found


ESTIMATOR = Estimator(EstimatorRule(group=2), best_of)


class CallsCost:
    """Reward mapping: 1 for a correct answer, and a component ``calls`` of -0.01 a tool call."""

    version = "calls-cost/1"

    def rewards(self, verdict: Verdict, episode: Episode) -> tuple[Reward, ...]:
        """Raw components; the recipe may weigh them with ``feedback.weights``."""
        if not verdict.scored:
            return ()
        cost = Reward("calls", -0.01 * episode.costs.tool_calls)
        return (Reward("task", 1.0 if verdict.success else 0.0), cost)


METHOD = Method(
    name="best_leads",
    title="The best attempt leads",
    equation="A_i = (R_i - max R) - mean of it;  J = (1/N) sum_i (1/L_i) sum_t w(A_i) rho_t A_i",
    source="an example, by nobody",
    atom="group",
    assumptions=Assumptions(min_group_size=2),
    needs={"logprob": True, "reward": True},
    axes={
        "feedback": {"source": "verifier", "mapping": "own_method:CallsCost"},
        "data": {"regime": "online", "origin": "policy"},
        "action": {"denominator": "episode"},
        "credit": {"estimator": "own_method:ESTIMATOR"},
        "update": {"surrogate": "own_method:SURROGATE", "tau": 0.5},
    },
    functions={"credit": "own_method:best_of", "surrogate": "own_method:asymmetric"},
)
