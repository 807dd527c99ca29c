"""Process signals: a number for every state of an episode, from the conversation that led there."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from hexad.contract.digest import digest
from hexad.contract.episode import Episode
from hexad.contract.faults import ContractViolation, Fault, UserError, VerifierFault
from hexad.contract.lookup import find
from hexad.contract.messages import Message, Role
from hexad.contract.reward import Levels, Owner, OwnerKind, Reward
from hexad.contract.segment import ACTION_SPANS
from hexad.contract.task import Task
from hexad.environments.protocol import TaskFamily

SIGNALS = {"remaining_operations": "hexad.feedback.progress:RemainingOperations"}
"""Built-in names."""
Paid: TypeAlias = Literal["potential", "increment", "cumulative"]
GUARANTEE: dict[Paid, str] = {
    "potential": "as a potential: the best policy stays the best, as far as the level is a "
    "function of the state alone",
    "increment": "by increments: a general progress score, no guarantee that the best policy "
    "stays the best",
    "cumulative": "by its level every turn: a general progress score, no guarantee that the "
    "best policy stays the best",
}
"""What may be said of a signal by how it is paid."""


@runtime_checkable
class ProcessSignal(Protocol):
    """Made with the family and its options. Raising means that it fails itself.

    Bumping ``version`` changes the verifier digest. A signal that is paid as a potential must be a
    function of the state: of what the conversation says of it, not of the way there.
    """

    version: str

    def level(self, task: Task, transcript: tuple[Message, ...]) -> float:
        """The level of the state that ``transcript``, the beginning of an episode, led to."""
        ...


@dataclass(frozen=True, slots=True)
class Process:
    """A signal under the ``name`` that the recipe gives it, and how it is ``paid`` to whom."""

    name: str
    signal: ProcessSignal
    paid: Paid
    owner: Literal["turn", "call"] = "turn"

    @property
    def digest(self) -> str:
        """Digest of name, version and payment."""
        return digest([self.name, self.signal.version, self.paid, self.owner])

    @property
    def line(self) -> str:
        """What it is, for people."""
        return f"process signal {self.name}, paid {GUARANTEE[self.paid]}"

    def levels(self, task: Task, transcript: tuple[Message, ...]) -> Levels:
        """The level of every state. Raises ``VerifierFault`` where the signal raises or is junk."""
        places = [i for i, message in enumerate(transcript) if message.role is Role.ASSISTANT]
        values = [self._level(task, transcript[:end]) for end in (*places, len(transcript))]
        return Levels(self.name, tuple(values))

    def rewards(self, episode: Episode, levels: Levels) -> tuple[Reward, ...]:
        """The components of a signal that is no potential, one a turn."""
        if self.paid == "potential":
            return ()
        owners = _owners(episode, self.owner)
        values = levels.values
        before = values[:-1] if self.paid == "increment" else (0.0,) * (len(values) - 1)
        paid = [after - start for start, after in zip(before, values[1:], strict=True)]
        return tuple(
            Reward(self.name, value, owners[turn])
            for turn, value in enumerate(paid)
            if turn in owners
        )

    def _level(self, task: Task, transcript: tuple[Message, ...]) -> float:
        try:
            level = float(self.signal.level(task, transcript))
        except (Fault, UserError, ContractViolation):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary to user code, told as a fault
            text = f"the process signal {self.name} raised {type(error).__name__}: {error}"
            raise VerifierFault(text) from None
        if not math.isfinite(level):
            raise VerifierFault(f"the process signal {self.name} says {level}")
        return level


def _owners(episode: Episode, kind: Literal["turn", "call"]) -> dict[int, Owner]:
    """Who is paid for each turn."""
    acted = {
        span.turn
        for segment in episode.segments
        for span in segment.spans
        if span.kind in ACTION_SPANS
    }
    owners = {turn: Owner(OwnerKind.TURN, turn) for turn in acted}
    if kind == "call":
        for number, (row, place) in enumerate(episode.calls):
            turn = episode.segments[row].spans[place].turn
            owners[turn] = Owner(OwnerKind.CALL, number)
    return owners


def signal(name: str, family: TaskFamily, options: Mapping[str, Any], where: str) -> ProcessSignal:
    """The signal ``name``: a built-in, or ``package.module:object``. Raises ``UserError``."""
    factory = find(name, SIGNALS, what="process signal", where=where)
    try:
        inspect.signature(factory).bind(family, **options)
    except (TypeError, ValueError) as error:
        fix = "it is called with the environment, and with `options` by keyword"
        raise UserError(f"{name} cannot be made: {error}", where=where, fix=fix) from error
    made = factory(family, **options)
    if not isinstance(made, ProcessSignal):
        fix = "see hexad.feedback.process.ProcessSignal"
        raise UserError(f"{name} makes a {type(made).__name__}", where=where, fix=fix)
    return made
