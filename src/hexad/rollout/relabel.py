"""The expert's turn in every state that somebody else has visited: DAgger's labels."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from hexad.contract.ending import Ending, EndingKind
from hexad.contract.episode import Actor, Costs, Episode
from hexad.contract.faults import ContractViolation
from hexad.contract.messages import Role
from hexad.contract.segment import ACTION_SPANS, NO_VERSION, Segment, Span, SpanKind
from hexad.contract.task import Task
from hexad.environments.advice import Advising
from hexad.policy.chat import Chat
from hexad.policy.engine import Completion
from hexad.rollout.imitate import spoken
from hexad.rollout.world import World

ORIGIN = "relabelled"
"""Why a later segment exists: another state of the same visit."""


@dataclass(frozen=True, slots=True)
class Labels:
    """``episode`` holds the expert's turns, or is ``None`` where there is none.

    Of ``states`` visited ones the expert's turn was taken in ``agreed``, and ``unlabelled`` have no
    label: nothing is right there any more, or the expert's turn is forbidden or does not fit the
    limits.
    """

    episode: Episode | None
    states: int
    agreed: int
    unlabelled: int


@dataclass(frozen=True, slots=True)
class _Turn:
    """A turn of the visitor: its number, and its tokens from ``start`` to ``end``."""

    number: int
    start: int
    end: int


def relabelled(episode: Episode, task: Task, family: Advising, world: World) -> Labels:
    """The episode ``episode`` of ``task`` with the expert's turns in the place of its own.

    A visited state is the context before a turn, as the policy saw it. Its segment is that context,
    in which the visitor's turns are history and no action, and the expert's turn. Turns that are
    the expert's own, token by token, need no segment of their own: they stay actions in the next
    one. Nothing is played again. Raises ``ContractViolation`` for an episode of several contexts.
    """
    if len(episode.segments) != 1:
        raise ContractViolation(f"{episode.episode_id} has {len(episode.segments)} contexts")
    (segment,) = episode.segments
    turns, found = _turns(segment), list[Segment]()
    agreed, pending, unlabelled = 0, set[int](), 0
    labels = _labels(segment, turns, task, family, world)
    for turn, label in zip(turns, labels, strict=True):
        if label is None:
            unlabelled += 1
        elif np.array_equal(label.ids, segment.ids[turn.start : turn.end]):
            agreed += 1
            pending.add(turn.number)
        else:
            found.append(_labelled(segment, turn, pending, (world.chat, label)))
            pending = set()
    if pending:
        last = max(turn.end for turn in turns if turn.number in pending)
        found.append(_history(segment, last, pending))
    if not found:
        return Labels(None, len(turns), agreed, unlabelled)
    return Labels(_made(episode, found, world), len(turns), agreed, unlabelled)


def _turns(segment: Segment) -> list[_Turn]:
    edges: dict[int, list[int]] = {}
    for span in segment.spans:
        if span.kind in ACTION_SPANS:
            edges.setdefault(span.turn, []).extend((span.start, span.end))
    return [_Turn(number, min(found), max(found)) for number, found in sorted(edges.items())]


def _labels(
    segment: Segment, turns: list[_Turn], task: Task, family: Advising, world: World
) -> list[Completion | None]:
    """The expert's turn in the state before each turn; none that the world's guard forbids."""
    transcript = world.chat.decode([segment])
    places = [place for place, each in enumerate(transcript) if each.role is Role.ASSISTANT]
    limits = world.limits
    found: list[Completion | None] = []
    for turn, place in zip(turns, places, strict=True):
        advised = family.advice(task, transcript[:place])
        if world.guard is not None:
            advised = tuple(said for said in advised if not world.guard.forbids(task, said))
        label = spoken(world.chat, advised[0]) if advised else None
        room = min(limits.turn_tokens, limits.context_tokens - turn.start)
        found.append(label if label is not None and len(label.ids) <= room else None)
    return found


def _history(segment: Segment, end: int, kept: Collection[int]) -> Segment:
    """The first ``end`` tokens; turns not in ``kept`` are history, the others the expert's."""
    spans = []
    for span in segment.spans:
        if span.start < end:
            acts = span.kind in ACTION_SPANS and span.turn not in kept
            kind, name = (SpanKind.TEMPLATE, "") if acts else (span.kind, span.name)
            spans.append(Span(kind, name, span.turn, span.start, min(span.end, end)))
    action = segment.action[:end] & np.isin(segment.turn[:end], list(kept))
    return Segment(
        ids=segment.ids[:end],
        action=action,
        weight=action.astype(np.float32),
        logprob=np.full(end, np.nan, np.float32),
        version=np.full(end, NO_VERSION, np.int32),
        turn=segment.turn[:end],
        spans=tuple(spans),
    )


def _labelled(
    segment: Segment, turn: _Turn, kept: Collection[int], said: tuple[Chat, Completion]
) -> Segment:
    """The context before ``turn`` and the expert's turn; ``said``: how, and in which chat."""
    chat, label = said
    before, count, start = _history(segment, turn.start, kept), len(label.ids), turn.start
    ones = np.ones(count)
    spans = tuple(
        Span(span.kind, span.name, turn.number, start + span.start, start + span.end)
        for span in chat.parse(label.ids).spans
    )
    return Segment(
        ids=np.concatenate([before.ids, label.ids]),
        action=np.concatenate([before.action, ones.astype(np.bool_)]),
        weight=np.concatenate([before.weight, ones.astype(np.float32)]),
        logprob=np.concatenate([before.logprob, label.logprobs]),
        version=np.concatenate([before.version, label.versions]),
        turn=np.concatenate([before.turn, np.full(count, turn.number, np.int32)]),
        spans=(*before.spans, *spans),
    )


def _made(episode: Episode, found: list[Segment], world: World) -> Episode:
    later = (replace(segment, parent=0, origin=ORIGIN) for segment in found[1:])
    name = f"{episode.episode_id}-{ORIGIN}"
    return Episode(
        episode_id=name,
        task_id=episode.task_id,
        group_id=name,
        member=0,
        split=episode.split,
        environment=episode.environment,
        stratum=episode.stratum,
        initial_state=episode.initial_state,
        seed=episode.seed,
        segments=(found[0], *later),
        ending=Ending.of(EndingKind.TERMINAL, "the expert labelled what was visited"),
        provenance=world.demonstrated,
        actor=Actor.EXPERT,
        costs=Costs(turns=episode.costs.turns),
        states=episode.states,
    )
