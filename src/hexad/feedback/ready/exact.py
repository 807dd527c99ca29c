"""``exact``: the final answer is the stored text."""

from __future__ import annotations

import sys

from hexad.contract.digest import code_digest
from hexad.contract.episode import Episode
from hexad.contract.messages import Message
from hexad.contract.task import Task
from hexad.contract.verdict import Verdict
from hexad.feedback.cards import Card
from hexad.feedback.ready import common


class ExactVerifier:
    """Compares the final text with ``task.data["answer"]``, code point by code point.

    ``ignore_case`` compares case-folded; ``collapse_space`` takes any run of white space as one
    space. Nothing else is normalised: not Unicode forms, not punctuation.
    """

    version = "1"
    timeout, memory = common.SECONDS, common.MEMORY
    card = Card(
        "exact",
        checks="the last message equals the answer that the task stores, white space around it off",
        blind=f"other spellings of the same answer, which are wrong; {common.BLIND}",
        task="answer: text",
    )

    def __init__(
        self, family: object, ignore_case: bool = False, collapse_space: bool = False
    ) -> None:
        self._ignore_case = common.switch("ignore_case", ignore_case)
        self._collapse_space = common.switch("collapse_space", collapse_space)

    @property
    def digest(self) -> str:
        """Digest of version, options and source."""
        config = {"ignore_case": self._ignore_case, "collapse_space": self._collapse_space}
        return code_digest("exact", self.version, config, sys.modules[__name__], common)

    def verify(self, task: Task, episode: Episode, transcript: tuple[Message, ...]) -> Verdict:
        """The verdict. Raises ``VerifierFault`` for a task that stores no text."""
        expected = common.stored(task, "answer", str)
        text = common.final_text(episode, transcript)
        if text is None:
            return common.no_answer()
        correct = self._normal(text) == self._normal(expected.strip())
        return common.right(correct, answer=common.shown(text), expected=common.shown(expected))

    def _normal(self, text: str) -> str:
        spaced = " ".join(text.split()) if self._collapse_space else text
        return spaced.casefold() if self._ignore_case else spaced
