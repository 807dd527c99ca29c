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
    """Judges a finished episode. Raises ``VerifierFault`` when it fails itself."""

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
