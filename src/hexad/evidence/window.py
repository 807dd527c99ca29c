"""What happened since the last row: sums and counts, never means."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hexad.contract.episode import Episode
from hexad.contract.events import (
    BatchTrained,
    Consumed,
    CriticTrained,
    GroupJudged,
    WorkersSeen,
)
from hexad.contract.mix import labels
from hexad.contract.tally import Tally
from hexad.evidence import metrics, staleness
from hexad.evidence.conduct import CELLS, cell
from hexad.evidence.tallies import tally_json, tally_of

_SHARES = ("ending/", metrics.UNSCORED, staleness.MIX)
"""Beginnings of counts that are told as shares of the finished episodes."""


class Window:
    """Accumulates one batch: counts of episodes and groups, tallies of numbers, seconds."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.tallies: dict[str, Tally] = {}
        self.scalars: dict[str, float] = {}
        self.seconds: Counter[str] = Counter()
        self.roles: dict[str, str] = {}

    def episode(self, episode: Episode) -> None:
        """A finished training episode."""
        self.counts["episodes"] += 1
        self.counts[metrics.FAULTED] += episode.faulted
        self.counts[f"ending/{episode.ending.kind}"] += 1
        self.counts.update(f"mix/generated/{label}" for label in labels(episode))
        self.counts[metrics.VIOLATING] += bool(episode.violations)
        self.counts["refused calls"] += len(episode.refusals)
        self._add(metrics.TURNS, [episode.costs.turns])
        self._add(metrics.TOKENS, [episode.costs.sampled_tokens])
        self._add(metrics.CALLS, [episode.costs.tool_calls])
        if not episode.scored:
            why = None if episode.verdict is None else episode.verdict.unscored
            if why is not None:
                self.counts[f"{metrics.UNSCORED}{why}"] += 1
            return
        self.counts["scored"] += 1
        self.counts["correct"] += episode.verdict is not None and episode.verdict.success
        self.counts[metrics.UNAUTHORISED] += cell(episode) == CELLS[2]
        self.counts["gated"] += episode.gate is not None
        if episode.paid:
            self._add(metrics.SCORE, [sum(reward.value for reward in episode.paid)])
        components: Counter[str] = Counter()
        for reward in episode.rewards:
            components[reward.component] += reward.value  # type: ignore[assignment]
        for name, value in components.items():
            self._add(f"reward/component/{name}", [value])

    def group(self, event: GroupJudged) -> None:
        """A group and its verdicts; one that nobody scored says nothing about signal."""
        self.counts["groups"] += event.kind != "unscored"
        self.counts["groups mixed"] += event.kind == "mixed"
        self.counts["groups signal"] += event.signal

    def trained(self, event: BatchTrained) -> None:
        """A batch became optimiser steps."""
        for kind in ("action", "loss", "train", "forward"):
            self.scalars[f"tokens/{kind}"] = getattr(event, f"{kind}_tokens")
        self.scalars["update/optimizer_steps"] = event.optimizer_steps
        self.roles = dict(event.roles)
        for name, tally in event.tallies.items():
            key = _named(name)
            self.tallies[key] = self.tallies.get(key, Tally()) + tally
        for name, value in event.scalars.items():
            self.scalars[_named(name)] = value

    def consumed(self, event: Consumed) -> None:
        """An asynchronous batch took an episode."""
        self._add(metrics.LAG, [event.lag])
        self._add(metrics.AGE, [event.age])

    def workers(self, event: WorkersSeen) -> None:
        """How the rollout workers did since the last batch."""
        self._add(metrics.BUSY, list(event.busy))
        self._add(metrics.LIVE, list(event.live))
        self.scalars["schedule/waiting"] = event.waiting
        self.scalars["schedule/in_flight"] = event.in_flight
        self.scalars["schedule/workers_lost"] = event.lost

    def criticised(self, event: CriticTrained) -> None:
        """The critic's own steps."""
        self.scalars["critic/optimizer_steps"] = event.steps
        for name, tally in event.tallies.items():
            key = f"critic/{name}"
            self.tallies[key] = self.tallies.get(key, Tally()) + tally

    def row(self) -> dict[str, Any]:
        """The metrics of the batch: a mean of nothing is absent, never 0 or NaN."""
        counts, row = self.counts, dict(self.scalars)
        for key, part, whole in (
            (metrics.SUCCESS, "correct", "scored"),
            (metrics.SCORED, "scored", "episodes"),
            (metrics.FAULTED, metrics.FAULTED, "episodes"),
            (metrics.REFUSED, "refused", "episodes"),
            (metrics.STALE, "stale", "episodes"),
            (metrics.VIOLATING, metrics.VIOLATING, "episodes"),
            (metrics.REFUSED_CALLS, "refused calls", "episodes"),
            (metrics.UNAUTHORISED, metrics.UNAUTHORISED, "scored"),
            (metrics.GATED, "gated", "scored"),
            (metrics.MIXED, "groups mixed", "groups"),
            (metrics.SIGNAL, "groups signal", "groups"),
            *((k, k, "episodes") for k in counts if k.startswith(_SHARES)),
        ):
            if counts[whole]:
                row[key] = counts[part] / counts[whole]
        for key, tally in self.tallies.items():
            if staleness.ours(key):
                row |= staleness.numbers(key, tally)
            elif tally.mean is not None and key.startswith(("reward/", "episode/")):
                row[key] = tally.mean
            elif tally.mean is not None:
                row |= {f"{key}/{name}": value for name, value in tally.summary().items()}
        return row | {f"time/{phase}": seconds for phase, seconds in self.seconds.items()}

    def state(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return {
            "counts": dict(self.counts),
            "tallies": {key: tally_json(tally) for key, tally in self.tallies.items()},
            "scalars": dict(self.scalars),
            "seconds": dict(self.seconds),
            "roles": dict(self.roles),
        }

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Window:
        """The window that ``state`` was taken of."""
        window = cls()
        window.counts, window.seconds = Counter(state["counts"]), Counter(state["seconds"])
        window.tallies = {key: tally_of(value) for key, value in state["tallies"].items()}
        window.scalars, window.roles = dict(state["scalars"]), dict(state["roles"])
        return window

    def _add(self, key: str, values: list[float] | list[int]) -> None:
        self.tallies[key] = self.tallies.get(key, Tally()) + Tally.of(values)


def _named(name: str) -> str:
    return name if "/" in name else f"policy/{name}"
