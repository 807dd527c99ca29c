"""Runs a verifier so that its failures, and everybody's faults, never become a reward."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from hexad.contract.digest import canonical_json, digest
from hexad.contract.ending import CENSORED, EndingKind
from hexad.contract.episode import Episode
from hexad.contract.faults import ContractViolation, Fault, UserError, VerifierFault
from hexad.contract.messages import Message
from hexad.contract.reward import Owner, Reward
from hexad.contract.task import Task
from hexad.contract.verdict import UNSCORED, Verdict, VerdictStatus
from hexad.feedback.cards import Card, card_of
from hexad.feedback.flaky import FlakyVerifier
from hexad.feedback.isolated import IsolatedVerifier
from hexad.feedback.protocol import RewardMapping, Verifier
from hexad.feedback.terms import Terms

_BY_FAULT = {
    EndingKind.ENVIRONMENT_ERROR: VerdictStatus.ENVIRONMENT_FAILURE,
    EndingKind.INFRASTRUCTURE_ERROR: VerdictStatus.INFRASTRUCTURE_ERROR,
}


_LONGEST = 500

TimeoutMeans: TypeAlias = Literal["wrong", "unscored"]
"""What ``feedback.timeout`` may say."""


def judge(
    verifier: Verifier, task: Task, episode: Episode, transcript: tuple[Message, ...]
) -> Verdict | None:
    """The verdict on ``episode``.

    A faulted episode is not shown to the verifier: its verdict names the fault and is unscored. A
    failure of the verifier itself, or junk from it, is ``verifier_error``, unscored. A cancelled or
    paused episode has no verdict: ``None``.
    """
    if episode.ending.kind in CENSORED:
        return None
    status = _BY_FAULT.get(episode.ending.kind)
    if status is not None:
        reason = _storable(episode.ending.reason)
        return Verdict(status, None, canonical_json({"reason": reason}))
    try:
        return require_verdict(_verify(verifier, task, episode, transcript))
    except VerifierFault as fault:
        return _failed(fault)


def _failed(fault: VerifierFault) -> Verdict:
    cause = fault.__cause__ or fault
    evidence = {"type": type(cause).__name__, "message": _storable(str(cause))}
    return Verdict(VerdictStatus.VERIFIER_ERROR, None, canonical_json(evidence))


def _storable(text: str) -> str:
    """The beginning of ``text`` as valid Unicode."""
    return text[:_LONGEST].encode("utf-8", "backslashreplace").decode("utf-8")


def _verify(
    verifier: Verifier, task: Task, episode: Episode, transcript: tuple[Message, ...]
) -> Verdict:
    try:
        return verifier.verify(task, episode, transcript)
    except (Fault, UserError, ContractViolation):
        raise
    except Exception as error:
        raise VerifierFault(f"{type(error).__name__}: {error}") from error


def require_verdict(verdict: object) -> Verdict:
    """``verdict`` if it can be stored; a scored status has a score in [0, 1], others have none.

    A time-out may have none: then it is not scored. Raises ``VerifierFault`` for anything else.
    """
    if not isinstance(verdict, Verdict):
        raise VerifierFault(f"the verifier returned a {type(verdict).__name__}")
    status, score = verdict.status, verdict.score
    if not isinstance(status, VerdictStatus):
        raise VerifierFault(f"the verifier returned the status {status!r}")
    if not _text(verdict.evidence):
        raise VerifierFault(f"the evidence of a verdict is {verdict.evidence!r}, not JSON text")
    if status in UNSCORED or (status is VerdictStatus.TIMEOUT and score is None):
        legal = score is None
    else:
        legal = type(score) in (int, float) and score is not None and 0.0 <= score <= 1.0
    if not legal:
        raise VerifierFault(f"the verdict {status} has the score {score!r}")
    return verdict


def _rewards(mapping: RewardMapping, verdict: Verdict, episode: Episode) -> tuple[Reward, ...]:
    """What ``mapping`` makes of ``verdict``. Raises ``VerifierFault`` if it raises or is junk."""
    try:
        rewards = mapping.rewards(verdict, episode)
    except (Fault, UserError, ContractViolation):
        raise
    except Exception as error:  # noqa: BLE001 - the boundary to user code, told as a fault
        text = f"the reward mapping raised {type(error).__name__}: {error}"
        raise VerifierFault(text) from None
    if not isinstance(rewards, tuple):
        raise VerifierFault(f"the reward mapping returned a {type(rewards).__name__}, not a tuple")
    for reward in rewards:
        good = isinstance(reward, Reward) and _text(reward.component)
        if not good or not isinstance(reward.owner, Owner) or not _finite(reward.value):
            raise VerifierFault(f"the reward mapping returned {reward!r}")
    return rewards


def _text(value: object) -> bool:
    """Whether ``value`` is text that can be stored."""
    return isinstance(value, str) and value == value.encode("utf-8", "replace").decode("utf-8")


def _finite(value: object) -> bool:
    """Whether ``value`` is a number with a finite float64."""
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False


@dataclass(frozen=True, slots=True)
class Feedback:
    """A verifier with the mapping that turns its verdicts into rewards.

    ``timeout`` says what a verdict ``timeout`` counts as: ``wrong`` (score 0) or ``unscored``.
    ``terms`` are what training adds to a verdict's reward.
    """

    verifier: Verifier
    mapping: RewardMapping
    timeout: TimeoutMeans = "wrong"
    terms: Terms = field(default_factory=Terms)

    @property
    def digest(self) -> str:
        """The provenance's verifier digest: it changes with everything that decides a reward."""
        parts = [self.verifier.digest, self.mapping.version, self.timeout]
        return digest([*parts, self.terms.digest] if self.terms.digest else parts)

    @property
    def card(self) -> Card | None:
        """What the verifier says of itself."""
        return card_of(self.verifier)

    def judge(
        self, task: Task, episode: Episode, transcript: tuple[Message, ...]
    ) -> Verdict | None:
        """See :func:`judge`; a time-out has the score that ``timeout`` gives it."""
        verdict = judge(self.verifier, task, episode, transcript)
        if verdict is None or verdict.status is not VerdictStatus.TIMEOUT:
            return verdict
        return replace(verdict, score=0.0 if self.timeout == "wrong" else None)

    def apply(self, task: Task, episode: Episode, transcript: tuple[Message, ...]) -> Episode:
        """``episode`` with its verdict and its raw reward components.

        Where nothing was scored there are no rewards, also none that the environment gave. A
        mapping or signal that raises or returns junk leaves the episode unscored, as a verifier
        does.
        """
        verdict = self.judge(task, episode, transcript)
        if verdict is None or not verdict.scored:
            return replace(episode, verdict=verdict, rewards=())
        try:
            rewards = (*episode.rewards, *_rewards(self.mapping, verdict, episode))
            judged = replace(episode, verdict=verdict, rewards=rewards)
            return self.terms.apply(task, judged, transcript)
        except VerifierFault as fault:
            return replace(episode, verdict=_failed(fault), rewards=())

    def close(self) -> None:
        """End the processes of a verifier that has any."""
        if isinstance(self.verifier, IsolatedVerifier | FlakyVerifier):
            self.verifier.close()
