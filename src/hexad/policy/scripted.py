"""An engine that plays a script: for tests of everything that talks to an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from hexad.contract.arrays import frozen
from hexad.contract.digest import code_digest
from hexad.contract.faults import ContractViolation, EngineFault, Fault
from hexad.contract.support import Support
from hexad.policy.engine import Completion, EngineStats, Health, Refresh, Request, Stop, Weights
from hexad.policy.signal import Signal


@dataclass(frozen=True, slots=True)
class Reply:
    """One scripted completion, cut at the first stop id and at ``max_tokens`` as a model would be.

    ``logprobs`` default to -1 each; ``support`` names the set of each id. With ``fault`` the
    request fails instead. The reply comes after ``seconds`` (0: after one turn of the event loop).
    """

    ids: Sequence[int] = ()
    logprobs: Sequence[float] | None = None
    support: Sequence[Sequence[int]] | None = None
    fault: Fault | None = None
    seconds: float = 0.0


Script: TypeAlias = Mapping[str, Sequence[Reply]] | Sequence[Reply] | Callable[[Request], Reply]
"""Replies by session in order of its calls, replies in order of calls, or a function."""


class ScriptedEngine:
    """An :class:`hexad.policy.engine.Engine` without a model; ``requests`` records every call.

    Raises ``LookupError`` when the script has no reply left, and ``ValueError`` for a reply that no
    engine could give: one that ends neither in a stop id nor at ``max_tokens``.
    """

    def __init__(self, script: Script, *, version: int = 0) -> None:
        self._script = script
        self._version = version
        self._calls: dict[str | None, int] = {}
        self._open: dict[asyncio.Future[None], str | None] = {}
        self._changed = Signal()
        self._publishing = self._closed = False
        self._stats = EngineStats()
        self.requests: list[Request] = []

    @property
    def digest(self) -> str:
        """See :class:`hexad.policy.engine.Engine`."""
        return code_digest("hexad.scripted", "1", {}, ScriptedEngine)

    @property
    def version(self) -> int:
        """See :class:`hexad.policy.engine.Engine`."""
        return self._version

    @property
    def stats(self) -> EngineStats:
        """See :class:`hexad.policy.engine.Engine`."""
        return self._stats

    async def sample(self, request: Request) -> Completion:
        """See :class:`hexad.policy.engine.Engine`."""
        while self._publishing:
            await self._changed.wait()
        if self._closed:
            raise EngineFault("the engine is closed")
        self.requests.append(request)
        self._stats = replace(
            self._stats,
            requests=self._stats.requests + 1,
            prompt_tokens=self._stats.prompt_tokens + len(request.ids),
        )
        reply = self._reply(request)
        cancelled = asyncio.get_running_loop().create_future()
        self._open[cancelled] = request.session
        try:
            await asyncio.wait((cancelled,), timeout=reply.seconds)
            if cancelled.done():
                return self._completion((), (), Stop.ABORT)
            if reply.fault is not None:
                raise reply.fault
            return self._cut(reply, request)
        finally:
            del self._open[cancelled]
            self._changed.notify()

    async def publish(
        self, weights: Weights | None, version: int, refresh: Refresh = "at_turn"
    ) -> None:
        """See :class:`hexad.policy.engine.Engine`; ``weights`` are ignored.

        A scripted reply comes in one piece, so in flight the new version has sampled all of it.
        """
        if self._publishing:
            raise ContractViolation(f"version {version} is published during another publish")
        if refresh == "in_flight":
            self._version = version
            return
        self._publishing = True
        try:
            await self.drain()
            self._version = version
        finally:
            self._publishing = False
            self._changed.notify()

    async def abort(self, session: str | None = None) -> None:
        """See :class:`hexad.policy.engine.Engine`."""
        for cancelled, name in self._open.items():
            if (session is None or name == session) and not cancelled.done():
                cancelled.set_result(None)

    async def drain(self) -> None:
        """See :class:`hexad.policy.engine.Engine`."""
        while self._open:
            await self._changed.wait()

    async def close(self) -> None:
        """See :class:`hexad.policy.engine.Engine`."""
        await self.abort()
        self._closed = True

    def health(self) -> Health:
        """See :class:`hexad.policy.engine.Engine`."""
        return Health(not self._closed, "the engine is closed" if self._closed else "")

    def _reply(self, request: Request) -> Reply:
        if callable(self._script):
            return self._script(request)
        if isinstance(self._script, Mapping):
            line, name = self._script.get(request.session or "", ()), request.session
        else:
            line, name = self._script, None
        call = self._calls.get(name, 0)
        if call >= len(line):
            raise LookupError(f"the script has no reply {call} for session {request.session!r}")
        self._calls[name] = call + 1
        return line[call]

    def _cut(self, reply: Reply, request: Request) -> Completion:
        """The reply as a model would have given it."""
        logprobs = reply.logprobs if reply.logprobs is not None else [-1.0] * len(reply.ids)
        if len(logprobs) != len(reply.ids):
            raise ValueError(f"{len(reply.ids)} ids but {len(logprobs)} log-probs are scripted")
        ends = [i for i, token in enumerate(reply.ids) if token in request.stop_ids]
        count = min([end + 1 for end in ends] + [request.max_tokens, len(reply.ids)])
        stopped = bool(count) and reply.ids[count - 1] in request.stop_ids
        if not stopped and count < request.max_tokens:
            raise ValueError(
                f"the scripted ids {list(reply.ids)} end neither in a stop id "
                f"{request.stop_ids} nor at max_tokens {request.max_tokens}"
            )
        stop = Stop.TOKEN if stopped else Stop.LENGTH
        if reply.support is not None and len(reply.support) != len(reply.ids):
            raise ValueError(f"{len(reply.ids)} ids but {len(reply.support)} sets are scripted")
        completion = self._completion(reply.ids[:count], logprobs[:count], stop)
        if reply.support is None:
            return completion
        return replace(completion, support=Support.of(reply.support[:count]))

    def _completion(self, ids: Sequence[int], logprobs: Sequence[float], stop: Stop) -> Completion:
        self._stats = replace(self._stats, sampled_tokens=self._stats.sampled_tokens + len(ids))
        versions = np.full(len(ids), self._version)
        return Completion(
            frozen(ids, np.int32), frozen(logprobs, np.float32), frozen(versions, np.int32), stop
        )
