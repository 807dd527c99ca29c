"""Executes the policy's tool calls outside the event loop, within limits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hexad.contract.digest import digest
from hexad.contract.faults import UserError
from hexad.contract.messages import ToolCall, ToolSchema
from hexad.environments.execution import InProcess, Isolated, ToolResult
from hexad.environments.off_loop import off_loop
from hexad.environments.pool import WorkerPool
from hexad.environments.schema import quote, validate
from hexad.environments.tools import Effect, Tool


class ToolBox:
    """The tools of an environment. May be shared by many episodes; calls run concurrently.

    ``timeout`` seconds hold for an isolated tool that declares none. ``workers`` bounds the
    isolated calls that run at once, and so the live worker processes. Belongs to no event loop.
    """

    def __init__(self, tools: Sequence[Tool], *, timeout: float = 10.0, workers: int = 4) -> None:
        if not timeout > 0 or workers < 1:
            raise UserError(f"tools need timeout > 0 and workers >= 1, not {timeout}, {workers}")
        self._tools = {tool.name: tool for tool in tools}
        if len(self._tools) != len(tools):
            raise UserError("two tools of one environment have the same name")
        self._timeout = timeout
        self._pool = WorkerPool()
        self._slots = threading.BoundedSemaphore(workers)

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """The tools as the policy is told of them."""
        return tuple(tool.schema for tool in self._tools.values())

    @property
    def digest(self) -> str:
        """Digest over every tool and the limits."""
        return digest([self._timeout, [tool.digest for tool in self._tools.values()]])

    @property
    def live_workers(self) -> int:
        """Number of worker processes that run now."""
        return self._pool.live

    @property
    def effects(self) -> Mapping[str, Effect]:
        """The effect class of every tool."""
        return {name: tool.effect for name, tool in self._tools.items()}

    def effect(self, name: str) -> Effect | None:
        """The effect class of the tool ``name``, ``None`` if there is no such tool."""
        tool = self._tools.get(name)
        return None if tool is None else tool.effect

    async def call(self, call: ToolCall) -> ToolResult:
        """Execute ``call``. Raises ``ToolFault`` for a failure that the policy did not cause.

        Cancelling stops an isolated tool's work at once.
        """
        if call.error is not None:
            return self._refuse(f"malformed call: {quote(call.error)}")
        tool = self._tools.get(call.name)
        if tool is None:
            return self._refuse(f"no tool {quote(call.name) or '(empty)'}")
        arguments = validate(tool.arguments, call.arguments)
        if isinstance(arguments, str):
            return ToolResult(f"error: {arguments}", ok=False)
        if not tool.isolated:
            return await _off_loop(InProcess(tool, arguments).run)
        limit = self._timeout if tool.timeout is None else tool.timeout
        job = Isolated(tool, call.arguments, limit, self._pool)
        try:
            return await _off_loop(lambda: self._in_turn(job))
        except asyncio.CancelledError:
            job.cancel()
            raise

    def close(self) -> None:
        """Kill every worker process; a call of an isolated tool that still runs is a fault."""
        self._pool.close()

    def _in_turn(self, job: Isolated) -> ToolResult:
        with self._slots:
            return job.run()

    def _refuse(self, text: str) -> ToolResult:
        names = ", ".join(sorted(self._tools)) or "none"
        return ToolResult(f"error: {text}. tools: {names}", ok=False)


def _timed(work: Callable[[], ToolResult]) -> ToolResult:
    started = time.monotonic()
    result = work()
    return replace(result, seconds=time.monotonic() - started)


async def _off_loop(work: Callable[[], ToolResult]) -> ToolResult:
    return await off_loop(lambda: _timed(work), "tool")
