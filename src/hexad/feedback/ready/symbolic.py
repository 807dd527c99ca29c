"""``math``: the final answer is mathematically the stored one, by the library math-verify."""

from __future__ import annotations

import importlib.metadata
import logging
import sys
from typing import Any

from hexad.contract.digest import code_digest
from hexad.contract.episode import Episode
from hexad.contract.faults import UserError, VerifierFault
from hexad.contract.messages import Message
from hexad.contract.task import Task
from hexad.contract.verdict import Verdict
from hexad.feedback.cards import Card
from hexad.feedback.ready import common

_PACKAGES = ("math-verify", "latex2sympy2_extended", "sympy")


class MathVerifier:
    """Compares what math-verify reads in the final text with ``task.data["answer"]`` (LaTeX).

    The library's own limits work by alarm signals, which only a main thread receives; they are off,
    and the process is killed instead. An answer on which the comparison fails is invalid, once the
    stored answer has been found equal to itself: that is then not the verifier's failure.
    """

    version = "1"
    timeout, memory = 5.0, 1024
    card = Card(
        "math",
        checks="math-verify reads the last message (boxed, LaTeX or plain) as an expression that "
        "equals the task's stored answer",
        blind="a wrong derivation, and several answers in one message: the library picks one; "
        f"simplification may fail on exotic forms; {common.BLIND}",
        task="answer: LaTeX or plain text",
    )

    def __init__(self, family: object) -> None:
        try:
            import math_verify
        except ImportError as error:
            fix = "pip install 'hexad[math]'"
            where = "feedback.verifier"
            raise UserError("math needs the package math-verify", where=where, fix=fix) from error
        self._library: Any = math_verify
        logging.getLogger("math_verify").setLevel(logging.ERROR)

    @property
    def digest(self) -> str:
        """Digest of version, the libraries' versions and source."""
        versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
        return code_digest("math", self.version, versions, sys.modules[__name__], common)

    def verify(self, task: Task, episode: Episode, transcript: tuple[Message, ...]) -> Verdict:
        """The verdict. Raises ``VerifierFault`` for a stored answer that cannot be read."""
        said = str(common.stored(task, "answer", (int, float, str)))
        expected = self._read(_marked(said))
        if not expected or not self._equal(expected, expected):
            raise VerifierFault(f"math-verify cannot read the answer of task {task.task_id}")
        text = common.final_text(episode, transcript)
        if text is None:
            return common.no_answer()
        try:
            found = self._read(text) or self._read(_marked(text))
            correct = bool(found) and self._equal(expected, found)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - the library fails on what the policy wrote
            return common.invalid(f"{type(error).__name__} in math-verify", text)
        if not found:
            return common.invalid("no expression", text)
        evidence = {"read": _written(found[0]), "expected": common.shown(said)}
        return common.right(correct, answer=common.shown(text), **evidence)

    def _read(self, text: str) -> list[Any]:
        found: list[Any] = self._library.parse(text, parsing_timeout=None)
        return found

    def _equal(self, expected: list[Any], found: list[Any]) -> bool:
        equal = self._library.verify(expected, found, timeout_seconds=None, raise_on_error=True)
        return bool(equal)


def _marked(text: str) -> str:
    """``text`` as LaTeX, which the library does not look for without a mark."""
    return text if "$" in text or "\\boxed" in text else f"${text}$"


def _written(expression: Any) -> str:
    """The beginning of ``expression`` as text, where it can be written."""
    try:
        return common.shown(str(expression))
    except (ValueError, RecursionError) as error:  # more digits, or deeper, than Python writes
        return f"not to be written: {type(error).__name__}"
