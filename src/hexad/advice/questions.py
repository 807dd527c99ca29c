"""The questionnaire: one section an axis. The docstring below a field is the question asked."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hexad.recipe.axes import PolicySpec, TaskSpec
from hexad.recipe.axis import Axis, NonNegative, Positive


class Agreement(Axis):
    """How often the verifier accepted episodes whose outcome an independent source had judged."""

    right: NonNegative
    """Episodes that were right by the independent judgement."""
    right_accepted: NonNegative
    """How many of these the verifier accepted."""
    wrong: NonNegative
    """Episodes that were wrong by the independent judgement."""
    wrong_accepted: NonNegative
    """How many of these the verifier accepted all the same."""


class FeedbackAnswers(Axis):
    """Axis 1: where feedback comes from, and whether it deserves to be optimised."""

    goal: Literal["outcome", "subjective", "both"] = "outcome"
    """Is success an end state that can be told (outcome), a matter of judgement (subjective),
    or both?"""
    demonstrations: Literal["none", "few", "rich"] = "none"
    """How well do expert trajectories cover the task?"""
    protocol: Literal["learned", "unlearned"] = "unlearned"
    """Does the policy already speak the tool protocol and the output format?"""
    preferences: Literal["none", "stable"] = "none"
    """Are there pairs of answers to the same task with a stable verdict of which is better?"""
    outcome: Literal["none", "judge", "exact"] = "none"
    """Who scores a finished episode: nobody, a learned judge, an exact check of the end state?"""
    process: Literal["none", "learned", "checkable"] = "none"
    """Are steps scored: no, by a learned model, or by a check that the outcome does not enter?"""
    verifier: str | None = None
    """Name of the verifier or judge that trains, as in a recipe; ``null`` takes the environment's
    own, or an ``llm_judge`` where a judge scores."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What ``verifier`` is made with, as in a recipe."""
    process_signal: str | None = None
    """Where steps are checkable: ``remaining_operations`` (calculators) or
    ``package.module:object``, as in ``feedback.process`` of a recipe."""
    agreement: Agreement | None = None
    """The verifier against an independent judgement; ``null`` where nobody has looked."""
    demonstrations_from: str = "expert"
    """A folder of recorded episodes, or ``expert``: the environment's own demonstrations."""
    pairs_from: str | None = None
    """A folder of recorded episodes, several of a task and scored, that pairs are made of."""


class DataAnswers(Axis):
    """Axis 2: who produces data, how often it is refreshed, and what a trial may cost."""

    collection: Literal["fixed", "rounds", "continuous"] = "rounds"
    """Can the policy produce new episodes: never, in rounds, or all the time on workers?"""
    trials: Literal["cheap", "costly"] = "cheap"
    """What does one more attempt in the environment cost?"""
    irreversible: bool = False
    """Can an action of the agent do what cannot be undone?"""
    sandbox: bool = False
    """Is there a sandbox with hard gates, in which nothing outside can be touched?"""


class ActionAnswers(Axis):
    """Axis 3: what one action is."""

    unit: Literal["token", "span", "turn", "tool_call", "episode"] = "token"
    """What is one decision?"""
    weight: Literal["published", "token", "response", "prompt", "episode"] = "published"
    """What should weigh equally in the loss? published: as the method's paper says."""
    overflow: bool = False
    """Does the context often overflow, so that it must be compacted?"""


class CreditAnswers(Axis):
    """Axis 4: where reward falls."""

    reward: Literal["end", "steps", "transitions"] = "end"
    """Does reward fall at the end, at some steps, or at every transition of the environment?"""
    horizon: Literal["short", "long"] = "short"
    """Are episodes short or of like length, or long with decisions far from their effect?"""
    scale: Literal["same", "varied"] = "same"
    """Do rewards have the same scale in every task, or does it vary from task to task?"""


class CriticAnswers(Axis):
    """Axis 5: pay with a learned value, or with further attempts at the same task."""

    candidates: Literal["cheap", "single"] = "cheap"
    """Can the same task be attempted several times, cheaply and from equal initial states?"""
    value: Literal["learnable", "unknown", "poor"] = "unknown"
    """Can the value of a state be learned reliably?"""


class TimingAnswers(Axis):
    """Axis 6: whether waiting is what training spends its time on."""

    durations: Literal["similar", "heavy_tailed"] = "similar"
    """Do episodes take about equally long, or do a few take very much longer?"""
    learner: Literal["busy", "idle"] = "busy"
    """Does the learner often wait for episodes?"""


class Questionnaire(Axis):
    """A task file: the six axes, and what the recipe is to be about."""

    name: str = Field(default="advised", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the task, and of the recipe."""
    task: TaskSpec = TaskSpec()
    """As in a recipe: environment, splits and limits."""
    policy: PolicySpec = PolicySpec()
    """As in a recipe: the model to begin with."""
    episodes: Positive = 20000
    """Episodes that each stage may consume."""
    feedback: FeedbackAnswers = FeedbackAnswers()
    data: DataAnswers = DataAnswers()
    action: ActionAnswers = ActionAnswers()
    credit: CreditAnswers = CreditAnswers()
    critic: CriticAnswers = CriticAnswers()
    timing: TimingAnswers = TimingAnswers()


AXES = ("feedback", "data", "action", "credit", "critic", "timing")
"""The sections that are axes, in order."""
