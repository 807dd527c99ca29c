"""The seed's selection matrix: eight task shapes, each with a first version and its price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hexad.advice.facts import Facts
from hexad.advice.triggers import MATRIX


@dataclass(frozen=True, slots=True)
class Shape:
    """A row: which answers make a task of this shape, and what follows.

    ``first`` names starting methods (``hexad.advice.starts``); rows that ask for a design instead
    have none. ``triggers`` are keys of ``TRIGGERS``; a row without any must never be left.
    """

    key: str
    task: str
    when: Mapping[str, tuple[Any, ...]]
    first: tuple[str, ...]
    design: str
    companions: tuple[str, ...]
    triggers: tuple[str, ...]
    source: str

    def fits(self, facts: Facts) -> bool:
        """Whether the task has this shape; a task may have several."""
        return all(facts[key] in values for key, values in self.when.items())


SHAPES: tuple[Shape, ...] = (
    Shape(
        "experts",
        "rich expert trajectories, and the tool protocol is not learned yet",
        {"feedback.demonstrations": ("rich",), "feedback.protocol": ("unlearned",)},
        ("sft",),
        "imitate first",
        (
            "the action mask covers the expert's own actions alone",
            "failed episodes are kept and looked at",
            "closed-loop evaluation, not the loss on demonstrations alone",
        ),
        ("closed-loop-errors",),
        f"{MATRIX}, row 1",
    ),
    Shape(
        "subjective",
        "quality is subjective, and trials are costly",
        {"feedback.goal": ("subjective", "both"), "data.trials": ("costly",)},
        ("dpo",),
        "learn from pairs",
        (
            "where pairs come from is written down",
            "the reference policy is the one that training starts from",
            "an audit of length and of the states that pairs cover",
        ),
        ("outside-the-data",),
        f"{MATRIX}, row 2",
    ),
    Shape(
        "verifiable",
        "the end state can be checked exactly, and several attempts at a task are cheap",
        {"feedback.outcome": ("exact",), "critic.candidates": ("cheap",)},
        ("rloo", "grpo"),
        "compare attempts at one task",
        (
            "the share of groups with right and wrong members is reported",
            "all sampled tokens are counted, those of groups without a contrast included",
        ),
        ("no-contrast", "heavy-barrier"),
        f"{MATRIX}, row 3",
    ),
    Shape(
        "single-attempt",
        "one attempt a state, and reward comes late",
        {"critic.candidates": ("single",), "credit.reward": ("end",)},
        ("ppo",),
        "learn a value",
        (
            "the value is pretrained",
            "the time step of GAE is declared: token, span or turn",
            "truncated episodes bootstrap, terminated ones do not",
        ),
        ("critic-off",),
        f"{MATRIX}, row 4",
    ),
    Shape(
        "long-tail",
        "tool calls take very unequal times, and the learner is often idle",
        {"timing.durations": ("heavy_tailed",), "timing.learner": ("idle",)},
        ("critic-async",),
        "consume what is finished, once a profile shows that this pays",
        (
            "log-probs of the behaviour policy are recorded",
            "ratios, KL and reward are watched by bucket of lag",
            "a rule says what is too old, and what is dropped is counted",
        ),
        ("barrier-is-not-the-cost", "stale-dropped"),
        f"{MATRIX}, row 5",
    ),
    Shape(
        "checkable-steps",
        "intermediate states can be checked by themselves",
        {"feedback.process": ("checkable",)},
        (),
        "outcome and process signal together",
        (
            "the final test is independent of the process score",
            "episodes with high process scores and wrong outcomes are audited",
        ),
        ("process-hacked",),
        f"{MATRIX}, row 6",
    ),
    Shape(
        "overflow",
        "the context often overflows",
        {"action.overflow": (True,)},
        (),
        "compaction or a structured memory, with credit across segments",
        (
            "whether tokens of a summary are actions is declared",
            "the number of segments does not change the weight of an episode",
            "what a summary loses is measured",
        ),
        ("single-window-stronger",),
        f"{MATRIX}, row 7",
    ),
    Shape(
        "irreversible",
        "an action can do what cannot be undone",
        {"data.irreversible": (True,)},
        (),
        "offline data, a sandbox, hard constraints",
        ("gates on permissions", "a person approves"),
        (),
        f"{MATRIX}, row 8",
    ),
)
"""All eight rows. They compose: a task that has several shapes gets all their companions."""
