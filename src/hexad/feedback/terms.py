"""What training adds to the reward of a verdict. Evaluations add nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hexad.contract.digest import digest
from hexad.contract.episode import Episode
from hexad.contract.faults import UserError
from hexad.contract.messages import Message
from hexad.contract.reward import Gate, Reward
from hexad.contract.task import Task
from hexad.feedback.prices import COST, QUANTITIES, Prices, amount
from hexad.feedback.process import Process

VIOLATION = "violation"
EFFORT = "effort"
"""Reasons of a gate."""


@dataclass(frozen=True, slots=True)
class Effort:
    """An effort budget: beyond ``factor * budget``, times ``task.data[per]``, ``reward`` is paid.

    Source: Kimi K3 as contract.md 2.18 tells it; what is ``counted`` is declared.
    """

    budget: float
    factor: float
    counted: str
    per: str | None
    reward: float

    def exceeded(self, task: Task, episode: Episode) -> bool:
        """Whether ``episode`` took more. Raises ``UserError`` where the task has no such number."""
        size = 1.0
        if self.per is not None:
            found = task.data.get(self.per)
            if not isinstance(found, int | float) or not found > 0:
                raise UserError(
                    f"task {task.task_id} has no positive number {self.per!r}",
                    where="feedback.effort.per",
                    fix="name a number of the tasks' data, or use null",
                )
            size = float(found)
        spent = amount(QUANTITIES[self.counted](episode))
        return spent > self.factor * self.budget * size


@dataclass(frozen=True, slots=True)
class Terms:
    """Process signals, prices, an effort budget, and the reward of a violation (``None``: none)."""

    processes: tuple[Process, ...] = ()
    prices: Prices | None = None
    effort: Effort | None = None
    violation: float | None = None

    @property
    def digest(self) -> str | None:
        """Digest of all of it; ``None`` where there is nothing."""
        if self == Terms():
            return None
        signals = [process.digest for process in self.processes]
        prices, effort = self.prices, self.effort
        priced = None if prices is None else [prices.turn, prices.call, dict(prices.tools)]
        limits = effort and [
            effort.budget,
            effort.factor,
            effort.counted,
            effort.per,
            effort.reward,
        ]
        return digest([signals, priced, limits, self.violation])

    @property
    def lines(self) -> list[str]:
        """What is added, for people: a line each."""
        shown = [process.line for process in self.processes]
        if self.violation is not None:
            shown.append(f"gate: an episode with a violation is paid {self.violation:g}, no more")
        if (effort := self.effort) is not None:
            per = f" for each of {effort.per}" if effort.per else ""
            most = f"{effort.factor * effort.budget:g} {effort.counted}{per}"
            shown.append(f"effort: an episode of more than {most} is paid {effort.reward:g}")
        return shown

    def apply(self, task: Task, episode: Episode, transcript: tuple[Message, ...]) -> Episode:
        """The scored ``episode`` with its further components, its signals and its gate.

        Raises ``VerifierFault`` for a signal that fails.
        """
        signals, rewards = [], list(episode.rewards)
        for process in self.processes:
            levels = process.levels(task, transcript)
            signals.append(levels)
            rewards += process.rewards(episode, levels)
        if self.prices is not None:
            rewards += [Reward(COST, -c.value, c.owner) for c in self.prices.charges(episode)]
        gate = self._gate(task, episode)
        return replace(episode, rewards=tuple(rewards), signals=tuple(signals), gate=gate)

    def _gate(self, task: Task, episode: Episode) -> Gate | None:
        if self.violation is not None and episode.violations:
            return Gate(self.violation, VIOLATION)
        if self.effort is not None and self.effort.exceeded(task, episode):
            return Gate(self.effort.reward, EFFORT)
        return None
