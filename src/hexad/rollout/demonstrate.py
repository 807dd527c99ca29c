"""An expert's episodes, through the same loop and the same recorder as the policy's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from hexad.contract.episode import Actor, Episode
from hexad.contract.faults import UserError
from hexad.contract.messages import AssistantTurn
from hexad.environments.protocol import Demonstration
from hexad.policy.engine import Completion, Request
from hexad.rollout.agent import assess, play
from hexad.rollout.attempt import Seat
from hexad.rollout.collect import run_async
from hexad.rollout.host import Hosts
from hexad.rollout.imitate import spoken, weighed
from hexad.rollout.plan import EpisodePlan
from hexad.rollout.world import World


def record(plans: Sequence[EpisodePlan], world: World) -> list[Episode]:
    """The expert's episodes of ``plans``, in order; observations come from the real environment.

    Every token of an expert's turn is an action without log-prob and version, of weight 1 or what
    the demonstration says; a turn that the world's guard refused has weight 0. Raises ``UserError``
    where there is no expert, or where its turns do not fit the limits or do not end the episode.
    """
    episodes: list[Episode] = []
    run_async(_record(plans, world, episodes))
    return episodes


async def _record(plans: Sequence[EpisodePlan], world: World, episodes: list[Episode]) -> None:
    hosts = Hosts()
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_one(i, p, world, hosts)) for i, p in enumerate(plans)]
    finally:
        hosts.stop()
    episodes.extend(task.result() for task in tasks)


async def _one(index: int, plan: EpisodePlan, world: World, hosts: Hosts) -> Episode:
    shown = world.family.demonstration(plan.task)
    if shown.weights and len(shown.weights) != len(shown.turns):
        raise UserError(
            f"the demonstration of task {plan.task.task_id} has {len(shown.turns)} turns and "
            f"{len(shown.weights)} weights",
            where="TaskFamily.demonstration",
            fix="give each turn a weight, or none",
        )
    expert = _Expert(shown, world)
    episode = await play(plan, world, Seat(expert.act, hosts, index, Actor.EXPERT))
    if episode.ending.truncated:
        raise UserError(
            f"the expert's episode of task {plan.task.task_id} was cut: {episode.ending.reason}",
            where="task.limits",
            fix="raise the limit",
        )
    refused = {refusal.turn for refusal in episode.refusals if refusal.violation}
    if shown.weights or refused:
        shares = shown.weights or (1.0,) * len(shown.turns)
        weights = [0.0 if turn in refused else share for turn, share in enumerate(shares)]
        segments = tuple(weighed(segment, weights) for segment in episode.segments)
        episode = replace(episode, segments=segments)
    return await assess(plan, world, episode)


class _Expert:
    """Acts out a demonstration. An attempt starts again from the first turn."""

    def __init__(self, demonstration: Demonstration, world: World) -> None:
        self._demonstration, self._chat = demonstration, world.chat
        self._attempt, self._turn = -1, 0

    async def act(self, request: Request) -> Completion:
        """The expert's next turn as a completion that nobody sampled."""
        if request.key.attempt != self._attempt:
            self._attempt, self._turn = request.key.attempt, 0
        completion = spoken(self._chat, self._next())
        if (size := len(completion.ids)) > request.max_tokens:
            raise UserError(
                f"turn {self._turn - 1} of the expert has {size} tokens, "
                f"{request.max_tokens} are left",
                where="task.limits",
                fix="raise turn_tokens or context_tokens",
            )
        return completion

    def _next(self) -> AssistantTurn:
        turns = self._demonstration.turns
        if self._turn >= len(turns):
            raise UserError(
                f"the expert's {len(turns)} turns do not end the episode of task "
                f"{self._demonstration.task.task_id}",
                where="TaskFamily.demonstration",
                fix="let the last turn be one at which the environment ends the episode",
            )
        self._turn += 1
        return turns[self._turn - 1]
