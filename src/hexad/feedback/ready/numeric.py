"""``numeric``: the final answer is one number, near enough to the stored one."""

from __future__ import annotations

import re
import sys
from fractions import Fraction

from hexad.contract.digest import code_digest
from hexad.contract.episode import Episode
from hexad.contract.faults import VerifierFault
from hexad.contract.messages import Message
from hexad.contract.task import Task
from hexad.contract.verdict import Verdict
from hexad.feedback.cards import Card
from hexad.feedback.ready import common

_DECIMAL = re.compile(r"[-+]?([0-9]{1,60}(\.[0-9]{0,60})?|\.[0-9]{1,60})([eE][-+]?[0-9]{1,3})?")
_QUOTIENT = re.compile(r"([-+]?[0-9]{1,60}) ?/ ?([0-9]{1,60})")


def number(text: str) -> Fraction | None:
    """The value of a decimal (``-1.5e3``) or a quotient (``1/3``); ``None`` for anything else.

    ASCII digits, no separators, no NaN or infinity, at most 60 digits on each side of the point.
    """
    if _DECIMAL.fullmatch(text):
        return Fraction(text)
    quotient = _QUOTIENT.fullmatch(text)
    if quotient is None or int(quotient[2]) == 0:
        return None
    return Fraction(int(quotient[1]), int(quotient[2]))


class NumericVerifier:
    """Correct where ``|x - expected| <= max(absolute, relative |expected|)``, in exact arithmetic.

    ``expected`` is ``task.data["answer"]``: a number, or text that :func:`number` reads.
    """

    version = "1"
    timeout, memory = common.SECONDS, common.MEMORY

    def __init__(self, family: object, relative: float = 0.0, absolute: float = 0.0) -> None:
        self._relative = Fraction(common.option("relative", relative, 0.0, 1.0))
        self._absolute = Fraction(common.option("absolute", absolute, 0.0, 1e300))
        near = f"within max({absolute:g}, {relative:g} x |answer|)"
        self.card = Card(
            "numeric",
            checks=f"the last message is one number, {near} of the answer that the task stores",
            blind=f"units, and numbers inside of text, which are invalid; {common.BLIND}",
            task="answer: number, or text such as 1/3",
        )

    @property
    def digest(self) -> str:
        """Digest of version, tolerances and source."""
        config = {"relative": str(self._relative), "absolute": str(self._absolute)}
        return code_digest("numeric", self.version, config, sys.modules[__name__], common)

    def verify(self, task: Task, episode: Episode, transcript: tuple[Message, ...]) -> Verdict:
        """The verdict. Raises ``VerifierFault`` for a task that stores no number."""
        said = common.stored(task, "answer", (int, float, str))
        expected = number(str(said))
        if expected is None:
            raise VerifierFault(f"task {task.task_id} stores no number: {common.shown(said)}")
        text = common.final_text(episode, transcript)
        if text is None:
            return common.no_answer()
        value = number(text)
        if value is None:
            return common.invalid("not a number", text)
        near = abs(value - expected) <= max(self._absolute, self._relative * abs(expected))
        return common.right(near, answer=common.shown(text), expected=common.shown(str(said)))
