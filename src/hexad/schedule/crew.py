"""The crew: workers by slot, what each of them plays, and what is done when one is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from hexad.contract.arrow import from_ipc
from hexad.contract.episode import Episode
from hexad.contract.faults import ContractViolation, UserError, WorkersLost
from hexad.recipe.timing_axis import WorkersSpec
from hexad.schedule.backend import Backend
from hexad.schedule.frame import Frame, FrameError
from hexad.schedule.messages import (
    Beat,
    Failed,
    Finished,
    Lost,
    Message,
    Paused,
    Play,
    Publish,
    Ready,
    read,
)

STARTUP_SECONDS = 180.0
"""How long a worker may take to import and build everything before it must give signs of life."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """An episode is finished; ``lost`` of its sampled tokens are in no episode."""

    episode: Episode
    lost: int


@dataclass(frozen=True, slots=True)
class Parked:
    """An episode was paused; ``log`` is what happened so far."""

    episode_id: str
    log: bytes
    lost: int


@dataclass(frozen=True, slots=True)
class Gone:
    """The worker of ``slot`` is gone, and with it what it played."""

    slot: int
    why: str
    episodes: tuple[str, ...]


News = Arrived | Parked | Lost | Gone


@dataclass(slots=True)
class _Seen:
    """What a worker's last sign of life said, and when."""

    beat: Beat | None = None
    ready: bool = False
    cpu: float = 0.0
    since: float = field(default_factory=time.monotonic)


class Crew:
    """``spec.count`` workers of ``backend``; a dead or silent one is replaced at once.

    ``check`` is told the digests that a worker was built with and raises where they are not the
    learner's. Everything happens inside the calls: nothing here runs by itself.
    """

    def __init__(
        self, backend: Backend, spec: WorkersSpec, check: Callable[[Mapping[str, str]], None]
    ) -> None:
        self._backend, self._spec, self._check = backend, spec, check
        self._published: Frame | None = None
        self._seen: dict[int, _Seen] = {}
        self._given_up: dict[int, str] = {}
        self.plays: dict[int, set[str]] = {}
        """Episode ids by slot: what was handed to each worker and has not come back."""
        self.restarts = 0
        self.lost = 0
        """Workers that died or were given up since :meth:`busy` was asked."""

    def start(self) -> None:
        """Start every worker."""
        for slot in range(self._spec.count):
            self._start(slot)

    def publish(self, version: int, lineage: str, weights: bytes) -> None:
        """Hand new weights to everyone, and to whoever is started later."""
        self._published = Publish(version=version, lineage=lineage).frame(weights)
        for slot in self.plays:
            self._backend.send(slot, self._published)

    def play(self, order: Play, log: bytes) -> None:
        """Let the worker with the fewest episodes play."""
        slot = min(self.plays, key=lambda slot: (len(self.plays[slot]), slot))
        self.plays[slot].add(order.episode_id)
        self._backend.send(slot, order.frame(log))

    def hear(self, timeout: float) -> list[News]:
        """What happened; waits at most ``timeout`` seconds for the first news.

        Raises ``UserError`` for a worker that failed by the user's fault, ``ContractViolation`` for
        one that failed by ours, ``WorkersLost`` when one is gone and may not be replaced.
        """
        self._give_up_silent()
        news: list[News] = []
        for slot, frame in self._backend.receive(timeout):
            if frame is None:
                news.append(self._gone(slot))
                continue
            try:
                found = self._read(slot, frame)
            except FrameError as error:
                self._kill(slot, f"it sent junk: {error}")
                continue
            if found is not None:
                news.append(found)
        return news

    def busy(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """By slot: share of the wall-clock since the last call that was processor time, live now.

        Above 1 where a worker uses several threads.
        """
        shares, live = [], []
        for slot in sorted(self._seen):
            seen, now = self._seen[slot], time.monotonic()
            used = seen.beat.busy_seconds if seen.beat is not None else 0.0
            shares.append((used - seen.cpu) / max(now - seen.since, 1e-9))
            live.append(seen.beat.live if seen.beat is not None else 0)
            seen.cpu, seen.since = used, now
        return tuple(shares), tuple(live)

    def describe(self) -> str:
        """One line a worker: what it plays and when it was heard last."""
        return "; ".join(self._describe(slot) for slot in sorted(self.plays))

    def close(self, seconds: float = 5.0) -> None:
        """End all workers within ``seconds``."""
        self._backend.close(seconds)

    def _describe(self, slot: int) -> str:
        seen = self._seen[slot]
        heard = f"heard {self._backend.silent(slot):.0f} s ago"
        if not seen.ready:
            return f"worker {slot} is starting, {heard}"
        beat = seen.beat
        live = "" if beat is None else f", {beat.live} live, {beat.waiting} not begun"
        return f"worker {slot}: {len(self.plays[slot])} episodes{live}, {heard}"

    def _start(self, slot: int) -> None:
        self.plays[slot], self._seen[slot] = set(), _Seen()
        self._backend.start(slot)
        if self._published is not None:
            self._backend.send(slot, self._published)

    def _gone(self, slot: int) -> Gone:
        why = self._given_up.pop(slot, "its process ended")
        said = self._backend.said(slot).strip()
        self.lost += 1
        if self.restarts == self._spec.restarts:
            raise WorkersLost(
                f"worker {slot} is gone ({why}) and {self.restarts} were replaced already\n"
                + (f"  it said: {said}\n" if said else "")
                + "  fix:     repair what kills it, or raise timing.workers.restarts"
            )
        self.restarts += 1
        orphans = tuple(sorted(self.plays[slot]))
        self._start(slot)
        return Gone(slot, f"{why}; {said}" if said else why, orphans)

    def _give_up_silent(self) -> None:
        for slot, seen in self._seen.items():
            limit = self._spec.patience if seen.ready else STARTUP_SECONDS
            quiet = self._backend.silent(slot)
            if quiet > limit:
                self._kill(slot, f"nothing was heard for {quiet:.0f} s")

    def _kill(self, slot: int, why: str) -> None:
        if slot not in self._given_up:
            self._given_up[slot] = why
            self._backend.kill(slot)

    def _read(self, slot: int, frame: Frame) -> News | None:
        message = read(frame)
        if isinstance(message, Finished):
            episode = self._episode(message, frame.body)
            self.plays[slot].discard(message.episode_id)
            return Arrived(episode, message.lost)
        if isinstance(message, Paused):
            self.plays[slot].discard(message.episode_id)
            return Parked(message.episode_id, frame.body, message.lost)
        if isinstance(message, Lost):
            self.plays[slot].discard(message.episode_id)
            return message
        self._note(slot, message)
        return None

    def _episode(self, message: Finished, body: bytes) -> Episode:
        try:
            found = from_ipc(body)
        except (pa.ArrowInvalid, UserError) as error:
            raise FrameError(f"its episode {message.episode_id} cannot be read: {error}") from error
        if [episode.episode_id for episode in found] != [message.episode_id]:
            raise FrameError(f"{len(found)} other episodes came as {message.episode_id}")
        return found[0]

    def _note(self, slot: int, message: Message) -> None:
        seen = self._seen[slot]
        if isinstance(message, Ready):
            self._check(message.digests)
            seen.ready = True
        elif isinstance(message, Beat):
            seen.beat = message
            if seen.ready and message.loop_seconds > self._spec.patience:
                self._kill(slot, f"its event loop hangs for {message.loop_seconds:.0f} s")
        elif isinstance(message, Failed):
            if message.error == "user":
                raise UserError(message.message, where=message.where, fix=message.fix)
            raise ContractViolation(f"worker {slot} failed by a bug of Hexad: {message.message}")
