"""From facts to a path: imitation, preference, reinforcement - each only where it is grounded."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from hexad.advice.critics import CONDITIONS
from hexad.advice.facts import Facts
from hexad.advice.requirements import ONLINE, Broken, broken

Reasons = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One stage: a ``method`` (a record's name) of the ``kind`` sft, dpo or rl, and why."""

    kind: str
    method: str
    reasons: Reasons


@dataclass(frozen=True, slots=True)
class Path:
    """``steps`` to take now. ``later`` ones wait for what ``first`` says to do before.

    ``refused``: the assumptions of reinforcement learning that no measurement could mend here.
    """

    steps: tuple[Step, ...]
    later: tuple[Step, ...]
    first: tuple[str, ...]
    refused: tuple[Broken, ...]


def compose(facts: Facts, runs: Collection[str]) -> Path:
    """The path for ``facts``; ``runs`` names the method records that run in this version."""
    obstacles = broken(ONLINE, facts)
    possible = not obstacles or all(each.until for each in obstacles)
    offline = [*_imitation(facts, alone=not possible), *_preference(facts, alone=not possible)]
    online = [_reinforcement(facts, runs)] if possible and _wanted(facts, offline) else []
    if obstacles and online:
        steps, later = offline, online
        first = [each.until for each in obstacles]
    else:
        steps, later, first = [*offline, *online], [], []
    if len(steps) > 1 and (why := facts.ungated):
        # Without an evaluation in between nobody knows whether a stage may follow.
        later, steps = [*steps[1:], *later], steps[:1]
        first.append(f"{steps[0].method} has to be evaluated: {why}")
    refused = () if possible else tuple(each for each in obstacles if not each.until)
    return Path(tuple(steps), tuple(later), tuple(first), refused)


def _imitation(facts: Facts, *, alone: bool) -> list[Step]:
    if broken(("demonstrations",), facts):
        return []
    kind = facts["feedback.demonstrations"]
    if facts["feedback.protocol"] == "unlearned":
        why = f"the protocol is not learned, and there are {kind} demonstrations"
    elif alone and facts["feedback.preferences"] == "none":
        why = f"{kind} demonstrations are all there is to learn from"
    else:
        return []
    bound = "it teaches neither recovery nor anything that they do not show"
    return [Step("sft", "sft", (why, bound))]


def _preference(facts: Facts, *, alone: bool) -> list[Step]:
    if broken(("pairs",), facts):
        return []
    if facts["feedback.goal"] != "outcome":
        return [Step("dpo", "dpo", ("success is a matter of judgement, and pairs are stable",))]
    if alone:
        why = "the policy may not be reinforced, and pairs need no new rollouts"
        return [Step("dpo", "dpo", (why,))]
    return []


def _wanted(facts: Facts, offline: list[Step]) -> bool:
    """Reinforcement follows, unless pairs already serve a subjective goal in a costly world."""
    paired = any(step.kind == "dpo" for step in offline)
    subjective = facts["feedback.goal"] == "subjective"
    return not (paired and subjective and facts["data.trials"] == "costly")


def _reinforcement(facts: Facts, runs: Collection[str]) -> Step:
    """The baseline by how episodes are sampled, the timing by the measured bottleneck."""
    grouped, learned = not broken(("candidates",), facts), not broken(("critic",), facts)
    if facts["action.overflow"] and learned and "compactionrl" in runs:
        why = "contexts overflow: credit must reach across the segments of one episode"
        return Step("rl", "compactionrl", (why, *table(facts)))
    if not broken(("stream", "barrier"), facts):
        return Step("rl", *_asynchronous(facts, learned=learned))
    late = facts["credit.horizon"] == "long" and facts["credit.reward"] != "end"
    if late and facts["critic.value"] == "learnable":
        why = "episodes are long and paid on the way: credit by state needs a value"
        return Step("rl", "ppo", (why, *table(facts)))
    if grouped:
        return Step("rl", *_group(facts))
    if learned:
        why = "attempts at one task cannot be compared, so a value must say what was to be expected"
        return Step("rl", "ppo", (why, *table(facts)))
    why = "attempts cannot be compared and no value can be learned: plain Monte Carlo is left"
    return Step("rl", "reinforce", (why, *table(facts)))


def _asynchronous(facts: Facts, *, learned: bool) -> tuple[str, Reasons]:
    profile = facts.measured.profile
    gain = f"{profile.source}: {profile.text}" if profile else ""
    if learned:
        return "sao", (gain, "a value replaces the group, so nothing waits for its slowest member")
    return "areal", (gain, "no value can be learned, so the whole batch is the baseline")


def _group(facts: Facts) -> tuple[str, Reasons]:
    why = "several attempts at one task are cheap: their mean is the baseline, no critic is needed"
    if facts["credit.scale"] == "varied":
        scale = "rewards differ in scale from task to task: dividing by the group's deviation helps"
        return "grpo", (why, scale, *table(facts))
    scale = (
        "rewards have one scale: leaving the attempt out of its own baseline is enough, and groups "
        "of little deviation are not blown up"
    )
    return "rloo", (why, scale, *table(facts))


def table(facts: Facts) -> Reasons:
    """What each row of the critic table says of this task: conditions, not votes."""
    found = []
    for row in CONDITIONS:
        if not row.answer:
            continue
        free = facts[row.answer] in row.free_values
        side, text = ("critic-free", row.critic_free) if free else ("a critic", row.learned)
        found.append(f"{row.condition}: {side} is natural ({text})")
    return tuple(found)
