"""Stored episodes played again: log-probs, tools, rewards and endings must come out the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from hexad.contract.ending import EndingKind
from hexad.contract.episode import Actor, Episode
from hexad.contract.faults import Fault
from hexad.contract.messages import Message, Role
from hexad.environments.guard import uncontained
from hexad.environments.replay import Replayed, replay, turns_of
from hexad.evidence.archive import Archive
from hexad.evidence.metrics import MISMATCH
from hexad.learner import checkpoint
from hexad.learner.assemble import assemble
from hexad.learner.pack import dealt
from hexad.learner.ranks import Single
from hexad.learner.root import Root
from hexad.policy.policy import Policy
from hexad.rollout.build import policy_of

_THEIRS = frozenset(
    {
        EndingKind.TERMINAL,
        EndingKind.POLICY_STOP,
        EndingKind.INVALID_ACTION,
        EndingKind.BUDGET_TERMINAL,
    }
)
"""Endings that the environment decides."""
LOGPROBS, STATES, PAY = (
    "log-probs",
    "states, tool results and endings",
    "rewards, process signals and gates",
)
FACTS = {
    LOGPROBS: "no checkpoint of the one version that sampled them is kept",
    STATES: "the environment was not played again, or failed",
    PAY: "the verdict is another one",
}
"""What is compared, and why it may not have been."""
Row = dict[str, Any]


def reproduce(archive: Archive, count: int) -> Row:
    """Play up to ``count`` stored episodes again, those of kept checkpoints before others.

    Log-probs are those of the checkpoint of the version that sampled them, within what rounding
    explains. Tools are executed again where a reset undoes them; elsewhere rewards are compared as
    far as the feedback, and not the environment, gave them. Faulted episodes and those of experts
    are left out. ``checked`` counts the episodes by what was compared, ``not_checked`` names the
    rest. ``reproduced`` is false where anything differs, and ``None``, which is no success, where
    no log-prob was compared.
    """
    kept = checkpoint.kept(archive.part.folder)
    episodes = _sample(archive, set(kept), count)
    policies: dict[int, Policy] = {}
    rows = []
    for episode in episodes:
        rows.append(_again(archive, episode))
        version = _version(episode)
        if version in kept:
            policy = policies.get(version) or _policy(archive, str(kept[version]))
            policies[version] = policy
            found = _logprobs(archive, policy, episode)
            rows[-1] |= found | {"differs": [*rows[-1]["differs"], *found.get("differs", ())]}
    bound = MISMATCH[archive.recipe.system.dtype]
    checked = Counter(name for row in rows for name in row.pop("checked"))
    gaps = [row["logprob"] for row in rows if "logprob" in row]
    checked[LOGPROBS] = len(gaps)
    differing = [row for row in rows if row["differs"]]
    return {
        "stage": archive.part.name,
        "episodes": len(rows),
        "logprob": {"episodes": len(gaps), "largest": max(gaps, default=None), "bound": bound},
        "executed": not uncontained(archive.family),
        "verifier": {
            "same": all(e.provenance.verifier == archive.feedback.digest for e in episodes),
            "now": archive.feedback.digest,
        },
        "checked": {name: checked[name] for name in FACTS},
        "not_checked": _lacking(checked, len(rows), sum(row.pop("theirs") for row in rows)),
        "differs": differing,
        "reproduced": False if differing else True if gaps else None,
    }


def _lacking(checked: Counter[str], episodes: int, theirs: int) -> list[str]:
    """What was compared for none or for only some of ``episodes``, and why.

    ``theirs`` rewards came from an environment that was not played again.
    """
    if not episodes:
        return ["anything: no stored episode could be played again"]
    lacking = [
        f"{name} of {episodes - checked[name]} of {episodes} episodes: {why}"
        for name, why in FACTS.items()
        if checked[name] < episodes
    ]
    if theirs:
        lacking.append(f"{theirs} rewards that the environment gave: it was not played again")
    return lacking


def _sample(archive: Archive, kept: set[int], count: int) -> list[Episode]:
    """Evenly over the steps whose checkpoints are kept; over the last step where none is."""
    held = archive.steps
    steps = [step for step in held if step in kept] or held[-1:]
    found = [
        episode
        for episode in archive.episodes(steps)
        if not episode.faulted and episode.actor is Actor.POLICY and episode.segments
    ]
    stride = max(1, len(found) // count)
    return found[::stride][:count]


def _version(episode: Episode) -> int:
    """The one version that sampled all of it, or -1."""
    versions = {version for version, _ in episode.provenance.versions}
    return versions.pop() if len(versions) == 1 else -1


def _policy(archive: Archive, folder: str) -> Policy:
    recipe = archive.recipe
    model = recipe.policy.model_copy(update={"model": folder})
    return policy_of(recipe.model_copy(update={"policy": model}))


@torch.no_grad()
def _logprobs(archive: Archive, policy: Policy, episode: Episode) -> Row:
    """The largest difference to what was recorded, and a complaint where it is beyond the bound."""
    batch, root = assemble([episode]), Root(policy.model)
    recipe = archive.recipe
    gap = 0.0
    for micro in dealt(batch, batch.action, Single(), recipe.system.micro_batch_tokens):
        moved = micro.to(torch.device(recipe.system.device))
        read = root(
            moved.ids, moved.select, moved.targets, recipe.policy.sampling.temperature, moved.sets
        )
        difference = read.logprob.cpu().double() - batch.behaviour[micro.tokens].double()
        gap = max(gap, float(difference.abs().max()))
    found: Row = {"logprob": gap}
    bound = MISMATCH[recipe.system.dtype]
    if not gap <= bound:
        found["differs"] = [f"a log-prob differs by {gap:.3g}, more than {bound:g}"]
    return found


def _again(archive: Archive, episode: Episode) -> Row:
    """What an episode's second playing does not have in common with the first.

    ``checked`` names what was compared; ``theirs`` counts rewards that could not be.
    """
    task, transcript = archive.task(episode), archive.transcript(episode)
    differs: list[str] = []
    checked: list[str] = []
    rewards = None
    if not uncontained(archive.family):
        turns = turns_of(episode, transcript)
        try:
            again, _ = replay(archive.family, task, episode.seed, turns, refusals=episode.refusals)
        except Fault as fault:
            differs.append(f"the environment failed: {fault}")
        else:
            differs += _environment(episode, transcript, again)
            checked.append(STATES)
            rewards = again.rewards
    bare = replace(episode, verdict=None, rewards=rewards or (), signals=(), gate=None)
    judged = archive.feedback.apply(task, bare, transcript)
    theirs = 0
    if (other := _verdicts(episode, judged)) is not None:
        differs.append(other)
    else:
        theirs = len(episode.rewards) - len(judged.rewards) if rewards is None else 0
        checked.append(PAY)
        differs += _pay(replace(episode, rewards=episode.rewards[max(theirs, 0) :]), judged)
    return {
        "episode_id": episode.episode_id,
        "differs": differs,
        "checked": checked,
        "theirs": max(theirs, 0),
    }


def _verdicts(was: Episode, now: Episode) -> str | None:
    """How two verdicts differ, if they do; their evidence is no part of that."""
    told = ["none" if v is None else f"{v.status} ({v.score})" for v in (was.verdict, now.verdict)]
    return None if told[0] == told[1] else f"the verdict was {told[0]}, now {told[1]}"


def _pay(was: Episode, now: Episode) -> list[str]:
    """Differences in whatever decides the training reward of a verdict."""
    pairs = {
        "the rewards were": (was.rewards, now.rewards),
        "the process signals said": (was.signals, now.signals),
        "the gate was": (was.gate, now.gate),
    }
    return [f"{name} {old}, now {new}" for name, (old, new) in pairs.items() if old != new]


def _environment(episode: Episode, transcript: Sequence[Message], again: Replayed) -> list[str]:
    """Differences in states, tool results and the ending."""
    differs = []
    if again.states[0] != episode.initial_state:
        differs.append("it starts in another state")
    for turn, (now, was) in enumerate(zip(again.states, episode.states, strict=False), start=1):
        if now != was:
            differs.append(f"turn {turn} begins in another state")
            break
    heard, said = _tools(transcript), _tools(again.messages)
    if heard != said:
        pairs = zip(heard, said, strict=False)
        call = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(heard), len(said)))
        differs.append(f"tool result {call + 1} of {len(heard)} is another")
    theirs = again.ending.kind if again.ending is not None else None
    if (episode.ending.kind if episode.ending.kind in _THEIRS else None) != theirs:
        differs.append(f"it ended as {episode.ending.kind}, now as {theirs or 'not at all'}")
    return differs


def _tools(messages: Sequence[Message]) -> list[str]:
    """Tool results; an empty one leaves no token, and so no trace in a transcript."""
    return [m.content for m in messages if m.role is Role.TOOL and m.content]
