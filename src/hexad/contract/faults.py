"""Exceptions by boundary. The class is the attribution: whose failure was it?

A *fault* is a failure that the policy did not cause: the episode it hits has no reward and no loss
and is counted. A :class:`UserError` is a mistake in what the user gave us (exit code 2). Anything
else that escapes is a bug of our own and stops the run.
"""

from __future__ import annotations

from dataclasses import dataclass


class Fault(Exception):
    """Base of every failure outside the policy; ``boundary`` names where it happened."""

    boundary = "unknown"


class EnvironmentFault(Fault):
    """The environment raised, hung or returned something that is not an observation."""

    boundary = "environment"


class ToolFault(Fault):
    """A tool failed for a reason that is not the policy's; its own bad arguments are no fault."""

    boundary = "tool"


class VerifierFault(Fault):
    """The verifier itself failed; the episode is unscored, never wrong."""

    boundary = "verifier"


class EngineFault(Fault):
    """Sampling failed: non-finite logits, a dead worker, an aborted request."""

    boundary = "engine"


class UserError(Exception):
    """A mistake in what the user gave us: ``str()`` says what, where, what to do (exit code 2)."""

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        lines = [what, f"  where: {where}" if where else "", f"  fix:   {fix}" if fix else ""]
        super().__init__("\n".join(line for line in lines if line))


class ContractViolation(Exception):
    """Our own code broke the data contract. This is a bug: the run stops (exit code 1)."""


class FaultRateExceeded(Exception):
    """More episodes faulted than the recipe allows: the run stops (exit code 1)."""


class WorkersLost(Exception):
    """Rollout workers died more often than the recipe allows: the run stops (exit code 1)."""


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """One fault as stored with the episode it hit."""

    boundary: str
    kind: str
    message: str
    attempt: int

    @classmethod
    def of(cls, fault: BaseException, attempt: int) -> FaultRecord:
        """Record ``fault`` of attempt number ``attempt`` (0 is the first try)."""
        boundary = fault.boundary if isinstance(fault, Fault) else "unknown"
        return cls(boundary, type(fault).__name__, str(fault), attempt)
