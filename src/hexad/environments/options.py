"""Options of an environment: a typed model, with the user's mistakes named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from hexad.contract.faults import UserError
from hexad.contract.lookup import nearest
from hexad.contract.task import Split


class Options(BaseModel):
    """Base of an environment's options: frozen, strict about names."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


O = TypeVar("O", bound=Options)  # noqa: E741


def read_options(model: type[O], options: Mapping[str, Any], *, where: str) -> O:
    """``options`` as ``model``. Raises ``UserError`` that names the option and the way out."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        item = error.errors(include_url=False)[0]
        path = ".".join([where, *(str(part) for part in item["loc"])])
        if item["type"] == "extra_forbidden":
            name = str(item["loc"][-1])
            fix = nearest(name, model.model_fields)
            raise UserError(f"there is no option {name!r}", where=path, fix=fix) from error
        raise UserError(f"{item['msg']} (got {item['input']!r})", where=path) from error


def read_splits(
    model: type[O],
    options: Mapping[str, Any],
    split_options: Mapping[str, Mapping[str, Any]],
) -> dict[Split, O]:
    """The options of every split: its own over the common ones. Raises ``UserError``."""
    read_options(model, options, where="task.options")
    names = [split.value for split in Split]
    for name in split_options:
        if name not in names:
            raise UserError(f"there is no split {name!r}", where="task", fix=nearest(name, names))
    result = {}
    for split in Split:
        own = split_options.get(split.value, {})
        where = f"task.{split.value}.options"
        result[split] = read_options(model, {**options, **own}, where=where)
    return result
