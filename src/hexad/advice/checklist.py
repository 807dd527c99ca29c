"""The seed's order of work in eight steps: what is done, by whom, and what is open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hexad.advice.facts import Facts
from hexad.advice.path import Path
from hexad.recipe.methods import METHODS

State = Literal["done", "open", "failed"]
SECTION = "一套可执行的选择顺序"


@dataclass(frozen=True, slots=True)
class Work:
    """One step of eight; ``state`` looks at the facts and says why."""

    title: str
    asks: str
    state: Callable[[Facts, Path], tuple[State, str]]
    source: str


@dataclass(frozen=True, slots=True)
class Item:
    """A step with its state in this task."""

    number: int
    title: str
    asks: str
    state: State
    because: str


def _success(facts: Facts, path: Path) -> tuple[State, str]:
    if facts["data.irreversible"] and not facts["data.sandbox"]:
        return "open", "actions cannot be undone, and no hard gate stands before them"
    if facts["feedback.outcome"] == "none" and facts["feedback.preferences"] == "none":
        return "open", "nobody says what success is"
    goal = facts["feedback.goal"]
    return "done", f"stated: goal {goal}; endings and faults are told apart by the contract"


def _feedback(facts: Facts, path: Path) -> tuple[State, str]:
    if facts["feedback.outcome"] == "none":
        return "open", "there is no verifier; audit pairs or demonstrations instead"
    states: dict[str, State] = {"passed": "done", "failed": "failed"}
    return states.get(facts.agreement.state, "open"), facts.agreement.text


def _actions(facts: Facts, path: Path) -> tuple[State, str]:
    unit = facts["action.unit"]
    return "done", f"the recorder marks sampled tokens, turns and spans; one decision is a {unit}"


def _regime(facts: Facts, path: Path) -> tuple[State, str]:
    roles = "behaviour, sampled, old, current and reference are told apart in every batch"
    return "done", f"data is collected: {facts['data.collection']}; {roles}"


def _baseline(facts: Facts, path: Path) -> tuple[State, str]:
    groups, critic = facts.measured.groups, facts.measured.explained_variance
    if groups is None and critic is None:
        return "open", "neither the contrast of groups nor a critic has been measured"
    seen = [f"{groups.source}: {groups.text}"] if groups else []
    seen += [f"{critic.source}: explained variance {critic.value:.2f}"] if critic else []
    return "done", "; ".join(seen)


def _timing(facts: Facts, path: Path) -> tuple[State, str]:
    profile = facts.measured.profile
    if profile is not None:
        return "done", f"{profile.source}: {profile.text}"
    return "open", "no barrier profile: synchronous, until one shows a gain"


def _controls(facts: Facts, path: Path) -> tuple[State, str]:
    methods = [step.method for step in (*path.steps, *path.later)]
    controls = [name for name in ("sft", "reinforce") if name not in methods]
    controls.append("rejection sampling")
    if any(_overlaps(name) for name in methods):
        controls.append("the synchronous recipe")
    return "open", f"run at one budget: {', '.join(controls)}"


def _overlaps(method: str) -> bool:
    record = METHODS.get(method)
    return record is not None and record.values().get("timing.mode") == "asynchronous"


def _ablation(facts: Facts, path: Path) -> tuple[State, str]:
    return "open", "change one of reward, denominator, group size, clip, filter, parallelism a run"


WORK: tuple[Work, ...] = (
    Work(
        "define success and what is forbidden",
        "end state, failure, truncation, faults, constraints that nothing may buy off",
        _success,
        f"{SECTION}, 1",
    ),
    Work(
        "validate the feedback",
        "agreement of verifier or preference with an independent outcome, before optimising it",
        _feedback,
        f"{SECTION}, 2",
    ),
    Work(
        "mark the actions",
        "boundaries of token, span, turn, tool call and observation",
        _actions,
        f"{SECTION}, 3",
    ),
    Work(
        "confirm the data regime",
        "who behaviour, current, old and reference policy are",
        _regime,
        f"{SECTION}, 4",
    ),
    Work(
        "choose the baseline by how episodes are sampled",
        "cheap candidates: rloo or grpo first; one attempt or long credit: a critic",
        _baseline,
        f"{SECTION}, 5",
    ),
    Work(
        "choose the timing by the real bottleneck",
        "asynchrony only where a profile shows that waiting dominates",
        _timing,
        f"{SECTION}, 6",
    ),
    Work(
        "try to refute the complexity",
        "sft, rejection sampling, synchronous training, plain Monte Carlo at the same budget",
        _controls,
        f"{SECTION}, 7",
    ),
    Work(
        "ablate axis by axis",
        "never change several of them and thank the name of an algorithm",
        _ablation,
        f"{SECTION}, 8",
    ),
)
"""All eight."""


def checklist(facts: Facts, path: Path) -> tuple[Item, ...]:
    """The eight steps for this task."""
    items = []
    for number, work in enumerate(WORK, start=1):
        state, because = work.state(facts, path)
        items.append(Item(number, work.title, work.asks, state, because))
    return tuple(items)
