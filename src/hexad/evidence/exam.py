"""What a set of evaluation episodes says: success of the scored ones, everything else apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hexad.contract.episode import Episode
from hexad.evidence.conduct import CELLS, Conduct, cell
from hexad.evidence.intervals import wilson
from hexad.evidence.tallies import exact
from hexad.feedback.prices import Prices, amount

Summary = Mapping[str, float | int]
"""Count, mean, extrema and exact quantiles."""


@dataclass(frozen=True, slots=True)
class Rate:
    """``correct`` of ``scored`` with the 95 % Wilson interval; ``None`` when nothing was scored.

    Of episodes ``correct`` counts those without a violation: what was got by asking for what it may
    not do is no success.
    """

    scored: int
    correct: int
    success: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, correct: int, scored: int, tasks: int | None = None) -> Rate:
        """The rate and its interval.

        ``tasks``, where they had several attempts each: those are not independent, so the interval
        counts tasks. It is too wide rather than too narrow.
        """
        units = scored if tasks is None else tasks
        interval = wilson(correct * units / scored, units) if scored else None
        if interval is None:
            return cls(scored, correct, None, None, None)
        return cls(scored, correct, correct / scored, *interval)

    def row(self) -> dict[str, float | int]:
        """JSON; rates that do not exist are absent."""
        values = {"success": self.success, "low": self.low, "high": self.high}
        known = {key: value for key, value in values.items() if value is not None}
        return {"scored": self.scored, "correct": self.correct, **known}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A closed-loop evaluation. Faulted and unscored episodes are in no rate; they are listed.

    ``verdicts`` and ``endings`` count all episodes; ``faults`` counts boundaries of the faults
    that ended an episode; ``conduct`` covers all of them. ``turns``, ``tokens``, ``tool_calls`` and
    ``costs`` (by the recipe's prices, empty without any) are per episode that did not fault.
    ``strata`` breaks success down by the environment's own difficulty; ``outcomes`` is
    ``(authorised successes, scored)`` of every task.
    """

    split: str
    version: int
    episodes: int
    rate: Rate
    verdicts: Mapping[str, int]
    endings: Mapping[str, int]
    faults: Mapping[str, int]
    turns: Summary
    tokens: Summary
    tool_calls: Summary
    strata: Mapping[str, Rate]
    conduct: Mapping[str, Any]
    costs: Summary
    outcomes: Mapping[str, tuple[int, int]]

    @property
    def success(self) -> float | None:
        """Share of scored episodes that were correct, and asked for nothing they may not do."""
        return self.rate.success

    def row(self) -> dict[str, Any]:
        """JSON for ``evaluation.jsonl``."""
        costs = {
            "turns": self.turns,
            "sampled_tokens": self.tokens,
            "tool_calls": self.tool_calls,
            "cost": self.costs,
        }
        return {
            "step": self.version,
            "split": self.split,
            "episodes": self.episodes,
            **self.rate.row(),
            "unscored": self.episodes - self.rate.scored,
            "verdicts": dict(self.verdicts),
            "endings": dict(self.endings),
            "faults": dict(self.faults),
            "violations": self.conduct["violating"],
            "unauthorised": self.conduct["cells"].get(CELLS[2], 0),
            "refused": self.conduct["refused"],
            **{key: dict(spent) for key, spent in costs.items() if spent["count"]},
            "strata": {name: rate.row() for name, rate in self.strata.items()},
            "outcomes": {task: list(pair) for task, pair in self.outcomes.items()},
        }


def tabulate(
    split: str,
    version: int,
    episodes: Sequence[Episode],
    prices: Prices | None = None,
) -> Evaluation:
    """Count ``episodes``."""
    whole = [episode for episode in episodes if not episode.faulted]
    named: dict[str, list[Episode]] = {}
    for episode in episodes:
        if episode.stratum:
            named.setdefault(episode.stratum, []).append(episode)
    return Evaluation(
        split=split,
        version=version,
        episodes=len(episodes),
        rate=_rate(episodes),
        verdicts=Counter(_verdict(episode) for episode in episodes),
        endings=Counter(str(episode.ending.kind) for episode in episodes),
        faults=Counter(e.faults[-1].boundary for e in episodes if e.faulted and e.faults),
        turns=exact([episode.costs.turns for episode in whole]),
        tokens=exact([episode.costs.sampled_tokens for episode in whole]),
        tool_calls=exact([episode.costs.tool_calls for episode in whole]),
        conduct=Conduct.of(episodes).state(),
        costs=exact([amount(prices.charges(e)) for e in whole] if prices is not None else []),
        strata={name: _rate(members) for name, members in sorted(named.items())},
        outcomes=_outcomes(episodes),
    )


def _rate(episodes: Sequence[Episode]) -> Rate:
    tried = _outcomes(episodes).values()
    correct, scored = (sum(pair[i] for pair in tried) for i in (0, 1))
    return Rate.of(correct, scored, sum(n > 0 for _, n in tried))


def _outcomes(episodes: Sequence[Episode]) -> dict[str, tuple[int, int]]:
    """``(authorised successes, scored)`` attempts by task, in order of the first attempt."""
    found: dict[str, tuple[int, int]] = {}
    for episode in episodes:
        correct, scored = found.get(episode.task_id, (0, 0))
        right = episode.scored and cell(episode) == CELLS[0]
        found[episode.task_id] = correct + right, scored + episode.scored
    return found


def _verdict(episode: Episode) -> str:
    return "not_judged" if episode.verdict is None else str(episode.verdict.status)
