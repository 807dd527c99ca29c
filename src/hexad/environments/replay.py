"""Plays an episode's turns again in a fresh environment: what would it answer now?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hexad.contract.ending import Ending, EndingKind
from hexad.contract.episode import Episode
from hexad.contract.faults import EnvironmentFault, UserError
from hexad.contract.messages import AssistantTurn, Message, Role
from hexad.contract.refusal import Refusal
from hexad.contract.reward import Reward
from hexad.contract.task import Task
from hexad.environments.guard import uncontained
from hexad.environments.permission import answers
from hexad.environments.protocol import Environment, Step, TaskFamily

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Replayed:
    """What the environment said: ``states[i]`` is the state before turn i, the last one the end.

    ``heard[0]`` are the messages of the start, ``heard[i]`` those after turn i. ``ending`` is the
    environment's own.
    """

    states: tuple[str | None, ...]
    heard: tuple[tuple[Message, ...], ...]
    rewards: tuple[Reward, ...]
    ending: Ending | None

    @property
    def messages(self) -> tuple[Message, ...]:
        """Those of the start and of every step."""
        return tuple(message for messages in self.heard for message in messages)


def replay(
    family: TaskFamily,
    task: Task,
    seed: int,
    turns: Sequence[AssistantTurn],
    look: Callable[[Environment], T] = lambda environment: None,  # type: ignore[assignment, return-value]
    refusals: Sequence[Refusal] = (),
) -> tuple[Replayed, T]:
    """Reset to ``task`` and ``seed``, make ``turns``, and return what came of it.

    ``look`` is shown the environment in its last state. Turns with ``refusals`` are answered with
    them again, and never reach the environment. Turns after the environment's ending raise
    ``EnvironmentFault``, as do failures of the environment. Raises ``UserError`` for a family with
    tools whose effects a reset does not undo: they are not executed a second time.
    """
    if tools := uncontained(family):
        raise UserError(
            f"the tools {', '.join(tools)} are not executed again: a reset does not undo them",
            where=family.name,
            fix="judge by what was recorded instead",
        )
    refused: dict[int, list[Refusal]] = {}
    for refusal in refusals:
        refused.setdefault(refusal.turn, []).append(refusal)
    script = [(turn, refused.get(number, [])) for number, turn in enumerate(turns)]
    return asyncio.run(_replay(family.make(), task, seed, script, look))


async def _replay(
    environment: Environment,
    task: Task,
    seed: int,
    script: Sequence[tuple[AssistantTurn, Sequence[Refusal]]],
    look: Callable[[Environment], Any],
) -> tuple[Replayed, Any]:
    try:
        start = await environment.reset(task, seed)
        states: list[str | None] = [start.state_digest]
        heard, rewards = [tuple(start.messages)], []  # type: list[tuple[Message, ...]], list[Reward]
        ending: Ending | None = None
        for number, (turn, refused) in enumerate(script, start=1):
            if ending is not None:
                raise EnvironmentFault(f"it ended ({ending.kind}) before turn {number}")
            step = Step(answers(turn, refused)) if refused else await environment.step(turn)
            heard.append(tuple(step.messages))
            rewards += step.rewards
            states.append(states[-1] if refused else environment.state_digest())
            ending = step.ending
        seen = look(environment)
    finally:
        await environment.close()
    return Replayed(tuple(states), tuple(heard), tuple(rewards), ending), seen


def turns_of(episode: Episode, transcript: Sequence[Message]) -> list[AssistantTurn]:
    """The turns that the environment answered.

    The last one of an episode that a token limit cut is none of them, where nothing was heard after
    it: it was not finished.
    """
    said = [message for message in transcript if message.role is Role.ASSISTANT]
    cut = episode.ending.kind is EndingKind.TRUNCATED_TOKENS
    if cut and transcript and transcript[-1].role is Role.ASSISTANT:
        said.pop()
    return [AssistantTurn(message.content, message.tool_calls) for message in said]
