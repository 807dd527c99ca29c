"""Runs a verifier so that its failures, and everybody's faults, never become a reward."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hexad.contract.digest import canonical_json, digest
from hexad.contract.ending import CENSORED, EndingKind
from hexad.contract.episode import Episode
from hexad.contract.faults import ContractViolation, Fault, UserError, VerifierFault
from hexad.contract.messages import Message
from hexad.contract.task import Task
from hexad.contract.verdict import UNSCORED, Verdict, VerdictStatus
from hexad.feedback.protocol import RewardMapping, Verifier

_BY_FAULT = {
    EndingKind.ENVIRONMENT_ERROR: VerdictStatus.ENVIRONMENT_FAILURE,
    EndingKind.INFRASTRUCTURE_ERROR: VerdictStatus.INFRASTRUCTURE_ERROR,
}


_LONGEST = 500


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
        return _checked(_verify(verifier, task, episode, transcript))
    except VerifierFault as fault:
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


def _checked(verdict: Verdict) -> Verdict:
    """``verdict`` if it is one; a scored status has a score in [0, 1], an unscored one has none."""
    if not isinstance(verdict, Verdict):
        raise VerifierFault(f"the verifier returned a {type(verdict).__name__}")
    if verdict.status in UNSCORED:
        legal = verdict.score is None
    else:
        legal = verdict.score is not None and 0.0 <= verdict.score <= 1.0
    if not legal or (verdict.score is not None and not math.isfinite(verdict.score)):
        raise VerifierFault(f"the verdict {verdict.status} has the score {verdict.score}")
    return verdict


@dataclass(frozen=True, slots=True)
class Feedback:
    """A verifier with the mapping that turns its verdicts into rewards."""

    verifier: Verifier
    mapping: RewardMapping

    @property
    def digest(self) -> str:
        """The provenance's verifier digest: it changes with the verifier and with the mapping."""
        return digest([self.verifier.digest, self.mapping.version])

    def apply(self, task: Task, episode: Episode, transcript: tuple[Message, ...]) -> Episode:
        """``episode`` with its verdict and its raw reward components.

        Where nothing was scored there are no rewards, also none that the environment gave.
        """
        verdict = judge(self.verifier, task, episode, transcript)
        if verdict is None or not verdict.scored:
            return replace(episode, verdict=verdict, rewards=())
        rewards = self.mapping.rewards(verdict, episode)
        return replace(episode, verdict=verdict, rewards=(*episode.rewards, *rewards))
