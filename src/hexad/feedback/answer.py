"""Verifiers of a final answer that is one integer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hexad.contract.digest import canonical_json
from hexad.contract.episode import Episode
from hexad.contract.messages import Message, Role
from hexad.contract.verdict import Verdict, VerdictStatus

_SPACE = " \t\r\n"
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
"""The one spelling of an integer; ASCII digits only."""
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Answer:
    """``value`` is the integer that was answered, else ``problem`` says why there is none."""

    value: int | None
    problem: str = ""
    text: str = ""


def final_answer(episode: Episode, transcript: tuple[Message, ...]) -> Answer:
    """The final answer of an episode: its last message, if it is the assistant's and calls nothing.

    Legal is exactly one integer of at most 18 digits in its canonical spelling (no plus sign, no
    leading zero, no ``-0``, no point, ASCII digits), with ASCII white space around it.
    """
    last = transcript[-1] if transcript else None
    if episode.ending.truncated or last is None or last.role is not Role.ASSISTANT:
        return Answer(None, "no answer")
    if last.tool_calls:
        return Answer(None, "no answer")
    text = last.content.strip(_SPACE)
    if not _INTEGER.fullmatch(text):
        return Answer(None, "not an integer", text)
    return Answer(int(text), text=text)


def judge_answer(answer: Answer, expected: int) -> Verdict:
    """Correct if equal to ``expected``; invalid for an illegal form; wrong for no answer at all."""
    if answer.value is not None:
        right = answer.value == expected
        status = VerdictStatus.CORRECT if right else VerdictStatus.WRONG
    else:
        gave_up = answer.problem == "no answer"
        status = VerdictStatus.WRONG if gave_up else VerdictStatus.INVALID
    evidence = {"answer": ascii(answer.text)[1:-1][:_SHOWN], "expected": expected}
    if answer.problem:
        evidence["problem"] = answer.problem
    score = 1.0 if status is VerdictStatus.CORRECT else 0.0
    return Verdict(status, score, canonical_json(evidence))
