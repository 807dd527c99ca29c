"""What a starting method assumes of the task, and in which words a task breaks that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hexad.advice.facts import Facts
from hexad.advice.measured import GAIN


@dataclass(frozen=True, slots=True)
class Broken:
    """An ``assumption`` that the task breaks and the answers or measurements that say so.

    ``until``: what would have to be measured first; empty where no measurement could help.
    """

    assumption: str
    because: str
    until: str = ""


MEASURE_VERIFIER = (
    "where an independent verifier exists, `hexad check RECIPE` compares them (--check); else play "
    "some tasks with the policy to begin with, judge at least 40 right and 40 wrong episodes "
    "independently, and give them to `hexad check RECIPE --labels FILE`, or write how many the "
    "verifier accepted into feedback.agreement"
)
MEASURE_BARRIER = "run `hexad check RECIPE` and give its file with --check"


def demonstrations(facts: Facts) -> Broken | None:
    """Expert actions, from a source that may be used."""
    if facts["feedback.demonstrations"] == "none":
        return Broken("there are expert actions to imitate", "feedback.demonstrations: none")
    if not facts.playable and facts["feedback.demonstrations_from"] == "expert":
        because = "the environment's own demonstrations would be played where nothing can be undone"
        fix = "record demonstrations and name their folder in feedback.demonstrations_from"
        return Broken("demonstrations are recorded", because, fix)
    return None


def pairs(facts: Facts) -> Broken | None:
    """Preference pairs."""
    if facts["feedback.preferences"] == "none":
        return Broken("there are pairs with a stable verdict", "feedback.preferences: none")
    return None


def rollouts(facts: Facts) -> Broken | None:
    """The policy may act while it learns."""
    assumption = "the policy may sample new episodes"
    if facts["data.irreversible"]:
        because = "data.irreversible: true; exploring is never the answer to irreversible risk"
        return Broken(assumption, because)
    if facts["data.collection"] == "fixed":
        return Broken(assumption, "data.collection: fixed")
    return None


def reward(facts: Facts) -> Broken | None:
    """Somebody scores episodes, and the score agrees with the goal."""
    outcome, goal = facts["feedback.outcome"], facts["feedback.goal"]
    if outcome == "none":
        return Broken("finished episodes are scored", "feedback.outcome: none")
    if goal == "subjective" and outcome == "exact":
        because = "feedback.goal: subjective, feedback.outcome: exact"
        return Broken("the score measures the goal", because)
    assumption, state = "the verifier agrees with an independent judgement", facts.agreement.state
    if state == "failed":
        return Broken(assumption, facts.agreement.text)
    if state in ("few", "unmeasured"):
        more = "too few to tell: " if state == "few" else ""
        return Broken(assumption, more + facts.agreement.text, MEASURE_VERIFIER)
    return None


def success(facts: Facts) -> Broken | None:
    """Some episode succeeds, at least after imitation."""
    assumption = "some attempt succeeds"
    if facts.hopeless and demonstrations(facts) is not None:
        because = "success is practically zero, and there is nothing to imitate first"
        return Broken(assumption, because, "easier tasks, demonstrations, or checkable steps")
    return None


def candidates(facts: Facts) -> Broken | None:
    """Several attempts at a task, with a contrast among them."""
    if facts["critic.candidates"] == "single":
        assumption = "one task can be attempted at least twice (K >= 2)"
        return Broken(assumption, "critic.candidates: single")
    groups = facts.measured.groups
    if facts.flat and groups is not None:
        return Broken("attempts at one task differ in reward", f"{groups.source}: {groups.text}")
    return None


def critic(facts: Facts) -> Broken | None:
    """A value that can be learned."""
    if facts["critic.value"] == "poor":
        number = facts.measured.explained_variance
        seen = f" ({number.source}: explained variance {number.value:.2f})" if number else ""
        return Broken("the value of a state can be learned", f"critic.value: poor{seen}")
    return None


def stream(facts: Facts) -> Broken | None:
    """Workers that never stop sampling."""
    if facts["data.collection"] != "continuous":
        because = f"data.collection: {facts['data.collection']}"
        return Broken("episodes arrive all the time", because)
    return None


def barrier(facts: Facts) -> Broken | None:
    """A profile shows that waiting is the main cost."""
    assumption = f"a barrier profile shows that not waiting gains at least {GAIN:g} times"
    profile = facts.measured.profile
    if profile is None:
        return Broken(assumption, "no profile was given", MEASURE_BARRIER)
    if not facts.barrier:
        return Broken(assumption, f"{profile.source}: {profile.text}")
    return None


REQUIREMENTS: Mapping[str, Callable[[Facts], Broken | None]] = {
    "demonstrations": demonstrations,
    "pairs": pairs,
    "rollouts": rollouts,
    "reward": reward,
    "success": success,
    "candidates": candidates,
    "critic": critic,
    "stream": stream,
    "barrier": barrier,
}
"""By name, as the rows of starting methods give them."""
ONLINE = ("rollouts", "reward", "success")
"""What every method that samples assumes."""


def broken(names: tuple[str, ...], facts: Facts) -> list[Broken]:
    """Those of the named assumptions that do not hold, in order."""
    return [found for name in names if (found := REQUIREMENTS[name](facts)) is not None]
