"""The eight-stage funnel: from sampled tasks to optimiser updates, with a count and a reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hexad.contract.episode import Episode
from hexad.contract.reasons import Reason
from hexad.evidence.books import plain

GATES = frozenset({Reason.STALE_VERSION, Reason.ORPHAN_VERSION})
"""Reasons of freshness and ratio gates; every other reason makes an episode invalid."""


@dataclass(slots=True)
class Funnel:
    """Cumulative counts of training episodes; auxiliary rollouts are not in it."""

    tasks: int = 0
    started: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    """Episodes by how they ended: completed, truncated, failed, censored."""
    endings: Counter[str] = field(default_factory=Counter)
    """The same episodes by the kind of their ending."""
    unrewarded: Counter[str] = field(default_factory=Counter)
    """Episodes without a score, by the verdict's status; ``not_judged`` without a verdict."""
    invalid: Counter[str] = field(default_factory=Counter)
    """Episodes refused by admission, by first reason."""
    gated: Counter[str] = field(default_factory=Counter)
    """Episodes refused by a gate, by first reason."""
    action_tokens: int = 0
    loss_tokens: int = 0
    updates: int = 0

    def end(self, episode: Episode) -> None:
        """Count a finished training episode."""
        self.ended[outcome(episode)] += 1
        self.endings[str(episode.ending.kind)] += 1
        if not episode.scored:
            status = "not_judged" if episode.verdict is None else str(episode.verdict.status)
            self.unrewarded[status] += 1

    def refuse(self, reasons: tuple[str, ...]) -> None:
        """Count a refused episode: by a gate only if nothing but gates objected."""
        invalid = [reason for reason in reasons if reason not in GATES]
        if invalid:
            self.invalid[invalid[0]] += 1
        else:
            self.gated[reasons[0]] += 1

    def row(self) -> dict[str, Any]:
        """The eight stages in order, as JSON. ``lost`` says why the stage is smaller."""
        ended = self.ended.total()
        valid = ended - self.invalid.total()
        return {
            "tasks": self.tasks,
            "started": self.started,
            "ended": {"count": ended, **self.ended, "kinds": dict(self.endings)},
            "rewarded": {
                "count": ended - self.unrewarded.total(),
                "lost": dict(self.unrewarded),
            },
            "valid": {"count": valid, "lost": dict(self.invalid)},
            "accepted": {"count": valid - self.gated.total(), "lost": dict(self.gated)},
            "tokens": {"action": self.action_tokens, "loss": self.loss_tokens},
            "updates": self.updates,
        }

    def state(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return plain(self)

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Funnel:
        """The funnel that ``state`` was taken of."""
        counted = ("ended", "endings", "unrewarded", "invalid", "gated")
        return cls(**{**state, **{key: Counter(state[key]) for key in counted}})


def outcome(episode: Episode) -> str:
    """completed (by the environment's rule), truncated, failed (a fault) or censored."""
    if episode.faulted:
        return "failed"
    if episode.ending.truncated:
        return "truncated"
    return "completed" if episode.ending.terminated else "censored"
