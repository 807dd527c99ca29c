"""What it takes to go on with a recorded attempt, and when it cannot."""

from __future__ import annotations

from hexad.contract.messages import AssistantTurn
from hexad.environments.protocol import Declaring, Environment, TaskFamily
from hexad.rollout.entries import State


class NotResumable(Exception):
    """The episode cannot go on from its log: its tokens are lost, and it may start afresh.

    It may not where ``repeatable`` is false: it did, or may have done, something that a reset does
    not undo.
    """

    def __init__(self, reason: str, *, repeatable: bool) -> None:
        self.reason, self.repeatable = reason, repeatable
        super().__init__(reason)


def require_repeatable(turn: AssistantTurn, family: TaskFamily, state: State) -> None:
    """Raise ``NotResumable`` where ``turn``, whose answer is missing, may not be answered again.

    Nobody knows whether its calls were executed. They may be where a reset undoes them, because the
    environment goes on from a snapshot that was taken before. A family that declares no effects
    passes unless its environments tell whether a reset undoes what was done (``Repeatable``): then
    some of it may last.
    """
    if isinstance(family, Declaring):
        effects = [family.effects.get(call.name) for call in turn.tool_calls if call.error is None]
        lasting = any(effect is not None and not effect.contained for effect in effects)
    else:
        lasting = state.repeatable is not None
    if lasting:
        raise NotResumable(
            "a call that a reset does not undo was sampled and its answer is missing",
            repeatable=False,
        )


async def forked(family: TaskFamily, snapshot: bytes) -> Environment:
    """A new environment of ``family`` in the state of ``snapshot``."""
    source = family.make()
    fork = getattr(source, "fork", None)
    try:
        if fork is None:
            raise TypeError(f"a {type(source).__name__} cannot fork")
        made: Environment = fork(snapshot)
    finally:
        await source.close()
    return made
