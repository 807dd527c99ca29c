"""One attempt at an episode: the loop in which policy and environment meet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hexad.contract.arrays import Ints
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.episode import Actor
from hexad.contract.faults import EnvironmentFault, FaultRecord
from hexad.contract.reward import Reward
from hexad.environments.protocol import Environment, Step
from hexad.policy.engine import Completion, Request, Stop
from hexad.rollout.checks import check_completion, check_start, check_state, check_step
from hexad.rollout.host import Hosts, read
from hexad.rollout.plan import EpisodePlan
from hexad.rollout.recorder import Recorder
from hexad.rollout.world import World

Act = Callable[[Request], Awaitable[Completion]]
"""Who chooses the tokens: an engine, a gate in front of it, or an expert."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Where an episode is played: who acts, and on which of ``hosts`` its environment lives."""

    act: Act
    hosts: Hosts
    index: int = 0
    actor: Actor = Actor.POLICY


class Attempt:
    """Plays ``plan`` once. Its fields hold whatever happened, also after a fault.

    A turn that the turn limit cuts truncates the episode: the environment does not see it, and what
    was sampled is the final state. At every other truncation, and at an ending with messages, the
    true final observation is stored without a generation header.
    """

    def __init__(self, plan: EpisodePlan, world: World, number: int, seat: Seat) -> None:
        self.plan, self.world, self.number, self.seat = plan, world, number, seat
        self.recorder = Recorder(seat.actor)
        self.initial_state = "none"
        self._states: list[str | None] = []
        self.rewards: list[Reward] = []
        self.faults: list[FaultRecord] = []
        self.sampled_tokens = self.observation_tokens = self.tool_calls = 0
        self.engine_seconds = self.tool_seconds = 0.0
        self._host = seat.hosts.take(seat.index)
        self._environment: Environment | None = None
        self._started = world.clock()

    @property
    def repeatable(self) -> bool:
        """Whether a fresh reset undoes what the attempt did (``Environment.repeatable``)."""
        try:
            look = read("repeatable", lambda: getattr(self._environment, "repeatable", True))
        except EnvironmentFault:
            return False
        return look is True

    @property
    def states(self) -> tuple[str, ...]:
        """The state that each turn began in; empty where the environment names none."""
        begun = self._states[: self.recorder.turns]
        known = tuple(state for state in begun if state is not None)
        return known if len(known) == self.recorder.turns else ()

    async def play(self) -> Ending:
        """Play to the end and return it. Raises the ``Fault`` that stopped the attempt."""
        try:
            await self._reset()
            while True:
                ending = self._before_turn() or await self._turn()
                if ending is not None:
                    return ending
        finally:
            await self._close()

    async def _reset(self) -> None:
        world, plan = self.world, self.plan

        async def enter() -> object:
            self._environment = made = world.family.make()
            return await made.reset(plan.task, plan.environment_seed(self.number))

        answer = await self._host.call("reset", world.patience.reset, enter)
        start = check_start(answer, world.family.tools)
        self.initial_state = start.state_digest
        self._states.append(start.state_digest)
        self.recorder.start(world.chat.prompt(start.messages))

    async def _turn(self) -> Ending | None:
        request = self._request()
        completion = await self._act(request)
        parsed = self.world.chat.parse(completion.ids)
        self.recorder.completion(request.ids, completion, parsed.spans)
        if completion.stop is Stop.LENGTH:
            limit = self.world.limits.turn_tokens
            cut = "turn_tokens" if len(completion.ids) == limit else "context_tokens"
            return Ending.of(EndingKind.TRUNCATED_TOKENS, f"a turn was cut by {cut}")
        environment = self._environment
        assert environment is not None
        patience = self.world.patience.step

        async def advance() -> tuple[object, object]:
            stepped = await environment.step(parsed.turn)
            look = getattr(environment, "state_digest", None)
            return stepped, look() if look is not None else None

        answer, state = await self._host.call("step", patience, advance)
        step = check_step(answer)
        self._states.append(check_state(state))
        self.tool_calls += step.tool_calls
        self.tool_seconds += step.tool_seconds
        self.rewards.extend(step.rewards)
        return self._observe(completion.ids, step)

    def _request(self) -> Request:
        world, limits = self.world, self.world.limits
        context = self.recorder.context
        return Request(
            ids=context,
            sampling=world.sampling,
            key=self.plan.key(self.number),
            max_tokens=min(limits.turn_tokens, limits.context_tokens - len(context)),
            stop_ids=world.stop_ids,
            session=f"{self.plan.episode_id}/{self.number}",
            trained=world.trained,
        )

    async def _act(self, request: Request) -> Completion:
        started = self.world.clock()
        try:
            completion = await self.seat.act(request)
        finally:
            self.engine_seconds += self.world.clock() - started
        if self.seat.actor is Actor.POLICY:
            check_completion(completion, request)
            self.sampled_tokens += len(completion.ids)
        return completion

    def _before_turn(self) -> Ending | None:
        """The limit that forbids another turn, if one does."""
        limits = self.world.limits
        if len(self.recorder.context) >= limits.context_tokens:
            return Ending.of(EndingKind.TRUNCATED_TOKENS, "the prompt fills context_tokens")
        return self._out_of_time()

    def _observe(self, completion: Ints, step: Step) -> Ending | None:
        """Record the answer to a turn; the environment's ending goes before the trainer's."""
        limits, chat = self.world.limits, self.world.chat
        ending = step.ending or self._out_of_time()
        if ending is None and self.recorder.turns >= limits.turns:
            ending = Ending.of(EndingKind.TRUNCATED_TURNS, "limits.turns")
        if ending is None:
            following = chat.follow(completion, step.messages)
            if len(self.recorder.context) + len(following.ids) < limits.context_tokens:
                self.observation_tokens += len(following.ids)
                self.recorder.observation(following)
                return None
            ending = Ending.of(EndingKind.TRUNCATED_TOKENS, "limits.context_tokens")
        if step.messages:
            final = chat.follow(completion, step.messages, header=False)
            self.observation_tokens += len(final.ids)
            self.recorder.observation(final)
        return ending

    def _out_of_time(self) -> Ending | None:
        seconds = self.world.limits.seconds
        if seconds is None or self.world.clock() - self._started < seconds:
            return None
        return Ending.of(EndingKind.TRUNCATED_TIME, "limits.seconds")

    async def _close(self) -> None:
        environment = self._environment
        if environment is None:
            return
        if self._host.suspect:
            self._host.leave("close", environment.close)
            return
        try:
            await self._host.call("close", self.world.patience.close, environment.close)
        except EnvironmentFault as fault:
            # The episode is complete; a failed release is counted and changes nothing else.
            self.faults.append(FaultRecord.of(fault, self.number))
