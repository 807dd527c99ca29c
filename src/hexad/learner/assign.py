"""Credit assignment: which decisions a batch's rewards came from, by the recipe's estimator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hexad.contract.faults import ContractViolation
from hexad.contract.lookup import load_object
from hexad.credit import baselines
from hexad.credit.clock import Clock
from hexad.credit.gae import gae
from hexad.credit.group_relative import dr_grpo, grpo, reinforce, rloo, usable
from hexad.credit.shaping import shaped
from hexad.credit.whiten import whiten
from hexad.learner.baselines import Memory, memory
from hexad.learner.batch import Batch, Credit, Scores
from hexad.learner.clocked import CLOCKED, Question, Values
from hexad.learner.potential import held
from hexad.learner.steps import steps_of
from hexad.recipe import legal
from hexad.recipe.axes import Recipe
from hexad.recipe.credit_axis import CreditSpec

Episodic = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``(score [E], scored [E], group [E]) -> advantage [E]``."""


def _none(score: Tensor, scored: Tensor, group: Tensor) -> Tensor:
    return torch.zeros_like(score)


def _reinforce(spec: CreditSpec) -> Episodic:
    return partial(reinforce, baseline="batch" if spec.baseline == "batch" else "none")


def _grpo(spec: CreditSpec) -> Episodic:
    threshold = 1e-6 if spec.threshold is None else spec.threshold
    return partial(grpo, std=spec.std or "population", threshold=threshold)


EPISODIC: dict[str, Callable[[CreditSpec], Episodic]] = {
    "none": lambda spec: _none,
    "reinforce": _reinforce,
    "rloo": lambda spec: rloo,
    "grpo": _grpo,
    "dr_grpo": lambda spec: dr_grpo,
}
"""Estimators of one number an episode: name -> the function with its options bound."""


class Assigner:
    """Gives every action token of a batch its advantage, and every clock step its critic target.

    A truncated episode that ``credit.truncation: mask`` leaves out of the loss is still compared
    with. Part of the state registry: a baseline may remember tasks.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.spec = recipe, recipe.credit
        self.rule = legal.estimator(self.spec.estimator)
        self.memory: Memory | None = memory(self.spec)
        feedback = recipe.feedback
        self.levels = {
            name: feedback.weights.get(name, 1.0)
            for name, spec in feedback.process.items()
            if spec.paid == "potential"
        }
        self.potential: Callable[[Batch], Any] | None = None
        if self.spec.shaping is not None:
            self.potential = load_object(self.spec.shaping, where="credit.shaping")

    def wanted(self, batch: Batch) -> Tensor | None:
        """bool [T]: tokens whose prefix needs a value; ``None`` without a critic."""
        if not self.rule.critic:
            return None
        steps = self._clock(batch, None)
        wanted = torch.zeros_like(batch.action)
        wanted[steps.decision] = True
        wanted[steps.successor[steps.successor >= 0]] = True
        return wanted

    def __call__(
        self,
        batch: Batch,
        scores: Scores,
        penalty: Tensor | None = None,
        *,
        greedy: Mapping[str, float] | None = None,
        values: Values | None = None,
        pretrain: bool = False,
    ) -> Credit:
        """Credit of ``batch``. ``penalty`` float64 [T] is taken off each action's reward (KL);
        ``greedy`` is the score of a greedy rollout by group id, ``values`` the value of the state
        that each turn began in by episode id.

        With ``pretrain`` the targets are Monte Carlo returns. Raises ``ContractViolation`` when the
        estimator reads what was not scored.
        """
        if self.rule.critic and scores.value is None:
            raise ContractViolation(f"estimator {self.spec.estimator}: the batch has no values")
        counted = self._counted(batch)
        on_clock = not self.rule.episode or self.spec.whiten is not None
        steps = self._clock(batch, penalty) if on_clock else None
        target = None
        if self.rule.episode:
            advantage = self._spread(batch, self._episodic(batch, scores, penalty, greedy), counted)
        else:
            assert steps is not None
            found = self._own(CLOCKED)(Question(batch, scores, steps, self.spec, values or {}))
            advantage = steps.spread(found.advantage)
            if scores.value is not None and self.rule.critic:
                goal = found.target
                if pretrain:
                    value, gamma = scores.value.value, self.spec.gamma
                    goal = gae(steps, value, gamma=gamma, policy=1.0, critic=1.0).target
                target = torch.full((len(batch.ids),), torch.nan, dtype=torch.float64)
                target[steps.first] = goal
        if self.spec.whiten is not None and steps is not None:
            advantage = self._whitened(batch, steps, advantage)
        return Credit(advantage, counted, target, steps)

    def state(self) -> dict[str, Any]:
        """What the baseline remembers."""
        return self.memory.state() if self.memory is not None else {}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken."""
        if self.memory is not None:
            self.memory.restore(state)

    def _episodic(
        self,
        batch: Batch,
        scores: Scores,
        penalty: Tensor | None,
        greedy: Mapping[str, float] | None,
    ) -> Tensor:
        score = batch.score
        if penalty is not None:
            taken = torch.where(batch.action, penalty, 0.0)
            score = score - torch.zeros_like(score).index_add(0, batch.token_episode, taken)
        if self.spec.baseline == "greedy":
            if greedy is None:
                raise ContractViolation("baseline greedy: the batch has no greedy rollouts")
            held = [greedy.get(episode.group_id, math.nan) for episode in batch.episodes]
            other = torch.tensor(held, dtype=torch.float64)
            beside = baselines.greedy(score, batch.scored, batch.episode_group, other)
            return baselines.advantage(score, batch.scored, beside)
        if self.memory is not None:
            return baselines.advantage(score, batch.scored, self.memory.read(batch, scores))
        found: Tensor = self._own(EPISODIC, self.spec)(score, batch.scored, batch.episode_group)
        return found

    def _own(self, builtin: Mapping[str, Any], *options: CreditSpec) -> Callable[..., Any]:
        """The estimator's function: a built-in with its options, or that of user code."""
        name = self.spec.estimator
        if ":" in name:
            function: Callable[..., Any] = legal.own(
                name, legal.Estimator, "credit.estimator"
            ).function
            return function
        return builtin[name](*options) if options else builtin[name]  # type: ignore[no-any-return]

    def _counted(self, batch: Batch) -> Tensor:
        """bool [E]: in the loss and its denominators."""
        if self.spec.estimator == "none":
            return ~batch.faulted
        counted = usable(batch.score, batch.scored)
        return counted & ~batch.truncated if self.spec.truncation == "mask" else counted

    def _spread(self, batch: Batch, advantage: Tensor, counted: Tensor) -> Tensor:
        inside = batch.action & counted[batch.token_episode]
        return torch.where(inside, advantage[batch.token_episode], 0.0)

    def _whitened(self, batch: Batch, steps: Clock, advantage: Tensor) -> Tensor:
        group = batch.episode_group if self.spec.whiten == "group" else None
        values, std = advantage[steps.first], self.spec.std or "population"
        return steps.spread(whiten(steps, values, group=group, std=std))

    def _clock(self, batch: Batch, penalty: Tensor | None) -> Clock:
        used, weights = self._counted(batch), self.recipe.feedback.weights
        terminal = self.spec.truncation == "terminal"
        steps = steps_of(batch, self.spec.clock, used, weights, terminal=terminal)
        if penalty is not None:
            steps = steps.rewarded(steps.reward - steps.sum(penalty))
        gamma, bootstrap = self.spec.gamma, self.rule.critic
        if self.levels:
            potential = held(batch, self.levels)
            steps = shaped(steps, potential, gamma=gamma, bootstrap=bootstrap)
        return steps if self.potential is None else self._shaped(batch, steps)

    def _shaped(self, batch: Batch, steps: Clock) -> Clock:
        assert self.potential is not None
        potential = self.potential(batch)
        if not isinstance(potential, Tensor) or potential.shape != batch.action.shape:
            raise ContractViolation(f"{self.spec.shaping} must return one potential a token")
        gamma, bootstrap = self.spec.gamma, self.rule.critic
        return shaped(steps, potential.double(), gamma=gamma, bootstrap=bootstrap)
