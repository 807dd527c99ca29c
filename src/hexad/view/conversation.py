"""One episode as a page shows it: segments, turns, spans, tokens, and every stored number."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from hexad.contract.episode import Episode
from hexad.contract.reward import Gate, OwnerKind, Reward
from hexad.contract.segment import NO_VERSION, Segment, Span
from hexad.evidence.traces import NAMES
from hexad.view.words import Words, visible

Row = dict[str, Any]
_UNTRACED = "no trace: run.traces keeps one every so many batches, of methods that have a ratio"
_ABSENT = {
    "ratio": "no step read it: its gradient was exactly zero",
    "advantage": "the episode was in no loss",
    "value": "no critic spoke of it",
}
"""Why a traced episode may lack a quantity."""
STORED = {
    "mask": "action mask: 1 where the actor sampled the token",
    "weight": "share of the token in the loss",
    "logprob": "log-probability at sampling (behaviour), in nats",
    "version": "policy version that sampled the token",
    "ratio": "current / behaviour policy, by the last optimiser step that read the token",
    "advantage": "as it entered the loss",
    "value": "of the state that the action was chosen in, by the critic before its update",
}
"""Quantities of a token: the store's, and those of the batches that ``run.traces`` keeps."""
Traced = Mapping[int, Mapping[str, Sequence[float]]]
"""What a trace kept of an episode, by segment and quantity."""


def conversation(episode: Episode, words: Words, traced: Traced) -> Row:
    """The episode with its texts; every text has its control characters made visible."""
    verdict = episode.verdict
    return {
        "id": episode.episode_id,
        "segments": [_segment(episode, number, words) for number in range(len(episode.segments))],
        "at_end": [_reward(r) for r in episode.rewards if r.owner.kind is OwnerKind.END],
        "gate": None if episode.gate is None else _gate(episode.gate),
        "ending": episode.ending,
        "verdict": verdict,
        "evidence": visible(verdict.evidence) if verdict else "",
        "reason": visible(episode.ending.reason),
        "faults": [(f"{f.boundary}: {f.kind}", visible(f.message)) for f in episode.faults],
        "identity": {
            "task": episode.task_id,
            "group": f"{episode.group_id}, member {episode.member}",
            "split": str(episode.split),
            "environment": episode.environment,
            "actor": str(episode.actor),
            "seed": str(episode.seed),
            "attempt": str(episode.attempt),
            "initial state": episode.initial_state,
            **_repeats(episode),
        },
        "costs": _costs(episode),
        "provenance": episode.provenance.parts(),
        "versions": episode.provenance.versions,
        "missing": missing(episode, traced),
    }


def numbers(episode: Episode, traced: Traced) -> str:
    """The kept quantities of every token, segment by segment, as JSON safe inside a page."""
    rows = [
        {
            "mask": segment.action.astype(int).tolist(),
            "weight": _plain(segment.weight.tolist()),
            "logprob": _plain(segment.logprob.tolist()),
            "version": [None if v == NO_VERSION else v for v in segment.version.tolist()],
        }
        | {name: _plain(found) for name, found in traced.get(number, {}).items()}
        for number, segment in enumerate(episode.segments)
    ]
    text = json.dumps(rows, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def missing(episode: Episode, traced: Traced) -> dict[str, str]:
    """Quantities without a value in this episode, and why."""
    found = {}
    for name in NAMES:
        if not any(math.isfinite(v) for rows in traced.values() for v in rows[name]):
            found[name] = _ABSENT[name] if traced else _UNTRACED
    if not any((segment.version != NO_VERSION).any() for segment in episode.segments):
        why = f"the {episode.actor} acted: no policy sampled these tokens"
        found |= {"logprob": why, "version": why}
    return found


def _plain(values: Sequence[float]) -> list[float | None]:
    return [round(v, 6) if math.isfinite(v) else None for v in values]


def _repeats(episode: Episode) -> dict[str, str]:
    if (prefix := episode.prefix) is None:
        return {}
    return {"repeats": f"{prefix.of} up to its turn {prefix.turns}"}


def _costs(episode: Episode) -> Row:
    costs, times = episode.costs, episode.times
    return {
        "turns": costs.turns,
        "sampled tokens": costs.sampled_tokens,
        "observation tokens": costs.observation_tokens,
        "tool calls": costs.tool_calls,
        "tokens lost to retries": costs.lost_tokens,
        "seconds": round(times.seconds, 3),
        "of these sampling": round(times.engine_seconds, 3),
        "of these in tools": round(times.tool_seconds, 3),
    }


def _segment(episode: Episode, number: int, words: Words) -> Row:
    segment = episode.segments[number]
    # A line break is a token like any other: it needs a sign that can be coloured.
    texts = [visible(text).replace("\n", "↵\n") for text in words.of(segment.ids)]
    turns: list[Row] = []
    for place, span in enumerate(segment.spans):
        if not turns or turns[-1]["turn"] != span.turn:
            owned = _owned(episode.rewards, OwnerKind.TURN, span.turn)
            turns.append({"turn": span.turn, "spans": [], "rewards": owned})
        owned = [
            row
            for row in _owned(episode.rewards, OwnerKind.SPAN, place)
            if row["segment"] == number
        ]
        turns[-1]["spans"].append(_span(segment, span, texts) | {"rewards": owned})
    made = None if segment.parent is None else f"from segment {segment.parent}"
    facts = [str(segment.kind), made, segment.origin, segment.agent]
    return {
        "number": number,
        "tokens": len(segment),
        "facts": ", ".join(f for f in facts if f),
        "turns": turns,
    }


def _span(segment: Segment, span: Span, texts: Sequence[str]) -> Row:
    part = slice(span.start, span.end)
    sampled = segment.version[part] != NO_VERSION
    total = float(segment.logprob[part][sampled].sum()) if sampled.any() else None
    return {
        "kind": str(span.kind),
        "name": visible(span.name),
        "start": span.start,
        "texts": texts[part],
        "sampled": int(segment.action[part].sum()),
        "logprob": total,
    }


def _owned(rewards: Sequence[Reward], kind: OwnerKind, index: int) -> list[Row]:
    return [_reward(r) for r in rewards if r.owner.kind is kind and r.owner.index == index]


def _gate(gate: Gate) -> Row:
    return {"reward": gate.reward, "reason": visible(gate.reason)}


def _reward(reward: Reward) -> Row:
    owner = reward.owner
    return {"component": reward.component, "value": reward.value, "segment": owner.segment}
