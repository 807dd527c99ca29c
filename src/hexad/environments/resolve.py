"""What a call comes to: checked, coerced, and with every default that it leaves out filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeGuard, runtime_checkable

from jsonschema import Draft202012Validator
from pydantic_core import to_jsonable_python

from hexad.contract.messages import ToolCall
from hexad.environments.protocol import TaskFamily
from hexad.environments.schema import validate
from hexad.environments.tools import Tool

Resolve = Callable[[ToolCall], ToolCall]
"""From a call as it was said to the same call as its tool would get it."""


@runtime_checkable
class Typed(Protocol):
    """A family whose tools are functions: optional. A guard then judges what they would get."""

    @property
    def functions(self) -> Mapping[str, Tool]:
        """Every tool by its name."""
        ...


def as_said(call: ToolCall) -> ToolCall:
    """A ``Resolve`` for calls whose tools nobody knows."""
    return call


def resolver(family: TaskFamily) -> Resolve:
    """What a call of ``family``'s tools comes to, by the names that the policy is told.

    Where the family is :class:`Typed`, by the check of the tool itself. Else by the tool's JSON
    schema: its defaults, at any depth. A call that fails the check stays as it was said: no tool
    executes it.
    """
    if isinstance(family, Typed):
        return partial(_checked, dict(family.functions))
    return partial(_filled, {tool.name: tool.parameters for tool in family.tools})


def settled(family: TaskFamily, tool: str, argument: str) -> bool:
    """Whether the value of ``argument`` is known in every call that is executed.

    It is not where a call may leave it out and no schema says what it is then.
    """
    if isinstance(family, Typed):
        return True
    (schema,) = (each.parameters for each in family.tools if each.name == tool)
    stated = schema.get("properties", {}).get(argument, {})
    return argument in schema.get("required", ()) or _default(stated, schema) is not _NONE


def _checked(functions: Mapping[str, Tool], call: ToolCall) -> ToolCall:
    tool = functions.get(call.name)
    found = None if tool is None else validate(tool.arguments, call.arguments)
    if tool is None or not isinstance(found, dict):
        return call
    names, values = tool.schema.parameters["properties"], to_jsonable_python(found).values()
    return replace(call, arguments=dict(zip(names, values, strict=True)))


def _filled(schemas: Mapping[str, Mapping[str, Any]], call: ToolCall) -> ToolCall:
    schema = schemas.get(call.name)
    if schema is None:
        return call
    return replace(call, arguments=_complete(dict(call.arguments), schema, schema))


_NONE = object()


def _complete(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """``value`` with the defaults of ``schema``, whose references are into ``root``."""
    schema = _narrowed(value, schema, root)
    if isinstance(value, list):
        items = schema.get("items")
        return [_complete(each, items, root) for each in value] if _is(items) else value
    if not isinstance(value, dict):
        return value
    stated = {k: each for k, each in schema.get("properties", {}).items() if _is(each)}
    whole = dict(value)
    for name, each in stated.items():
        if name not in whole and (default := _default(each, root)) is not _NONE:
            whole[name] = deepcopy(default)
    return {k: _complete(v, stated[k], root) if k in stated else v for k, v in whole.items()}


def _default(schema: Any, root: Mapping[str, Any]) -> Any:
    """The default that ``schema`` states itself, or where it refers to; else ``_NONE``."""
    if not _is(schema):
        return _NONE
    return schema["default"] if "default" in schema else _target(schema, root).get("default", _NONE)


def _narrowed(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """``schema`` without references and choices: of these, the first that ``value`` satisfies."""
    schema = _target(schema, root)
    for key in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(key, ()):
            whole = {"$defs": root.get("$defs", {}), "allOf": [each]}
            if key == "allOf" or Draft202012Validator(whole).is_valid(value):
                return _narrowed(value, each, root)
    return schema


def _target(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """What ``schema`` refers to inside ``root``; itself where it refers to nothing there."""
    while str(schema.get("$ref", "")).startswith("#/"):
        found: Any = root
        for part in schema["$ref"][2:].split("/"):
            found = found[part]
        schema = found
    return schema


def _is(schema: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(schema, Mapping)
