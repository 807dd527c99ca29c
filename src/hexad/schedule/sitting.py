"""One plan played and judged in a worker: from its order to the answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from hexad.contract.arrow import to_ipc
from hexad.contract.durable import disk_errors
from hexad.contract.episode import Episode
from hexad.contract.faults import ContractViolation, UserError
from hexad.contract.task import Task
from hexad.recipe.axes import Recipe
from hexad.rollout.agent import Paused, assess, play
from hexad.rollout.attempt import Seat
from hexad.rollout.build import Lineage, policy_of, world_of
from hexad.rollout.entries import Restarted
from hexad.rollout.log import EpisodeLog
from hexad.rollout.plan import EpisodePlan
from hexad.rollout.resume import NotResumable
from hexad.schedule import messages
from hexad.schedule.berths import Berths
from hexad.schedule.cursor import train_tasks
from hexad.schedule.engines import engines_of
from hexad.schedule.frame import Frame
from hexad.schedule.messages import Finished, Lost, Play


@dataclass(frozen=True, slots=True)
class Order:
    """A plan to play and, where the episode goes on, the bytes of its log."""

    play: Play
    log: bytes


class Stage:
    """Everything that plans are played with. ``held`` gets what must be released.

    Every live episode has its log in the folder ``wal``, as ``EPISODE.arrows``; nothing is deleted.
    """

    def __init__(self, recipe: Recipe, wal: Path, held: ExitStack) -> None:
        with disk_errors("make the folder of the episodes' logs", wal):
            wal.mkdir(parents=True, exist_ok=True)
        policy, self._wal = policy_of(recipe), wal
        self._lineage = Lineage()
        self.engines = engines_of(recipe, policy)
        self.world = world_of(recipe, policy, self.engines.newest, self._lineage.of, held)
        self._berths, self._seated = Berths(), 0
        held.callback(self._berths.close)

    def know(self, lineage: dict[int, str]) -> None:
        """Learn which weights versions stood for; they never change in a worker's life."""
        known = self._lineage.digests
        for version, digest in lineage.items():
            if known.setdefault(version, digest) != digest:
                raise ContractViolation(f"version {version} is {digest}, and was {known[version]}")

    async def sit(self, order: Order, left: Callable[[], None]) -> Frame:
        """Play ``order`` and judge the episode; the answer. ``left`` is told when it was played."""
        self.know(order.play.lineage)
        plan, lost = order.play.plan(self._task(order.play)), order.play.lost
        log = self._log(order)
        try:
            outcome = await self._play(order, plan, log)
        except NotResumable as refusal:
            if not refusal.repeatable:
                lost += log.sampled_tokens
                gone = Lost(episode_id=plan.episode_id, lost=lost, reason=refusal.reason)
                return gone.frame()
            log.append(Restarted())  # in the log, so that a second death does not forget the loss
            outcome = await self._play(order, plan, log)
        finally:
            left()
            log.close()
        if isinstance(outcome, Paused):
            paused = messages.Paused(episode_id=plan.episode_id, lost=lost)
            return paused.frame(outcome.log.data())
        episode = await assess(plan, self.world, outcome)
        done = Finished(episode_id=plan.episode_id, lost=lost + log.lost_tokens)
        return done.frame(bytes(to_ipc([episode])))

    async def _play(self, order: Order, plan: EpisodePlan, log: EpisodeLog) -> Episode | Paused:
        engine = self.engines.enter(plan.episode_id)
        self._seated += 1
        try:
            with self._berths.berth() as hosts:
                pause = order.play.pause_after
                seat = Seat(engine.sample, hosts, self._seated, pause_after=pause)
                return await play(plan, self.world, seat, log)
        finally:
            await self.engines.leave(plan.episode_id)

    def _log(self, order: Order) -> EpisodeLog:
        """The log to go on with. A plan is never played by older weights than it was before."""
        path = self._wal / f"{order.play.episode_id}.arrows"
        log = EpisodeLog.read(order.log, path) if order.log else EpisodeLog.create(path)
        loaded = self.engines.newest.version
        if log.newest_version > loaded:
            raise ContractViolation(
                f"{order.play.episode_id} was sampled by version {log.newest_version} and is to go "
                f"on with {loaded}"
            )
        return log

    def _task(self, asked: Play) -> Task:
        """The task that is meant. Raises ``UserError`` where this process has another one."""
        (task,) = train_tasks(self.world.family, None, asked.index, 1)
        if task.task_id != asked.task_id:
            raise UserError(
                f"task number {asked.index} is {task.task_id} in a worker and {asked.task_id} in "
                "the trainer",
                where=f"{type(self.world.family).__name__}.tasks",
                fix="let tasks depend on the recipe's options and the arguments alone, and let "
                "every worker see the same code and data",
            )
        return task
