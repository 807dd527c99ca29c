"""Task families by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hexad.contract.faults import UserError
from hexad.contract.lookup import find
from hexad.environments.protocol import TaskFamily

FAMILIES = {
    "calculator": "hexad.environments.calculator:CalculatorFamily",
    "calculator-hard": "hexad.environments.calculator_hard:HardCalculatorFamily",
}
"""Built-in names."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a family is made from, so that another process can make an equal one."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    split_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    workers: int = 4

    def make(self) -> TaskFamily:
        """See :func:`family`."""
        return family(self.name, self.options, self.split_options, self.workers)


def family(
    name: str,
    options: Mapping[str, Any] | None = None,
    split_options: Mapping[str, Mapping[str, Any]] | None = None,
    workers: int = 4,
) -> TaskFamily:
    """The family ``name``: a built-in, or ``package.module:object``.

    The object is called with ``options`` (for all splits), ``split_options`` (split name -> options
    that override them) and ``workers`` (tool calls at once), and returns a ``TaskFamily``. Raises
    ``UserError`` for an unknown name, a bad option, or an object that makes something else.
    """
    where = "task.environment"
    factory = find(name, FAMILIES, what="environment", where=where)
    arguments = (dict(options or {}), dict(split_options or {}), workers)
    try:
        inspect.signature(factory).bind(*arguments)
    except (TypeError, ValueError) as error:
        fix = "name a class or function that takes (options, split_options, workers)"
        raise UserError(f"{name} cannot make a family: {error}", where=where, fix=fix) from error
    made = factory(*arguments)
    if not isinstance(made, TaskFamily):
        fix = "see hexad.environments.protocol.TaskFamily"
        raise UserError(
            f"{name} makes a {type(made).__name__}, no task family", where=where, fix=fix
        )
    return made
