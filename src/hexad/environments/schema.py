"""Argument schemas from typed signatures: what the model is told is what is checked."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from hexad.contract.faults import UserError

_SHOWN_ERRORS = 3
_SHOWN_CHARACTERS = 40


class _Arguments(BaseModel):
    """Base of every argument model.

    Strict: ``"3"``, ``true`` and ``3.0`` are not integers; an integer is a number. NaN, infinity
    and unknown names are refused.
    """

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def quote(text: object) -> str:
    """``text`` as short printable ASCII, so that an error message cannot carry anything odd."""
    shown = ascii(str(text))[1:-1]
    return shown if len(shown) <= _SHOWN_CHARACTERS else shown[:_SHOWN_CHARACTERS] + "..."


def arguments_model(function: Callable[..., Any]) -> type[BaseModel]:
    """The argument model of ``function``: every parameter needs a type, none may be variadic.

    Raises ``UserError`` otherwise.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    where = f"{function.__module__}:{function.__qualname__}"
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UserError(f"a tool cannot take the parameter {parameter}", where=where)
        if name not in hints or name.startswith("_"):
            fix = "give every parameter a type and a name without a leading underscore"
            raise UserError(f"the tool parameter {name} is not usable", where=where, fix=fix)
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (hints[name], default)
    return create_model(f"{function.__name__}_arguments", __base__=_Arguments, **fields)


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """JSON schema of ``model``, of type object, without the titles that only cost tokens."""
    schema = model.model_json_schema()
    schema.pop("additionalProperties", None)
    schema.pop("description", None)
    stripped: dict[str, Any] = _without_titles(schema)
    stripped.setdefault("properties", {})
    return stripped


def _without_titles(schema: Any, *, names: bool = False) -> Any:
    """``schema`` without ``title`` keywords; below ``properties`` the keys are field names."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_titles(value, names=not names and key in ("properties", "$defs"))
        for key, value in schema.items()
        if names or key != "title"
    }


def validate(model: type[BaseModel], arguments: Mapping[str, Any]) -> dict[str, Any] | str:
    """The checked arguments by name, or a short text that says what is wrong with them."""
    try:
        checked = model.model_validate_json(json.dumps(dict(arguments)))
    except ValidationError as error:
        return _explain(model, error)
    except (TypeError, ValueError, RecursionError):
        return "the arguments are not plain JSON"
    return {name: getattr(checked, name) for name in model.model_fields}


def _explain(model: type[BaseModel], error: ValidationError) -> str:
    problems = []
    for item in error.errors(include_url=False, include_context=False)[:_SHOWN_ERRORS]:
        place = quote(".".join(str(part) for part in item["loc"]) or "arguments")
        if item["type"] == "missing":
            problems.append(f"{place} is missing")
        elif item["type"] == "extra_forbidden":
            problems.append(f"{place} is unknown")
        else:
            problems.append(f"{place}: {quote(item['msg'])}")
    return f"{'; '.join(problems)}. fields: {', '.join(model.model_fields)}"
