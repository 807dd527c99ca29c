"""From a plan to a finished, judged episode: attempts, retries of faults, feedback."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import overload

from hexad.contract.ending import Ending, EndingKind
from hexad.contract.episode import Actor, Costs, Episode, Times
from hexad.contract.faults import EnvironmentFault, Fault, FaultRecord, ToolFault
from hexad.environments.protocol import stratum_of
from hexad.rollout.attempt import Attempt, Seat
from hexad.rollout.entries import Spent
from hexad.rollout.host import Hosts
from hexad.rollout.log import EpisodeLog
from hexad.rollout.plan import EpisodePlan
from hexad.rollout.tape import Tape
from hexad.rollout.world import World


@dataclass(frozen=True, slots=True)
class Paused:
    """An episode whose sitting ended before it did; :func:`play` goes on with its ``log``."""

    log: EpisodeLog


async def run_episode(plan: EpisodePlan, world: World) -> Episode:
    """Play ``plan`` against the world's engine and judge it. See :func:`play`, :func:`assess`."""
    hosts = Hosts(1)
    try:
        return await assess(plan, world, await play(plan, world, Seat(world.engine.sample, hosts)))
    finally:
        hosts.stop()


@overload
async def play(plan: EpisodePlan, world: World, seat: Seat) -> Episode: ...


@overload
async def play(
    plan: EpisodePlan, world: World, seat: Seat, log: EpisodeLog
) -> Episode | Paused: ...


async def play(
    plan: EpisodePlan, world: World, seat: Seat, log: EpisodeLog | None = None
) -> Episode | Paused:
    """Play ``plan`` until an attempt ends without a fault, or ``world.retries`` are used up.

    An attempt that did something a reset does not undo is not repeated. The last attempt is the one
    that is stored; if it faulted, the ending names the fault. The episode is not judged yet.

    What ``log`` holds is taken from there, what happens goes into it; after ``seat.pause_after``
    tokens the episode is paused. Raises ``NotResumable`` where the log cannot go on.
    """
    clock = world.clock()
    tape = Tape(log, plan.episode_id, seat.pause_after)
    while True:
        attempt = Attempt(plan, world, tape.number, seat, tape)
        try:
            ending = await attempt.play()
        except Fault as fault:
            attempt.faults.insert(0, FaultRecord.of(fault, attempt.number))
            ending = Ending.of(_kind(fault), str(fault))
            if attempt.number < world.retries and attempt.repeatable:
                tape.restart(_spent(tape.spent, attempt))
                continue
        break
    if log is not None and ending.kind is EndingKind.PAUSED:
        tape.leave(tuple(attempt.faults))
        return Paused(log)
    episode = _episode(attempt, ending, tape.spent)
    seconds = tape.played + world.clock() - clock
    return replace(episode, times=replace(episode.times, started=tape.started, seconds=seconds))


def _spent(before: Spent, attempt: Attempt) -> Spent:
    """``before`` with an attempt that is thrown away."""
    return Spent(
        (*before.faults, *attempt.faults),
        before.lost_tokens + attempt.sampled_tokens,
        before.tool_calls + attempt.tool_calls,
        before.engine_seconds + attempt.engine_seconds,
        before.tool_seconds + attempt.tool_seconds,
        before.seconds + attempt.seconds,
    )


async def assess(plan: EpisodePlan, world: World, episode: Episode) -> Episode:
    """``episode`` with verdict and rewards, judged in a thread; unchanged without feedback."""
    if world.feedback is None:
        return episode
    transcript = world.chat.decode(episode.segments)
    try:
        return await asyncio.to_thread(world.feedback.apply, plan.task, episode, transcript)
    except asyncio.CancelledError:
        world.feedback.close()  # a verifier that hangs would hold its thread, and that the exit
        raise


def _episode(attempt: Attempt, ending: Ending, spent: Spent) -> Episode:
    plan, world, recorder = attempt.plan, attempt.world, attempt.recorder
    segments = (recorder.finish(),) if len(recorder.context) else ()
    versions = {int(v) for s in segments for v in set(s.version[s.action].tolist())}
    expert = attempt.seat.actor is Actor.EXPERT
    return Episode(
        episode_id=plan.episode_id,
        task_id=plan.task.task_id,
        group_id=plan.group_id,
        member=plan.member,
        split=plan.split,
        environment=plan.environment,
        stratum=stratum_of(world.family, plan.task),
        initial_state=attempt.initial_state,
        states=attempt.states,
        seed=plan.environment_seed(attempt.number),
        segments=segments,
        ending=ending,
        provenance=world.demonstrated if expert else world.provenance(versions),
        actor=attempt.seat.actor,
        rewards=() if ending.faulted else tuple(attempt.rewards),
        refusals=tuple(attempt.refusals),
        attempt=attempt.number,
        faults=(*spent.faults, *attempt.faults),
        costs=Costs(
            sampled_tokens=attempt.sampled_tokens,
            observation_tokens=attempt.observation_tokens,
            tool_calls=spent.tool_calls + attempt.tool_calls,
            turns=recorder.turns,
            lost_tokens=spent.lost_tokens,
        ),
        times=Times(
            engine_seconds=spent.engine_seconds + attempt.engine_seconds,
            tool_seconds=spent.tool_seconds + attempt.tool_seconds,
            waited_seconds=attempt.waited_seconds,
        ),
    )


def _kind(fault: Fault) -> EndingKind:
    if isinstance(fault, EnvironmentFault | ToolFault):
        return EndingKind.ENVIRONMENT_ERROR
    return EndingKind.INFRASTRUCTURE_ERROR
