"""Answers and measurements for the tests of the advisor."""

from pathlib import Path

from hexad.advice.advise import advise
from hexad.advice.measured import BarrierProfile, Groups, Lag, Measured, Number
from hexad.advice.questions import Questionnaire
from hexad.recipe.read import Document, merge

SOURCE = Document(Path("task.yaml"), {}, {})
PASSED = {"right": 60, "right_accepted": 60, "wrong": 60, "wrong_accepted": 1}
FAILED = {"right": 60, "right_accepted": 60, "wrong": 60, "wrong_accepted": 30}
FEW = {"right": 5, "right_accepted": 5, "wrong": 5, "wrong_accepted": 0}
READY = {
    "feedback": {
        "goal": "outcome",
        "protocol": "learned",
        "outcome": "exact",
        "agreement": PASSED,
    }
}
"""Nothing stands against reinforcement: an exact verifier that was looked at."""
GAIN = BarrierProfile("check", (Lag(1, 2.0, 0.01), Lag(2, 3.9, 0.02), Lag(4, 4.0, 0.05)), 5.0, 0.2)
NO_GAIN = BarrierProfile("check", (Lag(1, 1.05, 0.0), Lag(4, 1.1, 0.0)), 1.2, 0.9)
CONTRAST = Groups("run", 10, 5, 3, 2)
SOLVED = Groups("run", 10, 1, 9, 0)
FLAT = Groups("run", 10, 1, 1, 8)


def ask(*changes, **measured):
    """Advice on the answers that ``READY`` and ``changes`` come to."""
    tree = READY
    for change in changes:
        tree = merge(tree, change)
    return advise(Questionnaire.model_validate(tree, strict=True), Measured(**measured), SOURCE)


def number(value):
    return Number(value, "run")


def methods(advice):
    return [step.method for step in advice.path.steps]
