"""Stored episodes played again: log-probs, tools, rewards and endings must come out the same."""

from __future__ import annotations

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
Row = dict[str, Any]


def reproduce(archive: Archive, count: int) -> Row:
    """Play up to ``count`` stored episodes again, those of kept checkpoints before others.

    Log-probs are those of the checkpoint of the version that sampled them, within what rounding
    explains; where it is not kept any more they are not checked, and counted so. Tools are executed
    again where a reset undoes them. Faulted episodes and those of experts are left out.
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
            rows[-1] |= _logprobs(archive, policy, episode)
    bound = MISMATCH[archive.recipe.system.dtype]
    differing = [row for row in rows if row["differs"]]
    gaps = [row["logprob"] for row in rows if "logprob" in row]
    return {
        "stage": archive.part.name,
        "episodes": len(rows),
        "logprob": {"episodes": len(gaps), "largest": max(gaps, default=None), "bound": bound},
        "executed": not uncontained(archive.family),
        "verifier": {
            "same": all(e.provenance.verifier == archive.feedback.digest for e in episodes),
            "now": archive.feedback.digest,
        },
        "differs": differing,
    }


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
    """What an episode's second playing does not have in common with the first."""
    task, transcript = archive.task(episode), archive.transcript(episode)
    differs: list[str] = []
    rewards = None
    if not uncontained(archive.family):
        turns = turns_of(episode, transcript)
        try:
            again, _ = replay(archive.family, task, episode.seed, turns, refusals=episode.refusals)
        except Fault as fault:
            differs.append(f"the environment failed: {fault}")
        else:
            differs += _environment(episode, transcript, again)
            rewards = again.rewards
    bare = replace(episode, verdict=None, rewards=rewards or (), signals=(), gate=None)
    judged = archive.feedback.apply(task, bare, transcript)
    was, now = episode.verdict, judged.verdict
    if was is not None and now is not None and (was.status, was.score) != (now.status, now.score):
        differs.append(
            f"the verdict was {was.status} ({was.score}), now {now.status} ({now.score})"
        )
    elif rewards is not None and judged.rewards != episode.rewards:
        differs.append(f"the rewards were {episode.rewards}, now {judged.rewards}")
    return {"episode_id": episode.episode_id, "differs": differs}


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
