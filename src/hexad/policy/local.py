"""The engine in this process: continuous batching, prefix cache, repeatable draws."""

from __future__ import annotations

import asyncio
import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hexad.contract.arrays import Bools
from hexad.contract.digest import code_digest
from hexad.contract.faults import ContractViolation, EngineFault
from hexad.contract.sampling import Sampling
from hexad.policy import adapter as adapters
from hexad.policy import attend, block, cuts, decode, draw, generic, grammar, lean, qwen, transforms
from hexad.policy.backend import Ask, Backend, Index
from hexad.policy.cuts import Cuts
from hexad.policy.engine import (
    Completion,
    EngineStats,
    Health,
    Refresh,
    Request,
    Stop,
    Weights,
    require_fit,
)
from hexad.policy.grammar import Grammars
from hexad.policy.lease import Lease
from hexad.policy.signal import Signal
from hexad.policy.table import Table, Ticket
from hexad.policy.transforms import require_replayable

if TYPE_CHECKING:
    from hexad.policy.policy import Policy


class LocalEngine:
    """An :class:`hexad.policy.engine.Engine` over the policy's own PyTorch model.

    At most ``rows`` requests decode at once; the rest wait in order of arrival. Contexts of earlier
    requests stay cached in ``slots`` slots (twice ``rows`` by default), the oldest evicted first.

    ``bind=True`` reads the learner's parameters in place: while a request is open it holds
    :meth:`lease`, and after a step nothing is served until ``publish(None, version)``.
    ``bind=False`` copies the model and loads what is published.

    Qwen3-shaped models take the lean path, all others the generic one. With the lean path, float32
    and one CPU thread a request's ids and log-probs are the same bits alone, batched or cached.
    """

    def __init__(
        self, policy: Policy, *, rows: int, bind: bool = True, slots: int | None = None
    ) -> None:
        if rows < 1:
            raise ValueError(f"an engine needs at least one row, got {rows}")
        self._policy = policy
        self._bound = bind
        self._model: Any = policy.model if bind else adapters.copied(policy.model)
        self._vocabulary = int(self._model.get_output_embeddings().weight.shape[0])
        self._backend: Backend = (
            lean.Lean(self._model, max(rows, slots or 2 * rows))
            if qwen.lean_shaped(self._model)
            else generic.Generic(self._model)
        )
        self._grammars = Grammars(policy.tokenizer, self._vocabulary, policy.stop_ids)
        self._table = Table(rows, self._vocabulary, Cuts(self._grammars))
        self._together = max(1, rows // 8)
        self._queue: list[Ticket] = []
        self._held: list[Ticket] = []
        self._changed = Signal()
        self._pump: asyncio.Task[None] | None = None
        self._replayable: set[tuple[Sampling, bool]] = set()
        self._publishing = self._closed = False
        self._version = 0
        self._lease = Lease()
        self._writes = 0
        self._adapter = policy.adapter
        self._counts = dict.fromkeys(EngineStats.__dataclass_fields__, 0)
        dtype, device = str(self._model.dtype), self._model.device.type
        config = {"path": self._backend.name, "dtype": dtype, "device": device}
        sources = (
            sys.modules[__name__],
            adapters,
            attend,
            block,
            decode,
            cuts,
            draw,
            generic,
            grammar,
            lean,
            qwen,
            transforms,
        )
        self._digest = code_digest("hexad.local", "1", config, *sources)

    @property
    def digest(self) -> str:
        """See :class:`hexad.policy.engine.Engine`."""
        return self._digest

    @property
    def version(self) -> int:
        """See :class:`hexad.policy.engine.Engine`."""
        return self._version

    @property
    def stats(self) -> EngineStats:
        """See :class:`hexad.policy.engine.Engine`."""
        return EngineStats(**self._counts)

    @property
    def path(self) -> str:
        """``lean`` or ``generic``: who runs the model."""
        return self._backend.name

    def lease(self) -> Lease:
        """The lease that a learner enters as ``writer()`` for each step on bound tensors."""
        return self._lease

    async def sample(self, request: Request) -> Completion:
        """See :class:`hexad.policy.engine.Engine`.

        A completion that fills the model's context ends with ``Stop.LENGTH``. Raises ``ValueError``
        for a prompt that leaves no room for a token, or ids outside the vocabulary.
        """
        self._accept(request)
        if not self._bound:
            return await self._serve(request)
        with self._lease.reader():
            if self._writes != self._lease.writes:
                raise ContractViolation(
                    f"the weights moved after version {self._version} was published"
                )
            return await self._serve(request)

    async def publish(
        self, weights: Weights | None, version: int, refresh: Refresh = "at_turn"
    ) -> None:
        """See :class:`hexad.policy.engine.Engine`; later requests wait until it is done.

        Weights that do not fit the model are refused before anything is touched. A bound engine has
        no ``in_flight``: its weights cannot have moved while a request was open.
        """
        if self._closed:
            raise EngineFault("the engine is closed")
        if (weights is None) != self._bound:
            raise ContractViolation("a bound engine publishes no weights, a copying one needs them")
        if weights is not None:
            require_fit(weights, adapters.moving(self._model))
        elif refresh == "in_flight":
            raise ContractViolation("a bound engine cannot take weights in flight")
        if self._publishing:
            raise ContractViolation(f"version {version} is published during another publish")
        self._publishing = True
        try:
            if refresh == "in_flight":
                self._cut()
            while self._table.tickets or (self._queue and refresh == "at_turn"):
                await self._changed.wait()
            if weights is not None:
                adapters.load(self._model, weights)
            self._backend.retire()
            self._writes, self._adapter = self._lease.writes, self._policy.adapter
            self._version = version
        finally:
            self._publishing = False
            self._queue, self._held = self._queue + self._held, []
            self._ensure_pump()

    async def abort(self, session: str | None = None) -> None:
        """See :class:`hexad.policy.engine.Engine`."""
        for ticket in [*self._held, *self._queue, *self._table.tickets.values()]:
            if session is None or ticket.request.session == session:
                self._end_early(ticket)

    async def drain(self) -> None:
        """See :class:`hexad.policy.engine.Engine`."""
        while self._held or self._queue or self._table.tickets:
            await self._changed.wait()

    async def close(self) -> None:
        """See :class:`hexad.policy.engine.Engine`."""
        await self.abort()
        self._closed = True
        self._backend.close()

    def health(self) -> Health:
        """See :class:`hexad.policy.engine.Engine`."""
        return Health(not self._closed, "the engine is closed" if self._closed else "")

    def _accept(self, request: Request) -> None:
        """Refuse what cannot be served."""
        if self._closed:
            raise EngineFault("the engine is closed")
        if self._adapter != self._policy.adapter:
            raise ContractViolation("the adapter changed after the last publish")
        if (request.sampling, request.trained) not in self._replayable:
            require_replayable(
                request.sampling,
                self._model.generation_config,
                self._vocabulary,
                trained=request.trained,
            )
            if request.sampling.grammar is not None:
                self._grammars.matcher(request.sampling.grammar, request.stop_ids)
            self._replayable.add((request.sampling, request.trained))
        if request.sampling.grammar is not None and not request.stop_ids:
            raise ValueError("a grammar ends with a stop id, and the request names none")
        if not 0 <= request.begun <= len(request.ids):
            raise ValueError(f"{request.begun} of {len(request.ids)} ids cannot have begun a turn")
        ids, room = request.ids, self._policy.max_context - len(request.ids)
        if not len(ids) or room < 1 or request.max_tokens < 1:
            raise ValueError(
                f"cannot sample {request.max_tokens} tokens after a prompt of {len(ids)}: "
                f"the context holds {self._policy.max_context}"
            )
        named = [int(ids.min()), int(ids.max()), *request.stop_ids]
        if min(named) < 0 or max(named) >= self._vocabulary:
            raise ValueError(f"an id is outside the vocabulary of {self._vocabulary}")

    def _cut(self) -> None:
        """Stop every open request after the token it is at; it waits at the head of the queue."""
        table = self._table
        lanes = table.live
        pieces = [table.completion(lane, self._version, aborted=True) for lane in lanes.tolist()]
        limits = table.limit[lanes].tolist()
        tickets = table.close(lanes)
        for lane, ticket, piece, limit in zip(lanes.tolist(), tickets, pieces, limits, strict=True):
            self._backend.release(lane, keep=True)
            ticket.cut(piece, limit)
        self._queue = tickets + self._queue

    async def _serve(self, request: Request) -> Completion:
        ticket = Ticket(request, asyncio.get_running_loop().create_future())
        (self._held if self._publishing else self._queue).append(ticket)
        self._counts["requests"] += 1
        self._ensure_pump()
        try:
            return await ticket.future
        finally:
            self._end_early(ticket)

    def _ensure_pump(self) -> None:
        """Run the decoding task in the current event loop if there is work and none runs."""
        loop = asyncio.get_running_loop()
        if self._pump is not None and not self._pump.done():
            if self._pump.get_loop() is not loop:
                raise ContractViolation("one engine is used from two event loops at once")
        elif self._queue:
            self._pump = loop.create_task(self._run())
            self._pump.add_done_callback(self._pumped)
        self._changed.notify()

    async def _run(self) -> None:
        """One admission and one decode step an iteration; the loop runs others in between."""
        while self._queue or len(self._table.live):
            await asyncio.sleep(0)
            with torch.inference_mode():
                self._admit()
                self._decode()

    def _pumped(self, task: asyncio.Task[None]) -> None:
        """Pass the end of the decoding task on to whoever still waits for a completion."""
        error = None if task.cancelled() else task.exception()
        if task is not self._pump:  # a new one has taken over
            return
        for ticket in [*self._queue, *self._table.tickets.values()]:
            if not ticket.future.done():
                if error is not None:
                    ticket.future.set_exception(error)
                else:
                    ticket.future.cancel()

    def _admit(self) -> None:
        """Take waiting requests in, in order, while lanes are free, and draw their first token.

        A long queue waits until an eighth of the rows is free: prompts are cheaper in company.
        """
        while self._queue and self._table.free >= min(len(self._queue), self._together):
            batch, self._queue = (
                self._queue[: self._table.free],
                self._queue[self._table.free :],
            )
            asks = []
            for ticket in batch:
                request = ticket.request
                room = self._policy.max_context - len(request.ids)
                limit = min(request.max_tokens, room)
                lane = self._table.open(ticket, limit)
                asks.append(Ask(lane, request.ids, limit, request.session))
            taken = self._backend.admit(asks)
            lanes = np.array([ask.lane for ask in asks], np.int64)
            self._queue = self._table.close(lanes[taken.count :]) + self._queue
            lanes = lanes[: taken.count]
            self._counts["prompt_tokens"] += sum(len(ask.ids) for ask in asks[: taken.count])
            self._counts["cached_tokens"] += taken.cached
            self._table.start(lanes)
            self._draw(lanes, taken.logits)

    def _decode(self) -> None:
        """Advance every live lane by one token."""
        table = self._table
        lanes = table.live
        if not len(lanes):
            return
        logits = self._backend.step(lanes, table.token[lanes], table.position[lanes] - 1)
        self._counts["decode_steps"] += 1
        self._counts["decode_rows"] += len(lanes)
        self._draw(lanes, logits)

    def _draw(self, lanes: Index, logits: torch.Tensor) -> None:
        """Draw the next token of ``lanes``, whose ``logits`` are ``[len(lanes), vocabulary]``."""
        if logits.dtype not in (torch.float32, torch.float64):
            logits = logits.float()
        sums = logits.sum(-1).cpu().numpy()
        if not math.isfinite(sums.sum(dtype=np.float64)):
            bad = ~np.isfinite(sums)
            lanes, logits = self._fault(lanes, logits, bad, "non-finite logits")
        if self._table.cuts:
            for lane, why in self._table.cuts.advance(lanes, self._table.token[lanes]).items():
                lanes, logits = self._fault(lanes, logits, lanes == lane, why)
        if not len(lanes):
            return
        scores = logits
        if self._table.tempered:
            temperature = self._table.temperature[lanes]
            scores = logits / torch.from_numpy(temperature).to(logits.device)[:, None]
        logprobs = torch.log_softmax(scores, -1)
        if self._table.cuts:
            self._table.cuts.apply(lanes, logits, logprobs)
        u = torch.from_numpy(self._table.draws(lanes)).to(logits.device)
        ids = draw.pick(logprobs, u)
        chosen = logprobs.gather(1, ids[:, None])[:, 0]
        self._counts["sampled_tokens"] += len(lanes)
        self._finish(self._table.record(lanes, ids.cpu().numpy(), chosen.cpu().numpy()))

    def _finish(self, lanes: Index) -> None:
        """Complete requests that sampled a stop id or their last token."""
        if not len(lanes):
            return
        for lane, ticket in zip(lanes.tolist(), self._table.close(lanes), strict=True):
            self._backend.release(lane, keep=True)
            ticket.settle(self._table.completion(lane, self._version))
        self._changed.notify()

    def _fault(
        self, lanes: Index, logits: torch.Tensor, bad: Bools, why: str
    ) -> tuple[Index, torch.Tensor]:
        """Fail the requests where ``bad``; what is left of ``lanes`` and ``logits`` goes on."""
        for lane, ticket in zip(lanes[bad].tolist(), self._table.close(lanes[bad]), strict=True):
            self._backend.release(lane, keep=False)
            fault = EngineFault(
                f"{why}, at position {self._table.position[lane]} of session "
                f"{ticket.request.session!r}, policy version {self._version}"
            )
            if not ticket.future.done():
                ticket.future.set_exception(fault)
        self._changed.notify()
        return lanes[~bad], logits[torch.from_numpy(~bad).to(logits.device)]

    def _end_early(self, ticket: Ticket) -> None:
        """Take an unfinished request out, and complete it as aborted if its caller still waits."""
        if ticket.lane in self._table.tickets and self._table.tickets[ticket.lane] is ticket:
            completion = self._table.completion(ticket.lane, self._version, aborted=True)
            self._table.close(np.array([ticket.lane]))
            self._backend.release(ticket.lane, keep=True)
        else:
            none = np.zeros(0, np.float32)
            completion = Completion(none.astype(np.int32), none, none.astype(np.int32), Stop.ABORT)
            for waiting in (self._held, self._queue):
                if ticket in waiting:
                    waiting.remove(ticket)
        ticket.settle(completion)
        self._changed.notify()
