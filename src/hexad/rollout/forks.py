"""Forks of a logged episode: from the state that each of its turns began in, sampled afresh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hexad.contract.episode import Episode
from hexad.rollout.entries import Begun, Entry, Sampled, Seated, Spent, Stepped
from hexad.rollout.log import EpisodeLog, last_attempt
from hexad.rollout.plan import EpisodePlan


@dataclass(frozen=True, slots=True)
class Fork:
    """``plan`` goes on before ``turn`` of the episode ``of``, with ``past`` as what went before."""

    plan: EpisodePlan
    of: str
    turn: int
    past: tuple[Entry, ...]

    def log(self) -> EpisodeLog:
        """A log to play the plan with: it goes on behind the past."""
        made = EpisodeLog.create()
        for entry in self.past:
            made.append(entry)
        return made

    def alone(self, episode: Episode) -> Episode:
        """``episode``, played by this fork, with the costs of what it sampled itself."""
        sampled = [e for e in self.past if isinstance(e, Sampled)]
        steps = [e.step for e in self.past if isinstance(e, Stepped)]
        before, costs, times = (
            sum(len(e.completion.ids) for e in sampled),
            episode.costs,
            episode.times,
        )
        mine = replace(
            costs,
            sampled_tokens=costs.sampled_tokens - before,
            observation_tokens=costs.observation_tokens - _observed(episode, before),
            tool_calls=costs.tool_calls - sum(step.tool_calls for step in steps),
            turns=costs.turns - self.turn,
        )
        spent = replace(
            times,
            engine_seconds=times.engine_seconds - sum(e.seconds for e in sampled),
            tool_seconds=times.tool_seconds - sum(step.tool_seconds for step in steps),
        )
        return replace(episode, costs=mine, times=spent)


def forks(plan: EpisodePlan, log: EpisodeLog, count: int) -> list[Fork]:
    """``count`` forks before every turn of the episode that ``plan`` and ``log`` tell of.

    They draw other tokens than the episode and than each other. The log must hold whole turns: no
    sitting was paused.
    """
    played = [e for e in last_attempt(log.entries()) if not isinstance(e, Seated)]
    begun = played[0]
    assert isinstance(begun, Begun)
    found = []
    places = [i for i, entry in enumerate(played) if isinstance(entry, Sampled)]
    for turn, place in enumerate(places):
        name = f"fork-{plan.episode_id}-{turn}"
        for member in range(count):
            own = replace(plan, group_id=name, member=member, episode_id=f"{name}-{member}")
            start = replace(begun, episode=own.episode_id, attempt=0, spent=Spent())
            found.append(Fork(own, plan.episode_id, turn, (start, *played[1:place])))
    return found


def _observed(episode: Episode, actions: int) -> int:
    """Observation tokens between the prompt and action token number ``actions``."""
    (segment,) = episode.segments
    places: Sequence[int] = segment.action.nonzero()[0].tolist()
    if actions == 0:
        return 0
    end = places[actions] if actions < len(places) else len(segment)
    return end - places[0] - actions
