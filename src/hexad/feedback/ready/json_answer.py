"""``json``: the final answer is JSON that satisfies the task's schema."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import jsonschema
import referencing

from hexad.contract.digest import code_digest
from hexad.contract.episode import Episode
from hexad.contract.faults import VerifierFault
from hexad.contract.messages import Message
from hexad.contract.task import Task
from hexad.contract.verdict import Verdict
from hexad.feedback.cards import Card
from hexad.feedback.ready import common

_MISSING = object()
NESTED = 64
"""Levels of arrays and objects that an answer may have."""


class JsonVerifier:
    """Validates against ``task.data["schema"]`` (draft 2020-12, no references to elsewhere).

    Where the task stores ``answer``, the value must also equal it. Not JSON in the strict sense
    (NaN, a number beyond a double, a key given twice, text around it) is invalid, and so is what is
    nested deeper than ``NESTED``; a violated schema is wrong. ``multipleOf`` is exact in decimals.
    """

    version = "1"
    timeout, memory = common.SECONDS, common.MEMORY
    card = Card(
        "json",
        checks="the last message is one JSON document that satisfies the task's schema and equals "
        "its answer, where the task stores one",
        blind="without a stored answer whether the content is true: any document of the right "
        f"shape is correct; what is nested deeper than {NESTED} levels, which is invalid; "
        f"{common.BLIND}",
        task="schema: JSON schema; answer: a JSON value, optional",
    )

    def __init__(self, family: object) -> None:
        pass

    @property
    def digest(self) -> str:
        """Digest of version and source."""
        return code_digest("json", self.version, {}, sys.modules[__name__], common)

    def verify(self, task: Task, episode: Episode, transcript: tuple[Message, ...]) -> Verdict:
        """The verdict. Raises ``VerifierFault`` for a task whose schema is none."""
        schema = common.stored(task, "schema", dict)
        try:
            _Schema.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise VerifierFault(f"the schema of task {task.task_id}: {error.message}") from None
        text = common.final_text(episode, transcript)
        if text is None:
            return common.no_answer()
        try:
            value = strict(text)
        except (ValueError, RecursionError) as error:
            return common.invalid(f"not JSON: {str(error)[:80]}", text)
        if _levels(value) > NESTED:
            return common.invalid(f"nested deeper than {NESTED} levels", text)
        nowhere: Any = referencing.Registry()
        try:
            problem = next(_Schema(schema, registry=nowhere).iter_errors(value), None)
        except RecursionError:
            fault = f"the schema of task {task.task_id} refers to itself without end"
            raise VerifierFault(fault) from None
        if problem is not None:
            place = "/".join(str(part) for part in problem.absolute_path)
            said = common.shown(f"/{place}: {problem.message}")
            return common.right(False, answer=common.shown(text), problem=said)
        expected = task.data.get("answer", _MISSING)
        correct = expected is _MISSING or same(value, expected)
        return common.right(correct, answer=common.shown(text))


def strict(text: str) -> Any:
    """The value of a JSON document.

    Raises ``ValueError`` for NaN, infinity, numbers that a double cannot hold and repeated keys.
    """
    return json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_pairs)


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; 1 equals 1.0, but no number is a truth value."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:20]} is beyond a double")
    return value


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _levels(value: Any) -> int:
    """Levels of arrays and objects; a plain value has none."""
    layer, levels = [value], 0
    while layer := [each for each in layer if isinstance(each, dict | list)]:
        levels += 1
        layer = [
            part for each in layer for part in (each.values() if isinstance(each, dict) else each)
        ]
    return levels


def _multiple(
    validator: Any, divisor: Any, instance: Any, schema: Any
) -> Iterator[jsonschema.ValidationError]:
    """``multipleOf`` by the decimals as they are written; of doubles 0.07 is none of 0.01."""
    if validator.is_type(instance, "number") and _exact(instance) % _exact(divisor):
        yield jsonschema.ValidationError(f"{instance!r} is not a multiple of {divisor!r}")


def _exact(number: int | float) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


_Schema: Any = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator, {"multipleOf": _multiple}
)
