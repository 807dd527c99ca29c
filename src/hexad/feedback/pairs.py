"""Preference pairs: made of episodes by a declared rule, never by their order or their text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hexad.contract.episode import Episode

CHOSEN, REJECTED = 0, 1
"""Place of a side in the group that is the pair."""


@dataclass(frozen=True, slots=True)
class Pair:
    """``chosen`` is better than ``rejected`` at one task from one initial state.

    ``source`` names the rule or the data that says so; ``margin`` is the difference of their
    scores, NaN where nobody scored them.
    """

    chosen: Episode
    rejected: Episode
    source: str
    margin: float = math.nan

    def sides(self, name: str) -> tuple[Episode, Episode]:
        """Both episodes as the group ``name``: the chosen one is member 0, the other member 1."""
        sides = ((self.chosen, CHOSEN), (self.rejected, REJECTED))
        chosen, rejected = (replace(e, group_id=name, member=place) for e, place in sides)
        return chosen, rejected


@dataclass(slots=True)
class Refused:
    """Why episodes or candidates made no pair, by reason; ``ties`` are groups without a gap."""

    reasons: Counter[str] = field(default_factory=Counter)
    ties: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """How pairs are made of one group. ``gap``: least difference of scores; ``most``: pairs a task.

    ``weights`` are those of reward components, as in the score that training would use.
    """

    name: str
    gap: float = 0.0
    most: int = 1
    weights: Mapping[str, float] = field(default_factory=dict)


Candidates = list[tuple[Episode, Episode]]


def make(episodes: Sequence[Episode], rule: Rule) -> tuple[list[Pair], Refused]:
    """Pairs of ``episodes``, group by group in order of appearance, and what made none.

    Every episode is in one pair at most. An episode that faulted or was not scored is in none; a
    truncated one never wins, and two sides of equal tokens are no pair. The sides of a pair begin
    in one state: of a group with several, only members that share the first one's are used.
    """
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode.group_id, []).append(episode)
    refused, found = Refused(), []
    for members in groups.values():
        usable = _usable(members, refused)
        pairs = _matched(RULES[rule.name](usable, rule), rule, refused) if usable else []
        refused.ties += not pairs and len(usable) > 1
        found += pairs
    return found, refused


def labelled(episodes: Sequence[Episode], refused: Refused) -> list[Episode]:
    """Single episodes for KTO: a correct one is desirable (member 0), any other is not (member 1).

    Each is a group of its own. A truncated episode may be undesirable only.
    """
    made = []
    for episode in _usable(episodes, refused, together=False):
        good = episode.verdict is not None and episode.verdict.success
        if good and episode.ending.truncated:
            refused.reasons["truncated_winner"] += 1
            continue
        place = CHOSEN if good else REJECTED
        made.append(replace(episode, group_id=episode.episode_id, member=place))
    return made


def correct(episodes: Sequence[Episode], refused: Refused) -> list[Episode]:
    """Rejection sampling: the episodes that a verifier found correct; truncated ones never are."""
    usable = _usable(episodes, refused, together=False)
    won = [e for e in usable if e.verdict is not None and e.verdict.success]
    refused.reasons["wrong"] += len(usable) - len(won)
    refused.reasons["truncated_winner"] += sum(e.ending.truncated for e in won)
    return [e for e in won if not e.ending.truncated]


def best(
    episodes: Sequence[Episode], refused: Refused, weights: Mapping[str, float]
) -> list[Episode]:
    """Best-of-N: of every group the correct episode of highest score, the shortest of equals."""
    kept: dict[str, Episode] = {}
    for episode in correct(episodes, refused):
        held = kept.get(episode.group_id)
        if held is None or _rank(episode, weights) < _rank(held, weights):
            kept[episode.group_id] = episode
    return list(kept.values())


def _rank(episode: Episode, weights: Mapping[str, float]) -> tuple[float, int, int]:
    return -episode.score(weights), episode.action_count, episode.member


def _usable(
    members: Sequence[Episode], refused: Refused, *, together: bool = True
) -> list[Episode]:
    reasons = refused.reasons
    used: list[Episode] = []
    for episode in members:
        if episode.faulted:
            reasons["faulted"] += 1
        elif not episode.scored or not episode.rewards:
            reasons["unscored"] += 1
        elif together and used and episode.initial_state != used[0].initial_state:
            reasons["other_initial_state"] += 1
        else:
            used.append(episode)
    return used


def _matched(candidates: Candidates, rule: Rule, refused: Refused) -> list[Pair]:
    """At most ``rule.most`` pairs, in the order of ``candidates``, each episode once."""
    taken: set[str] = set()
    found: list[Pair] = []
    for chosen, rejected in candidates:
        if len(found) == rule.most or taken & {chosen.episode_id, rejected.episode_id}:
            continue
        if chosen.ending.truncated:
            refused.reasons["truncated_winner"] += 1
        elif signature(chosen) == signature(rejected):
            refused.reasons["equal_sides"] += 1
        else:
            taken |= {chosen.episode_id, rejected.episode_id}
            margin = chosen.score(rule.weights) - rejected.score(rule.weights)
            found.append(Pair(chosen, rejected, rule.name, margin))
    return found


def signature(episode: Episode) -> tuple[bytes, ...]:
    """What an episode says, token by token: equal for two that say the same."""
    return tuple(segment.ids.tobytes() + segment.action.tobytes() for segment in episode.segments)


def _reward_gap(members: Sequence[Episode], rule: Rule) -> Candidates:
    """Best with worst, second best with second worst, ... as long as they differ by the gap."""
    order = sorted(members, key=lambda e: (-e.score(rule.weights), e.member))
    wide = [
        (high, low)
        for high in order
        for low in reversed(order)
        if 0.0 < (high.score(rule.weights) - low.score(rule.weights)) >= rule.gap
    ]
    return wide


def _shortest_correct(members: Sequence[Episode], rule: Rule) -> Candidates:
    """The shortest correct episodes, each with a wrong one, else with the longest correct one.

    Kimi k1.5's long2short: chosen is the shortest correct answer, rejected a wrong or longer one.
    """
    won = [e for e in members if e.verdict is not None and e.verdict.success]
    won.sort(key=lambda e: (e.action_count, e.member))
    names = {e.episode_id for e in won}
    lost = [e for e in members if e.episode_id not in names] + won[::-1]
    return [
        (short, other)
        for short in won
        for other in lost
        if other.episode_id not in names or other.action_count > short.action_count
    ]


RULES: dict[str, Callable[[Sequence[Episode], Rule], Candidates]] = {
    "reward_gap": _reward_gap,
    "shortest_correct": _shortest_correct,
}
"""Rule of ``data.pairs`` -> its candidates in one group, the most wanted first."""
