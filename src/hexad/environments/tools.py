"""Tools from typed Python functions."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from hexad.contract.digest import canonical_json, code_digest
from hexad.contract.faults import UserError
from hexad.contract.messages import ToolSchema
from hexad.environments.schema import arguments_model, json_schema


class Effect(StrEnum):
    """What a call may change: the risk class of a tool."""

    READ_ONLY = "read_only"
    """Nothing."""
    REVERSIBLE = "reversible"
    """State of the episode's own environment, which a reset undoes."""
    EXTERNAL = "external"
    """State outside the environment, which can be changed back."""
    IRREVERSIBLE = "irreversible"
    """State that cannot be changed back."""

    @property
    def idempotent(self) -> bool:
        """Whether the same call may simply be made again."""
        return self is Effect.READ_ONLY

    @property
    def contained(self) -> bool:
        """Whether a fresh reset undoes the call, so that the whole episode may be tried again."""
        return self in (Effect.READ_ONLY, Effect.REVERSIBLE)


class ToolError(Exception):
    """Raised by a tool when the *policy* asked for the impossible; the text is the observation."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function as a tool.

    ``isolated`` tools run in a worker process that is killed when ``timeout`` seconds are over
    (``None`` takes the box's limit); the rest are trusted to return soon and run in a thread. With
    ``policy_code`` the tool executes what the policy wrote: every call has a process of its own, so
    that nothing is left behind for the next, and a time-out or a crash is the policy's doing, an
    error observation. Without it both are a ``ToolFault``.
    """

    function: Callable[..., Any]
    schema: ToolSchema
    arguments: type[BaseModel]
    effect: Effect
    isolated: bool
    policy_code: bool
    timeout: float | None

    @property
    def name(self) -> str:
        """The name that the policy calls."""
        return self.schema.name

    @property
    def target(self) -> str:
        """``module:qualname``, by which a worker process finds the tool."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    @property
    def digest(self) -> str:
        """Code digest: name, effect, limits, schema and source of the function."""
        config = {
            "effect": self.effect.value,
            "isolated": self.isolated,
            "policy_code": self.policy_code,
            "timeout": self.timeout,
            "schema": dict(self.schema.parameters),
        }
        return code_digest(self.name, "1", config, self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself."""
        return self.function(*args, **kwargs)

    def invoke(self, arguments: Mapping[str, Any]) -> str:
        """Run the function on checked ``arguments`` and render the result as text.

        Text is taken as it is, any other JSON value as JSON. Raises ``ToolError`` where the policy
        is to blame, and ``TypeError`` or ``ValueError`` for a result that is not JSON.
        """
        result = self.function(**arguments)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        return result if isinstance(result, str) else canonical_json(result)


def tool(
    *,
    effect: Effect,
    isolated: bool = True,
    policy_code: bool = False,
    timeout: float | None = None,
) -> Callable[[Callable[..., Any]], Tool]:
    """Make a typed function (plain or ``async``) with a docstring into a :class:`Tool`.

    The JSON schema comes from the signature, the description from the docstring's first paragraph.
    Raises ``UserError`` for a function that cannot be a tool.
    """

    def decorate(function: Callable[..., Any]) -> Tool:
        where = f"{function.__module__}:{function.__qualname__}"
        text = inspect.getdoc(function)
        if not text:
            raise UserError("a tool needs a docstring: the policy reads it", where=where)
        if not isolated and (timeout is not None or policy_code):
            fix = "leave isolated at True, or drop timeout and policy_code"
            raise UserError("only an isolated tool can be stopped", where=where, fix=fix)
        if timeout is not None and not timeout > 0:
            raise UserError(f"the time limit of a tool is {timeout} s", where=where)
        if isolated and ("<locals>" in where or function.__module__ == "__main__"):
            fix = "define the tool at the top of an importable module, or declare isolated=False"
            raise UserError("a worker process could not import this tool", where=where, fix=fix)
        model = arguments_model(function)
        description = " ".join(text.split("\n\n")[0].split())
        schema = ToolSchema(function.__name__, description, json_schema(model))
        return Tool(function, schema, model, effect, isolated, policy_code, timeout)

    return decorate
