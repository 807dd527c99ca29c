"""Preference pairs: made of episodes by a declared rule, never by their order or their text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from operator import attrgetter

from hexad.contract.episode import Episode
from hexad.feedback.branch import Branch, Path, branch

CHOSEN, REJECTED = 0, 1
"""Place of a side in the group that is the pair."""
NOT_IN_LOSS = "branch_not_in_loss"
"""Two attempts part at a turn without weight in the loss."""


@dataclass(frozen=True, slots=True)
class Pair:
    """``chosen`` is better than ``rejected`` at one task from one initial state.

    ``source`` names the rule or the data that says so; ``margin`` is the difference of their
    scores, NaN where nobody scored them. With a ``branch`` it is better from there on.
    """

    chosen: Episode
    rejected: Episode
    source: str
    margin: float = math.nan
    branch: Branch | None = None

    def sides(self, name: str) -> tuple[Episode, Episode]:
        """Both episodes as the group ``name``: the chosen one is member 0, the other member 1.

        What they share before a ``branch`` has loss weight 0 on both.
        """
        both = [self.chosen, self.rejected]
        if self.branch is not None:
            both = [self.branch.cut(episode) for episode in both]
        chosen, rejected = (
            replace(episode, group_id=name, member=place)
            for episode, place in zip(both, (CHOSEN, REJECTED), strict=True)
        )
        return chosen, rejected


@dataclass(slots=True)
class Refused:
    """Why episodes or candidates made no pair, by reason.

    ``ties`` are groups in which the rule saw no difference: what it saw and refused has a reason.
    """

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


def make(episodes: Sequence[Episode], rule: Rule) -> tuple[list[Pair], Refused]:
    """Pairs of ``episodes``, group by group in order of appearance, and what made none.

    With the rule ``branch`` what repeats the beginning of an attempt is in that attempt's group.

    Every episode is in one pair at most. An episode that faulted or was not scored is in none; a
    truncated one never wins, nor does one that a gate has closed on, and two sides of equal tokens
    are no pair. The sides of a pair begin in one state: of a group with several, only members that
    share the first one's are used.
    """
    way, groups = RULES[rule.name], dict[str, list[Episode]]()
    for episode in episodes:
        groups.setdefault(way.group(episode), []).append(episode)
    refused, found = Refused(), []
    for members in groups.values():
        usable = _usable(members, refused)
        before = refused.reasons.total()
        candidates = way.candidates(usable, rule, refused)
        seen = bool(candidates) or refused.reasons.total() > before
        refused.ties += len(usable) > 1 and not seen
        found += _matched(candidates, rule, refused)
    return found, refused


def labelled(episodes: Sequence[Episode], refused: Refused) -> list[Episode]:
    """Single episodes for KTO: a correct one is desirable (member 0), any other is not (member 1).

    Each is a group of its own. A truncated episode may be undesirable only, and so may one that a
    gate has closed on.
    """
    made = []
    for episode in _usable(episodes, refused, together=False):
        good = episode.correct
        if good and episode.ending.truncated:
            refused.reasons["truncated_winner"] += 1
            continue
        place = CHOSEN if good else REJECTED
        made.append(replace(episode, group_id=episode.episode_id, member=place))
    return made


def correct(episodes: Sequence[Episode], refused: Refused) -> list[Episode]:
    """Rejection sampling: the episodes that a verifier found correct.

    Those that were truncated or that a gate has closed on never are.
    """
    usable = _usable(episodes, refused, together=False)
    won = [e for e in usable if e.correct]
    for episode in usable:
        if not episode.correct:
            refused.reasons["gated_winner" if _right(episode) else "wrong"] += 1
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


def _matched(candidates: Sequence[Pair], rule: Rule, refused: Refused) -> list[Pair]:
    """At most ``rule.most`` pairs, in the order of ``candidates``, each episode once."""
    taken: set[str] = set()
    found: list[Pair] = []
    for pair in candidates:
        names = {pair.chosen.episode_id, pair.rejected.episode_id}
        if len(found) == rule.most or taken & names:
            continue
        if pair.chosen.gate is not None:
            refused.reasons["gated_winner"] += 1
        elif pair.chosen.ending.truncated:
            refused.reasons["truncated_winner"] += 1
        elif signature(pair.chosen) == signature(pair.rejected):
            refused.reasons["equal_sides"] += 1
        else:
            taken |= names
            found.append(pair)
    return found


def _right(episode: Episode) -> bool:
    return episode.verdict is not None and episode.verdict.success


def signature(episode: Episode) -> tuple[bytes, ...]:
    """What an episode says, token by token: equal for two that say the same."""
    return tuple(segment.ids.tobytes() + segment.action.tobytes() for segment in episode.segments)


def _pair(chosen: Episode, rejected: Episode, rule: Rule) -> Pair:
    margin = chosen.score(rule.weights) - rejected.score(rule.weights)
    return Pair(chosen, rejected, rule.name, margin)


def _reward_gap(members: Sequence[Episode], rule: Rule, refused: Refused) -> list[Pair]:
    """Best with worst, second best with second worst, ... as long as they differ by the gap."""
    order = sorted(members, key=lambda e: (-e.score(rule.weights), e.member))
    every = (_pair(high, low, rule) for high in order for low in reversed(order))
    return [pair for pair in every if 0.0 < pair.margin >= rule.gap]


def _shortest_correct(members: Sequence[Episode], rule: Rule, refused: Refused) -> list[Pair]:
    """The shortest correct episodes, each with a wrong one, else with the longest correct one.

    Kimi k1.5's long2short: chosen is the shortest correct answer, rejected a wrong or longer one.
    """
    won = [e for e in members if e.correct]
    won.sort(key=lambda e: (e.action_count, e.member))
    names = {e.episode_id for e in won}
    lost = [e for e in members if e.episode_id not in names] + won[::-1]
    return [
        _pair(short, other, rule)
        for short in won
        for other in lost
        if other.episode_id not in names or other.action_count > short.action_count
    ]


def _branch(members: Sequence[Episode], rule: Rule, refused: Refused) -> list[Pair]:
    """Episodes that part by an action and differ by the gap, those that share most turns first.

    Then the wider gap goes first, then the lower member on the chosen and on the rejected side,
    then the ids. No pair branches where a side's turn is not in the loss.
    """
    paths = {episode.episode_id: Path.of(episode) for episode in members}
    found: list[tuple[Branch, Pair]] = []
    for one, other in combinations(members, 2):
        first = one.score(rule.weights) > other.score(rule.weights)
        pair = _pair(one, other, rule) if first else _pair(other, one, rule)
        if not 0.0 < pair.margin >= rule.gap:
            continue
        place = branch(paths[one.episode_id], paths[other.episode_id])
        if isinstance(place, str):
            refused.reasons[place] += 1
        elif not place.weighed:
            refused.reasons[NOT_IN_LOSS] += 1
        else:
            found.append((place, replace(pair, branch=place)))
    found.sort(key=_depth)
    return [pair for _, pair in found]


def _depth(found: tuple[Branch, Pair]) -> tuple[int, float, int, int, str, str]:
    place, pair = found
    one, other = pair.chosen, pair.rejected
    ids = one.episode_id, other.episode_id
    return -place.turn, -pair.margin, one.member, other.member, *ids


@dataclass(frozen=True, slots=True)
class _Way:
    """``candidates`` of the episodes that ``group`` puts together, the most wanted first."""

    candidates: Callable[[Sequence[Episode], Rule, Refused], list[Pair]]
    group: Callable[[Episode], str] = attrgetter("group_id")


RULES: dict[str, _Way] = {
    "reward_gap": _Way(_reward_gap),
    "shortest_correct": _Way(_shortest_correct),
    "branch": _Way(_branch, attrgetter("tree")),
}
"""By name of ``data.pairs.rule``."""
