"""The governor: how many episodes may be under way, and where every one of them went."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Any

from hexad.contract.faults import ContractViolation
from hexad.contract.reasons import Reason


class Exit(StrEnum):
    """How an episode leaves the schedule. Each gives its slot back."""

    TRAINED = "trained"
    STALE = "stale"
    """The version gate: it is older than the limit allows."""
    FAULT = "fault"
    """The fault gate: environment or infrastructure failed."""
    UNSCORED = "unscored"
    UNREPLAYABLE = "unreplayable"
    """Its record does not allow training."""
    ORPHAN = "orphan"
    """A version that no longer exists sampled it."""
    CANCELLED = "cancelled"
    LOST = "lost"
    """Its worker died, and it may not be played again."""
    FILTERED = "filtered"
    """Dynamic sampling had no use for its group."""


_GATES = {
    Reason.STALE_VERSION: Exit.STALE,
    Reason.ORPHAN_VERSION: Exit.ORPHAN,
    Reason.ENVIRONMENT_FAULT: Exit.FAULT,
    Reason.INFRASTRUCTURE_FAULT: Exit.FAULT,
    Reason.USER_CANCEL: Exit.CANCELLED,
    Reason.UNSCORED: Exit.UNSCORED,
}
_ORDER = (Exit.CANCELLED, Exit.FAULT, Exit.UNREPLAYABLE, Exit.ORPHAN, Exit.UNSCORED, Exit.STALE)


def gate(reasons: tuple[Reason, ...]) -> Exit:
    """The one gate that stopped an episode which breaks ``reasons``: the gravest of them.

    A fault explains a missing score and an age explains nothing else, so staleness comes last.
    """
    found = {_GATES.get(reason, Exit.UNREPLAYABLE) for reason in reasons}
    return next(exit_ for exit_ in _ORDER if exit_ in found)


class Governor:
    """Counts episodes by state and bounds how far sampling may run ahead of the learner.

    An episode is *in flight* from its dispatch until it is finished, *queued* until a batch takes
    it or a gate stops it, and then has exited. The bound is that of AReaL (Fu et al. 2025):

        in flight + queued + trained <= (version + eta + 1) * batch

    Every exit but ``trained`` gives its slot back, so refusing episodes can never stop the run. A
    version stands for a whole batch even where gates left fewer to train: else the bound would grow
    by what they stopped, and sampling run ever further ahead. So never more than ``eta + 1``
    batches are in flight or queued.
    """

    def __init__(self, batch: int, eta: int) -> None:
        self.batch, self.eta = batch, eta
        self.in_flight = self.queued = 0
        self.exits: Counter[str] = Counter()

    @property
    def trained(self) -> int:
        """Episodes that were trained on."""
        return self.exits[Exit.TRAINED]

    @property
    def dispatched(self) -> int:
        """All episodes so far; each is in flight, queued or has exited."""
        return self.in_flight + self.queued + self.exits.total()

    def room(self, version: int) -> int:
        """How many more episodes may be dispatched at learner version ``version``; at least 0."""
        held = self.in_flight + self.queued + max(self.trained, version * self.batch)
        return max(0, (version + self.eta + 1) * self.batch - held)

    def dispatch(self, count: int) -> None:
        """``count`` episodes are on their way."""
        self.in_flight += count

    def finish(self) -> None:
        """One of them is finished and waits."""
        self.in_flight -= 1
        self.queued += 1
        self._check()

    def exit(self, how: Exit) -> None:
        """A queued episode is trained on, or leaves by a gate."""
        self.queued -= 1
        self.exits[how] += 1
        self._check()

    def lose(self) -> None:
        """One in flight will never be finished."""
        self.in_flight -= 1
        self.exits[Exit.LOST] += 1
        self._check()

    def state(self) -> dict[str, Any]:
        """All counts, as JSON values."""
        counts = {"in_flight": self.in_flight, "queued": self.queued}
        return counts | {"exits": dict(self.exits)}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self.in_flight, self.queued = state["in_flight"], state["queued"]
        self.exits = Counter(state["exits"])

    def _check(self) -> None:
        if min(self.in_flight, self.queued) < 0:
            raise ContractViolation(
                f"the governor counts {self.in_flight} episodes in flight, {self.queued} queued"
            )
