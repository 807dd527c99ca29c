"""Values of states without a critic: the mean return of continuations from them (VinePPO)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from hexad.contract.admission import admit
from hexad.contract.episode import Episode
from hexad.contract.faults import UserError
from hexad.contract.needs import Needs
from hexad.credit.continuation import continued
from hexad.credit.reward_to_go import reward_to_go
from hexad.environments.protocol import Declaring, Forkable, TaskFamily
from hexad.learner.assemble import assemble
from hexad.learner.steps import steps_of
from hexad.recipe.axes import Recipe
from hexad.rollout.collect import collect
from hexad.rollout.forks import Fork, forks
from hexad.rollout.log import EpisodeLog
from hexad.rollout.plan import EpisodePlan
from hexad.rollout.world import World

Played = tuple[EpisodePlan, EpisodeLog]
"""The plan of an episode and the log of how it was played."""


def require_forkable(family: TaskFamily, who: str, where: str, instead: str) -> None:
    """Raise ``UserError`` where environments cannot be continued from the middle.

    ``who`` wants that, as ``where`` says; ``instead`` is what else to do.
    """
    made = family.make()
    able = isinstance(made, Forkable)
    asyncio.run(made.close())
    if not able:
        raise UserError(
            f"{who} continues states, and a {type(made).__name__} cannot fork",
            where=where,
            fix=f"give the environment snapshot() and fork(snapshot), or {instead}",
        )
    effects = family.effects if isinstance(family, Declaring) else {}
    lasting = sorted(name for name, effect in effects.items() if not effect.contained)
    if lasting:
        raise UserError(
            f"{who} continues states, and no fork undoes what {', '.join(lasting)} did",
            where=where,
            fix=f"replace such a tool by a simulated one, or {instead}",
        )


def state_values(
    episodes: Sequence[Episode],
    played: Mapping[str, Played],
    recipe: Recipe,
    world: World,
    done: Callable[[Episode], None],
) -> dict[str, tuple[float, ...]]:
    """By episode id, for each of ``episodes``, the value of the state that each turn began in.

    Every one is the mean return of ``credit.continuations`` fresh continuations; ``done`` is told
    of each, with the costs of what it sampled itself. NaN where all of a state's faulted or were
    not judged. Nothing is retried: a retry would begin at the start.
    """
    count = recipe.credit.continuations
    assert count is not None
    made = [fork for e in episodes for fork in forks(*played[e.episode_id], count)]
    found = collect(
        [fork.plan for fork in made],
        replace(world, trained=False, retries=0),
        rows=recipe.system.engine_rows,
        logs=[fork.log() for fork in made],
    )
    for fork, episode in zip(made, found, strict=True):
        done(fork.alone(episode))
    returns = _returns(made, found, recipe)
    values = continued(torch.tensor(returns, dtype=torch.float64).reshape(-1, count)).tolist()
    by_episode: dict[str, list[float]] = {e.episode_id: [] for e in episodes}
    for fork, value in zip(made[::count], values, strict=True):
        by_episode[fork.of].append(value)
    return {name: tuple(each) for name, each in by_episode.items()}


def _returns(made: Sequence[Fork], found: Sequence[Episode], recipe: Recipe) -> list[float]:
    """What each fork was still paid from its first turn on, discounted; NaN where unusable."""
    returns = [math.nan] * len(found)
    usable = [i for i, episode in enumerate(found) if not admit(episode, Needs())]
    if not usable:
        return returns
    weights, gamma = recipe.feedback.weights, recipe.credit.gamma
    batch = assemble([found[i] for i in usable], weights)
    steps = steps_of(batch, "turn", batch.score.isfinite(), weights)
    to_go = reward_to_go(steps, gamma=gamma).tolist()
    turns = batch.turn[steps.first].tolist()
    for place, turn, value in zip(steps.episode.tolist(), turns, to_go, strict=True):
        if turn == made[usable[place]].turn:
            returns[usable[place]] = value
    return returns
