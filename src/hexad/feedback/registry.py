"""Verifiers by name. Training and evaluation never share an object."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from hexad.contract.faults import UserError
from hexad.contract.lookup import find
from hexad.environments.protocol import TaskFamily
from hexad.environments.registry import FAMILIES, Origin
from hexad.feedback.isolated import IsolatedVerifier
from hexad.feedback.protocol import Verifier

VERIFIERS = {
    "answer": "hexad.feedback.verifiers:answer",
    "left_to_right": "hexad.feedback.verifiers:recompute_left_to_right",
    "precedence": "hexad.feedback.verifiers:recompute_with_precedence",
    "reward_model": "hexad.learner.reward_verifier:RewardVerifier",
    "llm_judge": "hexad.feedback.ready.llm:LlmJudge",
    "answer-hackable": "hexad.feedback.hackable:HackableVerifier",
    "exact": "hexad.feedback.ready.exact:ExactVerifier",
    "numeric": "hexad.feedback.ready.numeric:NumericVerifier",
    "math": "hexad.feedback.ready.symbolic:MathVerifier",
    "json": "hexad.feedback.ready.json_answer:JsonVerifier",
    "python": "hexad.feedback.ready.python_tests:PythonVerifier",
    "sql": "hexad.feedback.ready.sql:SqlVerifier",
    "end_state": "hexad.feedback.ready.end_state:EndStateVerifier",
}
"""Built-in names."""
BOUNDED = frozenset({"answer", "left_to_right", "precedence"})
"""Built-in verifiers that compare one integer of at most 18 digits: trusted to return at once."""

_WHERE = "feedback.verifier"


def verifier(
    name: str | None,
    family: TaskFamily,
    origin: Origin | None = None,
    options: Mapping[str, Any] | None = None,
) -> Verifier:
    """A new verifier for training: ``name``, or the one that the family names as ``verifier``.

    It is called with the family, and with ``options`` by keyword. With ``origin``, which the
    family was made from, it judges in worker processes and is stopped when it hangs; only the
    ``BOUNDED`` ones never do. Raises ``UserError`` for an unknown name, for options that it does
    not take, and for a family that names none.
    """
    named = name or getattr(family, "verifier", None)
    if not isinstance(named, str):
        fix = f"name one: {', '.join(VERIFIERS)}, or package.module:object"
        raise UserError(f"{family.name} has no verifier of its own", where=_WHERE, fix=fix)
    return _make(named, family, origin, options)


def evaluation_verifier(
    family: TaskFamily,
    training: str | None = None,
    origin: Origin | None = None,
    options: Mapping[str, Any] | None = None,
) -> Verifier:
    """A new verifier for evaluation: the one that the family names as ``evaluation_verifier``.

    A family without one is evaluated by a fresh object of its verifier for training
    (``training``, or its own) and ``options``: a separate object, though not an independent
    implementation.
    """
    named = getattr(family, "evaluation_verifier", None)
    if isinstance(named, str):
        return _make(named, family, origin, None)
    return verifier(training, family, origin, options)


def require_other_name(environment: str, training: str | None) -> None:
    """Raise ``UserError`` where ``training`` names the evaluator of ``environment``.

    Nothing is made: of an environment that a function makes, nothing is known here.
    """
    factory = find(environment, FAMILIES, what="environment", where="task.environment")
    final, own = (getattr(factory, key, None) for key in ("evaluation_verifier", "verifier"))
    if training is not None and isinstance(final, str) and final != own:
        if VERIFIERS.get(training, training) == VERIFIERS.get(final, final):
            raise _evaluator(environment, own)


def require_apart(family: TaskFamily, training: Verifier, evaluation: Verifier) -> None:
    """Raise ``UserError`` where ``family`` has an evaluator of its own, and training uses it.

    The final evaluator takes no part in training (contract.md, 4.1). What tells them apart are
    their digests. A family that names one verifier for both, or none for evaluation, passes.
    """
    final, own = (getattr(family, key, None) for key in ("evaluation_verifier", "verifier"))
    if isinstance(final, str) and final != own and training.digest == evaluation.digest:
        raise _evaluator(family.name, own)


def _evaluator(environment: str, own: object) -> UserError:
    fix = f"leave it out to train by {own}" if isinstance(own, str) else "name another one"
    return UserError(
        f"this is the verifier that evaluates {environment}: once it is trained on, no evaluation "
        "is independent of training",
        where=_WHERE,
        fix=fix,
    )


def build(name: str, family: TaskFamily, options: Mapping[str, Any] | None = None) -> Verifier:
    """The verifier ``name`` in this process. Raises ``UserError``."""
    factory = find(name, VERIFIERS, what="verifier", where=_WHERE)
    if not callable(factory):
        raise UserError(f"{name} cannot be called", where=_WHERE, fix="name a class or a function")
    own = dict(options or {})
    try:
        inspect.signature(factory).bind(family, **own)
    except TypeError as error:
        fix = "see `feedback.options`: they are given by keyword, after the environment"
        where = "feedback.options" if own else _WHERE
        raise UserError(f"{name} cannot be made: {error}", where=where, fix=fix) from error
    except ValueError:
        pass  # a callable of C tells no signature
    made = factory(family, **own)
    if not isinstance(made, Verifier):
        fix = "see hexad.feedback.protocol.Verifier"
        raise UserError(f"{name} makes a {type(made).__name__}", where=_WHERE, fix=fix)
    return made


def _make(
    name: str, family: TaskFamily, origin: Origin | None, options: Mapping[str, Any] | None
) -> Verifier:
    made = build(name, family, options)
    if name in BOUNDED or origin is None:
        return made
    return IsolatedVerifier(name, made, origin, options)
