"""Forks of a logged episode: from the state that each of its turns began in, sampled afresh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hexad.contract.episode import Episode, Prefix
from hexad.contract.faults import UserError
from hexad.rollout.entries import Begun, Entry, Sampled, Seated, Spent, Stepped
from hexad.rollout.log import EpisodeLog, last_attempt
from hexad.rollout.plan import EpisodePlan


@dataclass(frozen=True, slots=True)
class Fork:
    """``plan`` goes on before ``turn`` of the episode ``of``, with ``past`` as what went before.

    ``group`` is that episode's group, ``seed`` the one that its environment was given.
    """

    plan: EpisodePlan
    of: str
    group: str
    seed: int
    turn: int
    past: tuple[Entry, ...]

    def log(self) -> EpisodeLog:
        """A log to play the plan with: it goes on behind the past."""
        made = EpisodeLog.create()
        for entry in self.past:
            made.append(entry)
        return made

    def alone(self, episode: Episode) -> Episode:
        """``episode``, played by this fork, with the costs of what it sampled itself.

        It says whose turns it repeats, and in whose environment; these have loss weight 0.
        """
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
        rows = tuple(
            replace(row, weight=np.where(row.turn < self.turn, np.float32(0.0), row.weight))
            for row in episode.segments
        )
        prefix = Prefix(self.of, self.group, self.turn)
        changed = replace(episode, segments=rows, seed=self.seed, prefix=prefix)
        return replace(changed, costs=mine, times=spent)


def forks(plan: EpisodePlan, log: EpisodeLog, count: int) -> list[Fork]:
    """``count`` forks before every turn of the episode that ``plan`` and ``log`` tell of.

    They draw other tokens than the episode and than each other, and those of a turn are a group.
    The log must hold whole turns: no sitting was paused. Raises ``UserError`` for an episode that
    did what a reset does not undo: its states are not what they were.
    """
    played = [e for e in last_attempt(log.entries()) if not isinstance(e, Seated)]
    begun = played[0]
    assert isinstance(begun, Begun)
    states = [entry.state for entry in played if isinstance(entry, Begun | Stepped)]
    if any(state.repeatable is False for state in states):
        raise UserError(
            f"episode {plan.episode_id} did what a reset does not undo, so no fork of it is in "
            "the state that it was in",
            where=plan.environment,
            fix="declare such tools in the family's effects, or fork nothing",
        )
    seed = plan.environment_seed(begun.attempt)
    found = []
    places = [i for i, entry in enumerate(played) if isinstance(entry, Sampled)]
    for turn, place in enumerate(places):
        name = f"fork-{plan.episode_id}-{turn}"
        for member in range(count):
            own = replace(plan, group_id=name, member=member, episode_id=f"{name}-{member}")
            start = replace(begun, episode=own.episode_id, attempt=0, spent=Spent())
            past = (start, *played[1:place])
            found.append(Fork(own, plan.episode_id, plan.group_id, seed, turn, past))
    return found


def _observed(episode: Episode, actions: int) -> int:
    """Observation tokens between the prompt and action token number ``actions``."""
    (segment,) = episode.segments
    places: Sequence[int] = segment.action.nonzero()[0].tolist()
    if actions == 0:
        return 0
    end = places[actions] if actions < len(places) else len(segment)
    return end - places[0] - actions
