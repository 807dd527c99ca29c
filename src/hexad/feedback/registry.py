"""Verifiers by name. Training and evaluation never share an object."""

from __future__ import annotations

from hexad.contract.faults import UserError
from hexad.contract.lookup import find
from hexad.environments.protocol import TaskFamily
from hexad.environments.registry import Origin
from hexad.feedback.isolated import IsolatedVerifier
from hexad.feedback.protocol import Verifier

VERIFIERS = {
    "answer": "hexad.feedback.verifiers:answer",
    "left_to_right": "hexad.feedback.verifiers:recompute_left_to_right",
    "precedence": "hexad.feedback.verifiers:recompute_with_precedence",
}
"""Built-in names."""

_WHERE = "feedback.verifier"


def verifier(name: str | None, family: TaskFamily, origin: Origin | None = None) -> Verifier:
    """A new verifier for training: ``name``, or the one that the family names as ``verifier``.

    ``package.module:object`` is called with the family; with ``origin``, which the family was made
    from, it judges in worker processes and is stopped when it hangs. Raises ``UserError`` for an
    unknown name and for a family that names none.
    """
    named = name or getattr(family, "verifier", None)
    if not isinstance(named, str):
        fix = f"name one: {', '.join(VERIFIERS)}, or package.module:object"
        raise UserError(f"{family.name} has no verifier of its own", where=_WHERE, fix=fix)
    return _make(named, family, origin)


def evaluation_verifier(
    family: TaskFamily, training: str | None = None, origin: Origin | None = None
) -> Verifier:
    """A new verifier for evaluation: the one that the family names as ``evaluation_verifier``.

    A family without one is evaluated by a fresh object of its verifier for training
    (``training``, or its own): a separate object, though not an independent implementation.
    """
    named = getattr(family, "evaluation_verifier", None)
    if isinstance(named, str):
        return _make(named, family, origin)
    return verifier(training, family, origin)


def build(name: str, family: TaskFamily) -> Verifier:
    """The verifier ``name`` in this process. Raises ``UserError``."""
    factory = find(name, VERIFIERS, what="verifier", where=_WHERE)
    if not callable(factory):
        raise UserError(f"{name} cannot be called", where=_WHERE, fix="name a class or a function")
    made = factory(family)
    if not isinstance(made, Verifier):
        fix = "see hexad.feedback.protocol.Verifier"
        raise UserError(f"{name} makes a {type(made).__name__}", where=_WHERE, fix=fix)
    return made


def _make(name: str, family: TaskFamily, origin: Origin | None) -> Verifier:
    made = build(name, family)
    if name in VERIFIERS or origin is None:
        return made
    return IsolatedVerifier(name, made, origin)
