"""Recorded conversations as episodes: rendered by the recipe's own chat, token by token."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from hexad.contract.digest import digest
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.episode import Actor, Costs, Episode
from hexad.contract.faults import UserError
from hexad.contract.messages import AssistantTurn, Message, ToolSchema
from hexad.contract.task import Split
from hexad.data_sets.bad import BadRow, Flaw
from hexad.data_sets.forms import Dialogue
from hexad.data_sets.messages import Said
from hexad.policy.chat import Chat
from hexad.rollout.imitate import spoken, weighed
from hexad.rollout.recorder import Recorder
from hexad.rollout.world import World

ENDING = "the recorded conversation ends"
_CHATS = 64


class Chats:
    """The chat of every set of tools, made when first needed; a few are kept."""

    def __init__(self, make: Callable[[tuple[ToolSchema, ...]], Chat]) -> None:
        def of(text: str) -> Chat:
            return make(tuple(ToolSchema(**tool) for tool in json.loads(text)))

        self._of = lru_cache(_CHATS)(of)

    def __call__(self, tools: Sequence[ToolSchema]) -> Chat:
        """The chat that offers ``tools``. Raises ``UserError`` for a template without tools."""
        # Not sorted: a template shows the keys of a schema in the order that they have.
        return self._of(json.dumps([asdict(tool) for tool in tools]))


@dataclass(frozen=True, slots=True)
class Scribe:
    """Writes dialogues as episodes. ``digest`` names the data set that they come from.

    With ``own_tools`` a row offers the tools that it names, or none; else every row offers those
    of the world's environment. No row may be longer than ``world.limits.context_tokens``.
    """

    world: World
    chats: Chats
    digest: str
    own_tools: bool = True

    def episode(self, dialogue: Dialogue, name: str, actor: Actor = Actor.EXPERT) -> Episode:
        """A group of its own, called ``name``: nobody sampled, nobody judged.

        Exactly the tokens of the assistant turns in ``dialogue.turns`` are actions, with the close
        token of each; their weight is that of their message. Raises ``BadRow`` where the template
        cannot render the conversation, and for one that is too long.
        """
        tools = self._tools(dialogue)
        chat = self.chats(tools)
        try:
            recorder, weights = _recorded(dialogue, chat, actor)
        except UserError as error:
            raise BadRow(Flaw.TEMPLATE, error.what) from error
        limit = self.world.limits.context_tokens
        if (size := len(recorder.context)) > limit:
            detail = f"{size} tokens, task.limits.context_tokens is {limit}"
            raise BadRow(Flaw.TOO_LONG, detail)
        offered = digest([asdict(tool) for tool in tools])
        start = digest([offered, [asdict(message) for message in dialogue.prompt]])
        return Episode(
            episode_id=name,
            task_id=f"prompt-{start[:16]}",
            group_id=name,
            member=0,
            split=Split.TRAIN,
            environment=f"rows-{offered[:8]}",
            initial_state=start,
            seed=0,
            segments=(weighed(recorder.finish(), weights),),
            ending=Ending.of(EndingKind.TERMINAL, ENDING),
            provenance=replace(
                self.world.demonstrated,
                tools=offered,
                environment=self.digest,
                verifier="none",
            ),
            actor=actor,
            costs=Costs(turns=recorder.turns),
        )

    def _tools(self, dialogue: Dialogue) -> tuple[ToolSchema, ...]:
        if not self.own_tools:
            return self.world.family.tools
        return dialogue.tools or ()


def _recorded(dialogue: Dialogue, chat: Chat, actor: Actor) -> tuple[Recorder, list[float]]:
    """The tokens of the conversation, and the weight of each assistant turn."""
    recorder, weights = Recorder(actor), list[float]()
    recorder.start(chat.prompt(dialogue.prompt))
    for said, answers, last in _exchanges(dialogue.turns):
        turn = AssistantTurn(said.message.content, said.message.tool_calls)
        completion = spoken(chat, turn)
        spans = chat.parse(completion.ids).spans
        recorder.completion(recorder.context, completion, spans)
        weights.append(said.weight)
        if answers or not last:
            recorder.observation(chat.follow(completion.ids, answers, header=not last))
    return recorder, weights


def _exchanges(turns: Sequence[Said]) -> list[tuple[Said, list[Message], bool]]:
    """Every assistant turn, what was said until the next one, and whether it is the last."""
    starts = [index for index, said in enumerate(turns) if said.acts]
    ends = [*starts[1:], len(turns)]
    return [
        (turns[start], [said.message for said in turns[start + 1 : end]], end == len(turns))
        for start, end in zip(starts, ends, strict=True)
    ]
