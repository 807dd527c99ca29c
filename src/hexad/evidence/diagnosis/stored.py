"""Probes of one stored batch: masks, reductions, the clock, rewards by length, endings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from hexad.contract.episode import Actor, Episode
from hexad.contract.segment import ACTION_SPANS, Segment, Span, SpanKind
from hexad.evidence.diagnosis.findings import SYMPTOMS, Finding
from hexad.learner.assemble import assemble
from hexad.learner.assign import Assigner
from hexad.learner.batch import RoleScore, RoleValue, Scores
from hexad.learner.minibatch import index_of
from hexad.recipe.axes import Recipe
from hexad.update.reduce import Reduction, coefficients

Row = dict[str, Any]
REDUCTIONS: dict[str, Reduction] = {
    "token": Reduction("token"),
    "response": Reduction("response"),
    "prompt": Reduction("prompt", inner="token"),
    "episode": Reduction("episode"),
}
"""The four that a batch is reduced by side by side."""
_ROUNDING = 1e-6
"""Share of the largest pull that float64 sums in another order may differ by."""
_MOST = 0.55
"""Share of the loss from which on the longest quarter weighs too much; all alike have a quarter."""
_LONGER = 2
"""How often every observation token stands in the lengthened copy of a batch."""


@dataclass(frozen=True)
class Stored:
    """``episodes`` of the newest stored batches, whole groups, sampled from version ``step`` on."""

    recipe: Recipe
    step: int
    episodes: tuple[Episode, ...]

    @property
    def sampled_and_trained(self) -> bool:
        """Whether the loss is of these episodes: a round trains on what was made of them."""
        return self.recipe.data.regime == "online"

    @property
    def usable(self) -> tuple[Episode, ...]:
        """Those that are scored and have an action in the loss."""
        found = (e for e in self.episodes if e.scored)
        return tuple(e for e in found if any((s.weight > 0).any() for s in e.segments))


def unmasked(stored: Stored) -> Finding | None:
    """Tokens that nobody sampled and that are trained on, or sampled ones that are no action."""
    wrong = trained = 0
    for episode in stored.episodes:
        for segment in episode.segments:
            acts = _acts(segment)
            wrong += int((segment.action != acts).sum())
            trained += int(((segment.weight > 0) & ~acts).sum())
    if not wrong and not trained:
        return None
    told = (
        f"{wrong} tokens of {len(stored.episodes)} stored episodes are action and not sampled, or "
        f"the other way round; {trained} that were not sampled have a weight in the loss",
    )
    return Finding(SYMPTOMS["observations-count"], 0.99, stored.step, told)


def unsampled(stored: Stored) -> Finding | None:
    """Episodes that hold another number of action tokens than the engine's calls returned.

    Masks and spans may agree and both be wrong; what was sampled is counted where it is sampled. An
    expert's tokens come from no engine, and what a fork repeats was counted in its parent.
    """
    mine = [e for e in stored.episodes if e.actor is Actor.POLICY]
    wrong = [e for e in mine if e.own_count != e.costs.sampled_tokens]
    if not wrong:
        return None
    more = sum(e.own_count - e.costs.sampled_tokens for e in wrong)
    told = (
        f"{len(wrong)} of {len(mine)} stored episodes have another number of action "
        f"tokens than was sampled, {more:+} in all",
    )
    return Finding(SYMPTOMS["observations-count"], 0.99, stored.step, told)


def clock(stored: Stored) -> Finding | None:
    """Lengthen every observation: no advantage and no denominator may change."""
    episodes = stored.usable
    if not any(span.kind is SpanKind.OBSERVATION for e in episodes for s in e.segments
               for span in s.spans):  # fmt: skip
        return None
    before = _pull(stored.recipe, episodes)
    after = _pull(stored.recipe, tuple(_lengthened(episode) for episode in episodes))
    if before is None or after is None:
        return None
    differs = torch.abs(after - before).max().item()
    largest = torch.maximum(after.abs(), before.abs()).max().item()
    if differs <= _ROUNDING * largest:
        return None
    told = (
        f"with every observation {_LONGER} times as long the pull on an action token changes by up "
        f"to {differs / largest:.0%} of the largest",
    )
    return Finding(SYMPTOMS["observations-count"], 0.97, stored.step, told)


def length_weight(stored: Stored) -> Finding | None:
    """The longest quarter of the episodes has most of the loss."""
    episodes = stored.usable
    if len(episodes) < 8:
        return None
    shares = reductions(episodes)
    own = stored.recipe.action.denominator
    mine = shares.get(own, shares["token"])
    repeated = sum(_repeats(episode) for episode in episodes)
    if mine < _MOST and not repeated:
        return None
    listed = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    told = [f"share of the loss that the longest quarter of the episodes has: {listed}; own: {own}"]
    if repeated:
        told.append(f"{repeated} segments say again what an earlier one of their episode said")
    confidence = 0.9 if repeated else min(0.9, mine)
    return Finding(SYMPTOMS["length-weight"], confidence, stored.step, tuple(told))


def reductions(episodes: Sequence[Episode]) -> dict[str, float]:
    """Share of all coefficients that the longest quarter of ``episodes`` has, by reduction."""
    batch = assemble(episodes)
    valid = batch.action & (batch.weight > 0)
    index = index_of(batch, valid)
    lengths = np.array([episode.action_count for episode in episodes])
    longest = np.argsort(-lengths, kind="stable")[: max(1, len(lengths) // 4)]
    chosen = torch.zeros(len(lengths), dtype=torch.bool)
    chosen[torch.from_numpy(longest)] = True
    found = {}
    for name, reduction in REDUCTIONS.items():
        coefficient = coefficients(index, reduction)
        found[name] = float(coefficient[chosen[index.episode]].sum() / coefficient.sum())
    return found


def by_length(episodes: Sequence[Episode]) -> float | None:
    """Correlation of score and action tokens within groups; ``None`` where neither varies."""
    groups: dict[str, list[tuple[float, float]]] = {}
    for episode in episodes:
        pair = (episode.score({}), float(episode.action_count))
        groups.setdefault(episode.group_id, []).append(pair)
    rows = [np.array(pairs) - np.mean(pairs, axis=0) for pairs in groups.values() if len(pairs) > 1]
    if not rows:
        return None
    centred = np.concatenate(rows)
    spread = centred.std(axis=0)
    if spread.min() == 0.0:
        return None
    return float((centred[:, 0] * centred[:, 1]).mean() / spread.prod())


def endings(episodes: Sequence[Episode]) -> dict[str, dict[str, float]]:
    """Count, success and mean turns by kind of ending."""
    found: dict[str, dict[str, float]] = {}
    for kind in sorted({str(episode.ending.kind) for episode in episodes}):
        mine = [episode for episode in episodes if str(episode.ending.kind) == kind]
        judged = [e.verdict.success for e in mine if e.verdict is not None and e.scored]
        found[kind] = {
            "episodes": len(mine),
            "turns": float(np.mean([episode.costs.turns for episode in mine])),
            **({"success": float(np.mean(judged))} if judged else {}),
        }
    return found


def _pull(recipe: Recipe, episodes: tuple[Episode, ...]) -> torch.Tensor | None:
    """float64: coefficient times advantage of every sampled token, by the recipe's own credit.

    A critic's values are taken to be one half everywhere, which no longer observation may change.
    ``None`` where credit needs more than episodes and values (auxiliary rollouts, memory).
    """
    spec = recipe.credit
    if spec.baseline in ("greedy", "prompt_mean", "beta") or spec.estimator in ("vine", "none"):
        return None
    batch = assemble(episodes, recipe.feedback.weights)
    assigner = Assigner(recipe)
    value = torch.full((len(batch.ids),), 0.5, dtype=torch.float64)
    # What sampled also learns here: V-trace asks for both, and their ratio is none of observations.
    old = RoleScore(batch.behaviour, 0, "")
    valued = RoleValue(value, 0, "") if assigner.rule.critic else None
    credit = assigner(batch, Scores(sampled=old, old=old, value=valued))
    valid = batch.action & (batch.weight > 0) & credit.counted[batch.token_episode]
    coefficient = coefficients(index_of(batch, valid), _own(recipe))
    sampled = np.concatenate([_acts(segment) for e in episodes for segment in e.segments])
    return (coefficient * credit.advantage)[torch.from_numpy(sampled)]


def _own(recipe: Recipe) -> Reduction:
    action = recipe.action
    return Reduction(action.denominator, action.inner, action.length)


def _acts(segment: Segment) -> Any:
    """bool: the tokens that the spans say were sampled."""
    acts = np.zeros(len(segment), np.bool_)
    for span in segment.spans:
        acts[span.start : span.end] = span.kind in ACTION_SPANS
    return acts


def _lengthened(episode: Episode) -> Episode:
    """``episode`` with every observation token :data:`_LONGER` times."""
    return replace(episode, segments=tuple(_longer(segment) for segment in episode.segments))


def _longer(segment: Segment) -> Segment:
    times = np.ones(len(segment), np.int64)
    for span in segment.spans:
        if span.kind is SpanKind.OBSERVATION:
            times[span.start : span.end] = _LONGER
    edges = np.concatenate([[0], np.cumsum(times)])
    names = ("ids", "action", "weight", "logprob", "version", "turn")
    arrays: dict[str, Any] = {name: np.repeat(getattr(segment, name), times) for name in names}
    spans = tuple(
        Span(s.kind, s.name, s.turn, int(edges[s.start]), int(edges[s.end])) for s in segment.spans
    )
    return replace(segment, **arrays, spans=spans, support=None)


def _repeats(episode: Episode) -> int:
    """Segments whose trained tokens begin with all trained tokens of an earlier one."""
    said = [tuple(s.ids[s.weight > 0].tolist()) for s in episode.segments]
    return sum(
        any(earlier and own[: len(earlier)] == earlier for earlier in said[:number])
        for number, own in enumerate(said)
        if own
    )


def stored_rules(stored: Stored) -> list[Finding]:
    """What the probes of ``stored`` found."""
    rules: tuple[Callable[[Stored], Finding | None], ...] = (unmasked, unsampled)
    if stored.sampled_and_trained:
        rules = (*rules, clock, length_weight)
    return [found for rule in rules if (found := rule(stored)) is not None]
