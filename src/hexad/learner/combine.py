"""The rewards that a batch is credited with: group-relative length, and constraints at a price."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hexad.contract.ending import CENSORED
from hexad.contract.episode import Episode
from hexad.contract.reward import Gate, Reward
from hexad.credit.dual import Dual, Lagrangian, Pid
from hexad.feedback.prices import COST, QUANTITIES, Prices, amount
from hexad.feedback.relative import with_length
from hexad.recipe.axes import FeedbackSpec
from hexad.recipe.process_axis import ConstraintSpec


class Combiner:
    """Makes the final components of a batch's episodes, before anything is normalised.

    The reward is ``(R - sum_i lambda_i C_i) / (1 + sum_i lambda_i)``, the division only for
    constraints that say ``normalise``. Each piece of C is owned by the turn or call that caused
    it. A gated episode has its gate's reward alone. Part of the state registry.
    """

    def __init__(self, feedback: FeedbackSpec) -> None:
        self._spec = feedback
        self._prices = Prices(**feedback.costs.model_dump()) if feedback.costs else Prices()
        self.duals = {name: _dual(spec) for name, spec in feedback.constraints.items()}

    def measure(self, episodes: Iterable[Episode]) -> dict[str, float]:
        """The mean of every constrained quantity over ``episodes``, those not scored too.

        Faulted and cancelled ones are nobody's conduct. Nothing where no episode is left.
        """
        whole = [e for e in episodes if not e.faulted and e.ending.kind not in CENSORED]
        if not whole:
            return {}
        return {
            name: sum(amount(self._pieces(episode, spec.of)) for episode in whole) / len(whole)
            for name, spec in self._spec.constraints.items()
        }

    def step(self, costs: Mapping[str, float]) -> dict[str, float]:
        """Move every multiplier by the batch's mean; what to write down of it."""
        told = {}
        for name, cost in costs.items():
            told[f"constraint/{name}/multiplier"] = self.duals[name].step(cost)
            told[f"constraint/{name}/cost"] = cost
            told[f"constraint/{name}/limit"] = self._spec.constraints[name].limit
        return told

    def __call__(self, episodes: Sequence[Episode], progress: float) -> tuple[Episode, ...]:
        """``episodes`` with their final components, at ``progress``, the budget's used share."""
        length = self._spec.length
        found = tuple(episodes)
        if length is not None and progress >= length.begin:
            found = with_length(found, length.counted)
        return tuple(self._priced(e) for e in found) if self.duals else found

    def state(self) -> dict[str, Any]:
        """The state of every multiplier."""
        return {name: dual.state() for name, dual in self.duals.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken."""
        for name, dual in self.duals.items():
            dual.restore(state[name])

    def _priced(self, episode: Episode) -> Episode:
        if not episode.scored:
            return episode
        specs = self._spec.constraints
        share = 1.0 + sum(self.duals[n].multiplier for n, spec in specs.items() if spec.normalise)
        if episode.gate is not None:
            gate = Gate(episode.gate.reward / share, episode.gate.reason)
            return replace(episode, gate=gate)
        rewards = [Reward(r.component, r.value / share, r.owner) for r in episode.rewards]
        for name, spec in specs.items():
            price = self.duals[name].multiplier / share
            rewards += [
                Reward(f"constraint:{name}", -price * piece.value, piece.owner)
                for piece in self._pieces(episode, spec.of)
            ]
        return replace(episode, rewards=tuple(rewards))

    def _pieces(self, episode: Episode, quantity: str) -> tuple[Reward, ...]:
        """What ``episode`` has of ``quantity``, positive, each piece with its owner."""
        count = self._prices.charges if quantity == COST else QUANTITIES[quantity]
        return count(episode)


def _dual(spec: ConstraintSpec) -> Dual:
    if spec.pid is None:
        assert spec.rate is not None
        return Lagrangian(spec.limit, spec.rate, initial=spec.initial, most=spec.most)
    pid = spec.pid
    return Pid(
        spec.limit,
        (pid.kp, pid.ki, pid.kd),
        (pid.ema_p, pid.ema_d),
        pid.delay,
        initial=spec.initial,
        most=spec.most,
    )
