"""One tool call, executed: in this process, or in a worker process with a limit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hexad.contract.faults import ContractViolation, ToolFault, UserError
from hexad.environments.pool import WorkerPool
from hexad.environments.process import WorkerDied, WorkerFailed, WorkerProcess, WorkerTimeout
from hexad.environments.tools import Effect, Tool, ToolError

MAX_CHARACTERS = 4000
"""Longest text of one observation; the rest is cut, and the cut is named."""


def bounded(text: str) -> str:
    """``text`` as valid Unicode of at most ``MAX_CHARACTERS`` and a note of the cut."""
    clean = text.encode("utf-8", "backslashreplace").decode("utf-8")
    over = len(clean) - MAX_CHARACTERS
    return clean if over <= 0 else f"{clean[:MAX_CHARACTERS]}... ({over} characters cut)"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the policy is told of one call.

    ``ok`` is false for an error observation. ``seconds`` is wall-clock, waiting for a free worker
    included. ``effect`` is ``None`` when nothing was executed (malformed call, unknown tool, bad
    arguments).
    """

    content: str
    ok: bool
    seconds: float = 0.0
    effect: Effect | None = None


def failed(tool: Tool, text: str) -> ToolResult:
    """The error observation of an executed call."""
    return ToolResult(f"error: {bounded(text)}", ok=False, effect=tool.effect)


@dataclass(frozen=True, slots=True)
class InProcess:
    """A call of a tool that is trusted to return."""

    tool: Tool
    arguments: Mapping[str, Any]

    def run(self) -> ToolResult:
        """The result. Raises ``ToolFault``; our own contract violations and ``UserError`` pass."""
        try:
            content = self.tool.invoke(self.arguments)
        except ToolError as error:
            return failed(self.tool, str(error))
        except (UserError, ContractViolation):
            raise
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            text = bounded(f"{self.tool.name}: {type(error).__name__}: {error}")
            raise ToolFault(text) from error
        return ToolResult(bounded(content), ok=True, effect=self.tool.effect)


class Isolated:
    """A call of an isolated tool: the thread that runs it waits for a worker process."""

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
        """The result. Raises ``ToolFault``."""
        with self._lock:
            if self._cancelled:
                raise ToolFault(f"{self._tool.name}: cancelled before it started")
            self._worker = worker = self._pool.acquire(self._tool.target)
        try:
            reply = worker.call(self._arguments, self._limit)
        except WorkerFailed as error:
            raise ToolFault(f"{self._tool.name}: {error}") from error
        except WorkerTimeout as error:
            return self._stopped(f"timed out after {self._limit:g}s", error)
        except WorkerDied as error:
            return self._stopped("the process crashed", error)
        finally:
            with self._lock:
                self._worker = None
            self._pool.release(worker, reuse=not self._tool.policy_code)
        return self._read(reply)

    def _stopped(self, text: str, error: Exception) -> ToolResult:
        if self._tool.policy_code and not self._cancelled and not self._pool.closed:
            return failed(self._tool, text)
        raise ToolFault(f"{self._tool.name}: {text}") from error

    def _read(self, reply: Mapping[str, Any]) -> ToolResult:
        if isinstance(reply.get("content"), str):
            return ToolResult(bounded(reply["content"]), ok=True, effect=self._tool.effect)
        if isinstance(reply.get("error"), str):
            return failed(self._tool, reply["error"])
        fault = bounded(str(reply.get("fault", "the worker sent junk")))
        raise ToolFault(f"{self._tool.name}: {fault}")
