"""Where an environment is, as far as it tells."""

from __future__ import annotations

from hexad.contract.faults import EnvironmentFault
from hexad.rollout.entries import State
from hexad.rollout.host import read


def digest_of(environment: object) -> str | None:
    """The digest of the present state, not checked yet. Runs on the environment's host."""
    look = getattr(environment, "state_digest", None)
    return look() if look is not None else None


def state_of(environment: object, *, over: bool) -> State:
    """Where ``environment`` is. Nothing is kept of one that is ``over`` but its digest.

    Runs on the environment's host. Raises ``EnvironmentFault`` for a snapshot that is none.
    """
    digest = digest_of(environment)
    told = read("repeatable", lambda: getattr(environment, "repeatable", None))
    repeatable = None if told is None else told is True
    snapshot = getattr(environment, "snapshot", None)
    if over or not callable(snapshot) or not callable(getattr(environment, "fork", None)):
        return State(digest, None, repeatable)
    taken = read("snapshot", snapshot)
    if not isinstance(taken, bytes):
        raise EnvironmentFault(f"snapshot returned a {type(taken).__name__}, not bytes")
    return State(digest, taken, repeatable)
