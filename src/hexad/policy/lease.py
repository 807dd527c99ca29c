"""The lease on a policy's weights: many readers or one writer, never both, never waiting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hexad.contract.faults import ContractViolation


class Lease:
    """Guards tensors that an engine reads and a learner steps.

    Nobody waits: a step while a request is open, or a request during a step, is a bug in who calls
    whom and raises ``ContractViolation``. ``writes`` counts finished writers, so that a reader can
    tell whether the weights have moved since it last looked.
    """

    def __init__(self) -> None:
        self.readers = 0
        self.writes = 0
        self._writing = False

    @property
    def writing(self) -> bool:
        """Whether a writer is in."""
        return self._writing

    @contextmanager
    def reader(self) -> Iterator[None]:
        """Hold the weights still. Raises ``ContractViolation`` while a writer is in."""
        if self._writing:
            raise ContractViolation("a request was opened while the learner changes the weights")
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1

    @contextmanager
    def writer(self) -> Iterator[None]:
        """Change the weights. Raises ``ContractViolation`` while a request or a writer is in."""
        if self.readers or self._writing:
            who = f"{self.readers} open requests read" if self.readers else "another writer changes"
            raise ContractViolation(f"the weights may not change now: {who} them")
        self._writing = True
        try:
            yield
        finally:
            self._writing = False
            self.writes += 1
