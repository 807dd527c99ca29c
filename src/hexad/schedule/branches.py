"""Forks of a round's attempts: what else the policy does in the states that one of them was in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hexad.contract.episode import Episode
from hexad.recipe.axes import Recipe
from hexad.rollout.collect import collect
from hexad.rollout.forks import forks
from hexad.rollout.world import World
from hexad.schedule.continuations import Played


def chosen(attempts: Sequence[Episode]) -> Episode | None:
    """The attempt at a task that is forked: the first wrong one where another is right.

    One that a gate has closed on is wrong. Where all are right, or all wrong, it is the first one;
    ``None`` where none was scored.
    """
    scored = [episode for episode in attempts if episode.scored]
    wrong = [e for e in scored if not e.correct]
    return next(iter(wrong or scored), None)


def branches(
    episodes: Sequence[Episode], played: Mapping[str, Played], recipe: Recipe, world: World
) -> list[Episode]:
    """``data.rounds.forks`` forks before every turn but the first of one episode a group, judged.

    A fork before the first turn would be one more attempt, which ``data.group_size`` is for. None
    is tried again after a fault: a retry would begin at the start. ``played`` is by episode id.
    """
    rounds = recipe.data.rounds
    assert rounds is not None and rounds.forks is not None
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode.group_id, []).append(episode)
    parents = [one for members in groups.values() if (one := chosen(members)) is not None]
    every = [fork for e in parents for fork in forks(*played[e.episode_id], rounds.forks)]
    made = [fork for fork in every if fork.turn > 0]
    found = collect(
        [fork.plan for fork in made],
        replace(world, retries=0),
        rows=recipe.system.engine_rows,
        logs=[fork.log() for fork in made],
    )
    return [fork.alone(episode) for fork, episode in zip(made, found, strict=True)]
