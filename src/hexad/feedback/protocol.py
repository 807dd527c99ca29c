"""The verifier protocol and the versioned mapping from verdict to raw reward components."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from hexad.contract.episode import Episode
from hexad.contract.messages import Message
from hexad.contract.reward import Reward
from hexad.contract.task import Task
from hexad.contract.verdict import Verdict


@runtime_checkable
class Verifier(Protocol):
    """Judges a finished episode. Raises ``VerifierFault`` when it fails itself.

    One that is named as ``package.module:object`` works in processes of its own, made there again
    from the recipe: it must judge by what it is shown and by what is in the task. It may declare
    ``timeout``, the seconds that one judgement may take before it is stopped, or a function from
    the task to them (60 otherwise), ``memory``, the MB by which its process may grow, and
    ``variables``, the names of environment variables that it needs there. Beyond a limit the
    verdict is ``timeout``. ``card`` may say what it checks and what it does not
    (:class:`hexad.feedback.cards.Card`).
    """

    @property
    def digest(self) -> str:
        """Code digest: name, version, config, source."""
        ...

    def verify(self, task: Task, episode: Episode, transcript: tuple[Message, ...]) -> Verdict:
        """The verdict on ``episode``; ``transcript`` is the conversation decoded from its ids."""
        ...


@runtime_checkable
class RewardMapping(Protocol):
    """Turns a verdict into raw components. Bumping ``version`` changes the verifier digest."""

    version: str

    def rewards(self, verdict: Verdict, episode: Episode) -> tuple[Reward, ...]:
        """Components of a scored episode; the empty tuple for an unscored one."""
        ...
