"""Executes the policy's tool calls outside the event loop, within limits."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from hexad.contract.digest import digest
from hexad.contract.faults import ContractViolation, ToolFault, UserError
from hexad.contract.messages import ToolCall, ToolSchema
from hexad.environments.pool import WorkerPool
from hexad.environments.process import WorkerDied, WorkerProcess, WorkerTimeout
from hexad.environments.schema import quote, validate
from hexad.environments.tools import Effect, Tool, ToolError

MAX_CHARACTERS = 4000
"""Longest observation; the rest is cut, and the cut is named."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the policy is told of one call.

    ``ok`` is false for an error observation. ``seconds`` is wall-clock. ``effect`` is ``None`` when
    nothing was executed (malformed call, unknown tool, bad arguments).
    """

    content: str
    ok: bool
    seconds: float = 0.0
    effect: Effect | None = None


class ToolBox:
    """The tools of an environment. May be shared by many episodes; calls run concurrently.

    ``timeout`` seconds hold for an isolated tool that declares none. ``workers`` bounds the calls
    that run at once, and so the live worker processes.
    """

    def __init__(self, tools: Sequence[Tool], *, timeout: float = 10.0, workers: int = 4) -> None:
        if timeout <= 0 or workers < 1:
            raise UserError(f"tools need timeout > 0 and workers >= 1, not {timeout}, {workers}")
        self._tools = {tool.name: tool for tool in tools}
        if len(self._tools) != len(tools):
            raise UserError("two tools of one environment have the same name")
        self._timeout = timeout
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="tool")
        self._pool = WorkerPool()

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

    def effect(self, name: str) -> Effect | None:
        """The effect class of the tool ``name``, ``None`` if there is no such tool."""
        tool = self._tools.get(name)
        return None if tool is None else tool.effect

    async def call(self, call: ToolCall) -> ToolResult:
        """Execute ``call``. Raises ``ToolFault`` for a failure that the policy did not cause.

        A cancelled call of an isolated tool is stopped at once.
        """
        if call.error is not None:
            return _refused(f"malformed call: {quote(call.error)}")
        tool = self._tools.get(call.name)
        if tool is None:
            names = ", ".join(sorted(self._tools)) or "none"
            return _refused(f"no tool {quote(call.name) or '(empty)'}. tools: {names}")
        arguments = validate(tool.arguments, call.arguments)
        if isinstance(arguments, str):
            return _refused(arguments)
        if not tool.isolated:
            return await self._run(_InProcess(tool, arguments).run)
        limit = self._timeout if tool.timeout is None else tool.timeout
        job = _Isolated(tool, call.arguments, limit, self._pool)
        try:
            return await self._run(job.run)
        except asyncio.CancelledError:
            job.cancel()
            raise

    def close(self) -> None:
        """Kill every worker process. Calls of isolated tools that still run end with a fault."""
        self._pool.close()
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Any) -> ToolResult:
        started = time.monotonic()
        result: ToolResult = await asyncio.get_running_loop().run_in_executor(self._executor, work)
        return ToolResult(
            _bounded(result.content), result.ok, time.monotonic() - started, result.effect
        )


def _refused(text: str) -> ToolResult:
    return ToolResult(f"error: {text}", ok=False)


def _failed(tool: Tool, text: str) -> ToolResult:
    return ToolResult(f"error: {text}", ok=False, effect=tool.effect)


def _bounded(text: str) -> str:
    """``text`` as valid UTF-8 of at most ``MAX_CHARACTERS`` and a note of the cut."""
    clean = text.encode("utf-8", "backslashreplace").decode("utf-8")
    over = len(clean) - MAX_CHARACTERS
    return clean if over <= 0 else f"{clean[:MAX_CHARACTERS]}... ({over} characters cut)"


@dataclass(frozen=True, slots=True)
class _InProcess:
    """One call of a trusted tool, in the thread that runs it."""

    tool: Tool
    arguments: Mapping[str, Any]

    def run(self) -> ToolResult:
        try:
            content = self.tool.invoke(self.arguments)
        except ToolError as error:
            return _failed(self.tool, str(error))
        except (UserError, ContractViolation):
            raise
        except Exception as error:
            raise ToolFault(f"{self.tool.name}: {type(error).__name__}: {error}") from error
        return ToolResult(content, ok=True, effect=self.tool.effect)


class _Isolated:
    """One call of an isolated tool, run by a thread that waits for a worker process."""

    def __init__(
        self, tool: Tool, arguments: Mapping[str, Any], limit: float, pool: WorkerPool
    ) -> None:
        self._tool, self._arguments, self._limit, self._pool = tool, arguments, limit, pool
        self._worker: WorkerProcess | None = None
        self._cancelled = False
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """Stop the work: kill the worker, or never start one."""
        with self._lock:
            self._cancelled = True
            if self._worker is not None:
                self._worker.kill()

    def run(self) -> ToolResult:
        with self._lock:
            if self._cancelled:
                raise ToolFault(f"{self._tool.name}: cancelled before it started")
            self._worker = worker = self._pool.acquire(self._tool.target)
        try:
            reply = worker.call(self._arguments, self._limit)
        except WorkerTimeout as error:
            return self._stopped(f"timed out after {self._limit:g}s", error)
        except WorkerDied as error:
            return self._stopped("the process crashed", error)
        finally:
            with self._lock:
                self._worker = None
            self._pool.release(worker)
        return self._read(reply)

    def _stopped(self, text: str, error: Exception) -> ToolResult:
        if self._tool.policy_code and not self._cancelled:
            return _failed(self._tool, text)
        raise ToolFault(f"{self._tool.name}: {text}") from error

    def _read(self, reply: Mapping[str, Any]) -> ToolResult:
        if isinstance(reply.get("content"), str):
            return ToolResult(reply["content"], ok=True, effect=self._tool.effect)
        if isinstance(reply.get("error"), str):
            return _failed(self._tool, reply["error"])
        raise ToolFault(f"{self._tool.name}: {reply.get('fault', json.dumps(dict(reply)))}")
