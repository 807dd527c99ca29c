"""Permission before execution: what may never be called, and what somebody has to approve."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hexad.contract.digest import code_digest, digest
from hexad.contract.faults import ContractViolation, EnvironmentFault, Fault, UserError
from hexad.contract.messages import AssistantTurn, Message, Role, ToolCall
from hexad.contract.refusal import Refusal, RefusalReason
from hexad.contract.task import Task
from hexad.environments.off_loop import off_loop
from hexad.environments.resolve import Resolve, as_said
from hexad.environments.schema import quote

Rule = Callable[[Task, ToolCall], str | None]
"""``rule(task, call)``: why the call is forbidden, or ``None``. It is shown the resolved call."""


@dataclass(frozen=True, slots=True)
class Application:
    """What somebody is asked to approve: ``call``, number ``number`` of turn ``turn``, from 0.

    The call is as the tool would get it, defaults included.
    """

    task: Task
    turn: int
    number: int
    call: ToolCall

    def refused(self, reason: RefusalReason, detail: str) -> Refusal:
        """The refusal of the call."""
        return Refusal(self.turn, self.number, quote(self.call.name), reason, detail)


Approver = Callable[[Application], bool]
"""Only ``True`` approves. It may block: it runs in a thread of its own."""


@dataclass(frozen=True, slots=True)
class Forbidden:
    """Calls of ``tool`` whose ``arguments`` have these values; all its calls where there is none.

    Values are compared as they are and as text, so ``"*"`` and ``" * "`` are one; of an object only
    the keys that are named here.
    """

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def hits(self, call: ToolCall) -> bool:
        """Whether ``call`` is one of them."""
        return call.name == self.tool and all(
            name in call.arguments and _alike(call.arguments[name], value)
            for name, value in self.arguments.items()
        )

    @property
    def text(self) -> str:
        """As the policy is told of it."""
        listed = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.tool}({listed})" if listed else self.tool


@dataclass(frozen=True, slots=True)
class Approval:
    """Calls of ``tools`` wait for ``approver``, at most ``seconds``; silence is a no."""

    tools: frozenset[str]
    approver: Approver
    seconds: float


@dataclass(frozen=True, slots=True)
class Review:
    """What came of a turn's calls: with a refusal none is executed. ``waited`` is in seconds."""

    refusals: tuple[Refusal, ...] = ()
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class Guard:
    """Reviews every turn before the environment sees it. A call that cannot be read is let through:
    the environment executes no such call. The others are judged as ``resolve`` says that the tool
    would get them, so that what a call leaves out is what its default makes it.
    """

    forbidden: tuple[Forbidden, ...] = ()
    rule: Rule | None = None
    approval: Approval | None = None
    resolve: Resolve = as_said

    @property
    def digest(self) -> str:
        """Digest of the rules, and of who approves what."""
        never = [[each.tool, dict(each.arguments)] for each in self.forbidden]
        rule = None if self.rule is None else code_digest("rule", "1", {}, _code(self.rule))
        asked = None
        if self.approval is not None:
            config = {"tools": sorted(self.approval.tools), "seconds": self.approval.seconds}
            asked = code_digest("approval", "1", config, _code(self.approval.approver))
        return digest([never, rule, asked])

    async def review(self, task: Task, turn: int, said: AssistantTurn) -> Review:
        """Judge the calls of a turn.

        Nobody is asked to approve a turn that holds a forbidden call. Raises ``EnvironmentFault``
        for a rule or an approver that raises.
        """
        asked = self._asked(task, turn, said)
        refusals = [refusal for each in asked if (refusal := self._forbidden(each)) is not None]
        waited = 0.0
        if refusals or self.approval is None:
            return Review(tuple(refusals), waited)
        for each in asked:
            if each.call.name in self.approval.tools:
                started = time.monotonic()
                refusal = await _ask(self.approval, each)
                waited += time.monotonic() - started
                refusals += [refusal] if refusal is not None else []
        return Review(tuple(refusals), waited)

    def forbids(self, task: Task, said: AssistantTurn) -> bool:
        """Whether ``said`` holds a call that is never executed. Raises as :meth:`review` does."""
        return any(self._forbidden(each) is not None for each in self._asked(task, 0, said))

    def _asked(self, task: Task, turn: int, said: AssistantTurn) -> list[Application]:
        return [
            Application(task, turn, number, self.resolve(call))
            for number, call in enumerate(said.tool_calls)
            if said.complete and call.error is None
        ]

    def _forbidden(self, asked: Application) -> Refusal | None:
        for each in self.forbidden:
            if each.hits(asked.call):
                return asked.refused(RefusalReason.FORBIDDEN, f"{each.text} is forbidden")
        if self.rule is None:
            return None
        why = _asked("task.guard.rule", self.rule, asked.task, asked.call)
        return None if why is None else asked.refused(RefusalReason.FORBIDDEN, quote(why))


def answers(said: AssistantTurn, refusals: Sequence[Refusal]) -> tuple[Message, ...]:
    """What the policy hears after a turn with ``refusals``: one message a call, in order.

    They depend on nothing else, so a turn that is played again is answered alike.
    """
    why = {refusal.call: refusal.detail for refusal in refusals}
    told = (
        why.get(number, "another call of the turn was refused")
        for number in range(len(said.tool_calls))
    )
    return tuple(Message(Role.TOOL, f"error: not executed: {text}") for text in told)


async def _ask(approval: Approval, application: Application) -> Refusal | None:
    def work() -> bool:
        return _asked("task.guard.approval", approval.approver, application) is True

    tool = application.call.name
    try:
        approved = await asyncio.wait_for(off_loop(work, "approval"), approval.seconds)
    except TimeoutError:
        detail = f"nobody approved {tool} in time"
        return application.refused(RefusalReason.UNANSWERED, detail)
    if approved:
        return None
    return application.refused(RefusalReason.DENIED, f"{tool} was not approved")


def _asked(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (Fault, UserError, ContractViolation):
        raise
    except Exception as error:
        raise EnvironmentFault(f"{what} raised {type(error).__name__}: {error}") from error


def _code(function: Callable[..., Any]) -> object:
    """What has a source text: the function, or the class of an object that is called."""
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function)


def _alike(said: Any, meant: Any) -> bool:
    if isinstance(said, Mapping) and isinstance(meant, Mapping):
        return all(name in said and _alike(said[name], each) for name, each in meant.items())
    return bool(said == meant) or str(said).strip() == str(meant).strip()
