"""How well a reward model ranks: pairs of attempts at tasks that it was not trained on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hexad.contract.episode import Episode
from hexad.evidence.evaluate import Place, Question, attempts, booked
from hexad.evidence.exam import Rate, tabulate
from hexad.feedback import pairs
from hexad.rollout.world import World

Rewards = Callable[[Sequence[Episode]], list[float]]
"""Episodes to one number each, NaN for one without an action."""
MEASURE = "pairs"
"""What ``success`` is of in such a row: pairs ranked right."""
_RATE = ("scored", "correct", "success", "low", "high", "outcomes")


@dataclass(frozen=True, slots=True)
class Ranking:
    """``rewards`` is asked about ``size`` attempts at each task, paired by ``rule``."""

    rewards: Rewards
    rule: pairs.Rule
    size: int


def rank(question: Question, world: World, ranking: Ranking, place: Place) -> dict[str, Any]:
    """Try the tasks, pair the attempts by the verdicts of ``world.feedback``, and add a row.

    ``success`` is the share of pairs whose chosen side has the higher reward, with its interval.
    ``cut`` is the reward that parts right from wrong best (:func:`cut`), absent where one of them
    is missing, and ``agreement`` the share of scored episodes on their own side of it.
    """
    played = attempts(question, world, ranking.size, place)
    made, _ = pairs.make(played.episodes, ranking.rule)
    judged = [e for e in played.episodes if e.scored and e.action_count]
    rewards = dict(zip((e.episode_id for e in judged), _asked(ranking, judged), strict=True))
    won = [rewards[p.chosen.episode_id] > rewards[p.rejected.episode_id] for p in made]
    rate = Rate.of(sum(won), len(won))
    right = [e.verdict is not None and e.verdict.success for e in judged]
    split, version = str(question.split), question.version
    counted = tabulate(split, version, played.episodes, world.prices).row()
    row: dict[str, Any] = {k: v for k, v in counted.items() if k not in _RATE}
    row |= rate.row() | {"measure": MEASURE}
    found = cut(list(rewards.values()), right)
    if found is not None:
        agreed = sum((r > found) == good for r, good in zip(rewards.values(), right, strict=True))
        row |= {"cut": found, "agreement": Rate.of(agreed, len(judged)).row()}
    booked(question, world, (row, rate), played, place)
    return row


def cut(rewards: Sequence[float], right: Sequence[bool]) -> float | None:
    """The cut of highest balanced accuracy, the lowest of equals; ``None`` without both kinds.

    Balanced accuracy is the mean of the shares of right ones above it and of wrong ones below.
    """
    good, bad = sum(right), len(right) - sum(right)
    if not good or not bad:
        return None
    order = sorted(zip(rewards, right, strict=True))
    best, found, above, below = -math.inf, None, good, 0
    for (low, was), (high, _) in pairwise(order):
        above, below = above - was, below + (not was)
        accuracy = above / good + below / bad
        if high > low and accuracy > best:
            best, found = accuracy, 0.5 * (low + high)
    return found


def _asked(ranking: Ranking, episodes: Sequence[Episode]) -> list[float]:
    return ranking.rewards(episodes) if episodes else []
