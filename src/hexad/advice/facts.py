"""The situation that advice is given for: answers, and what measurements say instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hexad.advice.agreement import Judged, judge
from hexad.advice.contradictions import CONTRADICTIONS, Contradiction
from hexad.advice.measured import (
    BELIEVED,
    IDLE,
    NO_SUCCESS,
    TAIL,
    Measured,
)
from hexad.advice.questions import AXES, Agreement, Questionnaire

Values = Mapping[str, Any]
"""Answers by dotted key, for example ``critic.candidates``."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The answer ``key`` was ``stated``, ``measured`` says otherwise, and advice follows that."""

    key: str
    stated: str
    measured: str
    source: str


@dataclass(frozen=True, slots=True)
class Facts:
    """``values`` are what advice follows; ``stated`` what was answered."""

    values: Values
    stated: Values
    measured: Measured
    agreement: Judged
    differences: tuple[Difference, ...]
    contradictions: tuple[Contradiction, ...]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    @property
    def flat(self) -> bool:
        """Groups were measured, and too few have a contrast to compare attempts by."""
        return self.measured.groups is not None and self.measured.groups.state == "flat"

    @property
    def hopeless(self) -> bool:
        """Success was measured, and there is none to reinforce."""
        return self.measured.success is not None and self.measured.success.value < NO_SUCCESS

    @property
    def barrier(self) -> bool:
        """A profile was measured, and it shows that not waiting pays."""
        return self.measured.profile is not None and self.measured.profile.best is not None

    @property
    def playable(self) -> bool:
        """Whether the agent may act in the environment at all, be it for an evaluation."""
        return not self["data.irreversible"] or bool(self["data.sandbox"])

    @property
    def unevaluated(self) -> str:
        """Why no evaluation can be run, and what would help; empty where one can."""
        if not self.playable:
            return "actions cannot be undone: build a sandbox with hard gates"
        if self["data.collection"] == "fixed":
            return "the policy may sample no episode (data.collection: fixed): let it play a few"
        if self["feedback.outcome"] == "none":
            return "nobody scores an episode (feedback.outcome: none): have some judged"
        return ""

    @property
    def ungated(self) -> str:
        """Why no evaluation can say whether the next stage may begin; empty where one can."""
        other = self["feedback.goal"] == "subjective" and self["feedback.outcome"] == "exact"
        text = "an exact check does not measure a subjective goal: have some episodes judged"
        return self.unevaluated or (text if other else "")


def gather(answers: Questionnaire, measured: Measured) -> Facts:
    """Measured beats stated, and of two answers that contradict each other the cautious one."""
    stated = answered(answers)
    found = tuple(row for row in CONTRADICTIONS if row.holds(stated))
    values = dict(stated)
    for row in found:
        values |= row.followed
    differences = []
    for difference, value in _differences(values, measured):
        differences.append(replace(difference, stated=str(stated[difference.key])))
        values[difference.key] = value
    agreement, denied = _agreement(values["feedback.agreement"], measured)
    return Facts(values, stated, measured, agreement, (*denied, *differences), found)


_DECISIVE = ("failed", "passed", "few")
"""Of several comparisons the first of these counts: what one has denied no other confirms."""


def _agreement(given: Agreement | None, measured: Measured) -> tuple[Judged, list[Difference]]:
    """The verifier as it was measured, or else as it was stated.

    A measurement with too few cases denies nothing that was stated.
    """
    stated = judge(given)
    found = [(judge(each.agreement), each.source) for each in measured.qualified]
    if not found:
        return stated, []
    seen, source = min(found, key=lambda pair: _DECISIVE.index(pair[0].state))
    if seen.state == "few" and given is not None:
        return stated, []
    text = Judged(seen.state, f"{source}: {seen.text}")
    if seen.state == stated.state:
        return text, []
    key = "feedback.agreement"
    return text, [Difference(key, stated.state, f"{seen.state}: {seen.text}", source)]


def answered(answers: Questionnaire) -> dict[str, Any]:
    """The answers of all axes by dotted key."""
    tree = {axis: getattr(answers, axis) for axis in AXES}
    return {
        f"{axis}.{name}": getattr(section, name)
        for axis, section in tree.items()
        for name in type(section).model_fields
    }


def _differences(values: Values, measured: Measured) -> list[tuple[Difference, Any]]:
    """Answers that a measurement denies, each with the value that it shows."""
    found: list[tuple[Difference, Any]] = []

    def deny(key: str, value: Any, text: str, source: str) -> None:
        if values[key] != value:
            found.append((Difference(key, "", text, source), value))

    success, critic = measured.success, measured.explained_variance
    if success is not None and success.value < NO_SUCCESS:
        text = f"success is {success.value:.1%}: what is not done at all was not learned"
        deny("feedback.protocol", "unlearned", text, success.source)
    if critic is not None and critic.value <= 0.0:
        text = f"explained variance is {critic.value:.2f}: no better than the mean return"
        deny("critic.value", "poor", text, critic.source)
    if critic is not None and critic.value >= BELIEVED:
        text = f"explained variance is {critic.value:.2f}"
        deny("critic.value", "learnable", text, critic.source)
    for key, value, text, source in _timing(measured):
        deny(key, value, text, source)
    return found


def _timing(measured: Measured) -> list[tuple[str, str, str, str]]:
    profile = measured.profile
    if profile is None:
        return []
    found = []
    if (tail := profile.tail) is not None:
        kind = "heavy_tailed" if tail >= TAIL else "similar"
        text = f"the p99 of an episode's seconds is {tail:.1f} times its p50"
        found.append(("timing.durations", kind, text, profile.source))
    if (use := profile.learner_use) is not None:
        kind = "idle" if use < IDLE else "busy"
        text = f"the learner works {use:.0%} of the time"
        found.append(("timing.learner", kind, text, profile.source))
    return found
