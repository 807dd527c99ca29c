"""One attempt at an episode: the loop in which policy and environment meet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from hexad.contract.arrays import Ints
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.episode import Actor
from hexad.contract.faults import EnvironmentFault, FaultRecord
from hexad.contract.messages import AssistantTurn
from hexad.contract.refusal import Refusal
from hexad.contract.reward import Reward
from hexad.environments.permission import Review, answers
from hexad.environments.protocol import Environment, Step
from hexad.policy.engine import Completion, Request, Stop
from hexad.policy.partial import continued, joined
from hexad.rollout.checks import check_completion, check_start, check_state, check_step
from hexad.rollout.entries import Begun, Sampled, State, Stepped
from hexad.rollout.host import Hosts, read
from hexad.rollout.plan import EpisodePlan
from hexad.rollout.recorder import Recorder
from hexad.rollout.resume import NotResumable, forked, require_repeatable
from hexad.rollout.state import digest_of, state_of
from hexad.rollout.tape import Tape
from hexad.rollout.world import World

Act = Callable[[Request], Awaitable[Completion]]
"""Who chooses the tokens: an engine, a gate in front of it, or an expert."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Where an episode is played: who acts, and on which of ``hosts`` its environment lives.

    After ``pause_after`` sampled tokens the sitting ends, also inside a turn; such a seat needs a
    log. An environment that cannot fork is played to its end.
    """

    act: Act
    hosts: Hosts
    index: int = 0
    actor: Actor = Actor.POLICY
    pause_after: int | None = None


class Attempt:
    """Plays ``plan`` once. Its fields hold whatever happened, also after a fault.

    A turn that the turn limit cuts truncates the episode: the environment does not see it, and what
    was sampled is the final state. At every other truncation, and at an ending with messages, the
    true final observation is stored without a generation header.
    """

    def __init__(
        self, plan: EpisodePlan, world: World, number: int, seat: Seat, tape: Tape
    ) -> None:
        self.plan, self.world, self.number, self.seat = plan, world, number, seat
        self.recorder = Recorder(seat.actor)
        self.initial_state = "none"
        self._states: list[str | None] = []
        self.rewards: list[Reward] = []
        self.faults: list[FaultRecord] = list(tape.faults)
        self.sampled_tokens = self.observation_tokens = self.tool_calls = 0
        self.engine_seconds = self.tool_seconds = self.waited_seconds = 0.0
        self.refusals: list[Refusal] = []
        self._tape, self._state = tape, State()
        self._host = seat.hosts.take(seat.index)
        self._environment: Environment | None = None
        self._started = world.clock() - tape.age

    @property
    def repeatable(self) -> bool:
        """Whether a fresh reset undoes what the attempt did (``Environment.repeatable``)."""
        if self._state.repeatable is False:
            return False
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

    @property
    def seconds(self) -> float:
        """Seconds that the attempt took, earlier sittings included, waiting for approval apart."""
        return self.world.clock() - self._started

    async def play(self) -> Ending:
        """Play to the end and return it; a pause is ``EndingKind.PAUSED``.

        Raises the ``Fault`` that stopped the attempt, and ``NotResumable`` where what is recorded
        cannot go on.
        """
        try:
            await self._reset()
            while True:
                ending = self._before_turn() or await self._turn()
                if ending is not None:
                    return ending
        finally:
            await self._close()

    async def _reset(self) -> None:
        begun = self._tape.take(Begun) or await self._begin()
        self._state = begun.state
        self.initial_state = begun.initial
        self._states.append(begun.initial)
        self.recorder.start(begun.prompt)

    async def _begin(self) -> Begun:
        world, plan, tape = self.world, self.plan, self._tape

        async def enter() -> tuple[object, State]:
            self._environment = made = world.family.make()
            start = await made.reset(plan.task, plan.environment_seed(self.number))
            return start, state_of(made, over=False) if tape.recording else State()

        answer, state = await self._host.call("reset", world.patience.reset, enter)
        start = check_start(answer, world.family.tools)
        prompt = world.chat.prompt(start.messages)
        return tape.record(
            Begun(
                plan.episode_id,
                self.number,
                prompt,
                start.state_digest,
                state,
                tape.spent,
                self.seconds if tape.recording else 0.0,
            )
        )

    async def _turn(self) -> Ending | None:
        request = self._request()
        completion = await self._sample(request)
        if completion is None:
            return Ending.of(EndingKind.PAUSED, "the sitting's tokens are used up")
        parsed = self.world.chat.parse(completion.ids)
        self.recorder.completion(request.ids, completion, parsed.spans)
        if completion.stop is Stop.LENGTH:
            limit = self.world.limits.turn_tokens
            cut = "turn_tokens" if len(completion.ids) == limit else "context_tokens"
            return Ending.of(EndingKind.TRUNCATED_TOKENS, f"a turn was cut by {cut}")
        stepped = self._tape.take(Stepped) or await self._answer(parsed.turn)
        step, self._state = stepped.step, stepped.state
        self.refusals.extend(stepped.refusals)
        self.waited_seconds += stepped.waited
        self._states.append(stepped.state.digest)
        self.tool_calls += step.tool_calls
        self.tool_seconds += step.tool_seconds
        self.rewards.extend(step.rewards)
        return self._observe(completion.ids, step)

    async def _answer(self, turn: AssistantTurn) -> Stepped:
        """What ``turn`` comes to: refusals of the guard, or the environment's step."""
        guard = self.world.guard
        if guard is None or not turn.tool_calls:
            return await self._step(turn, Review())
        review = await guard.review(self.plan.task, self.recorder.turns - 1, turn)
        self._started += review.waited
        if not review.refusals:
            return await self._step(turn, review)
        state = replace(self._state, digest=self._states[-1])  # nothing was executed
        at = self.seconds if self._tape.recording else 0.0
        step = Step(answers(turn, review.refusals))
        return self._tape.record(Stepped(step, state, at, review.refusals, review.waited))

    async def _step(self, turn: AssistantTurn, review: Review) -> Stepped:
        """Let the environment answer ``turn``."""
        if self._environment is None:
            require_repeatable(turn, self.world.family, self._state)
            await self._restore()
        environment, recording = self._environment, self._tape.recording
        assert environment is not None

        async def advance() -> tuple[object, State]:
            stepped = await environment.step(turn)
            if not recording:
                return stepped, State(digest_of(environment))
            return stepped, state_of(environment, over=getattr(stepped, "ending", None) is not None)

        answer, state = await self._host.call("step", self.world.patience.step, advance)
        step = check_step(answer)
        check_state(state.digest)
        if self._state.repeatable is False:  # a fork may not know what was done before it
            state = replace(state, repeatable=False)
        at = self.seconds if recording else 0.0
        return self._tape.record(Stepped(step, state, at, waited=review.waited))

    async def _sample(self, request: Request) -> Completion | None:
        """The whole turn, from what is recorded and what is sampled now; ``None`` for a pause."""
        tape, known = self._tape, self._tape.turn()
        for each in known:
            self.engine_seconds += each.seconds
            self.sampled_tokens += len(each.completion.ids)
        pieces = [each.completion for each in known]
        if known and not known[-1].partial:
            return joined(pieces)
        if self._environment is None:
            await self._restore()
        room = request.max_tokens - sum(len(piece.ids) for piece in pieces)
        allowed = room if self._state.snapshot is None else tape.allow(room)
        if allowed == 0:
            return None
        began = self.engine_seconds
        completion = await self._act(continued(request, pieces, allowed))
        cut = completion.stop is Stop.LENGTH and len(completion.ids) == allowed < room
        at = self.seconds if tape.recording else 0.0
        tape.record(Sampled(completion, self.engine_seconds - began, cut, at))
        return None if cut else joined([*pieces, completion])

    async def _restore(self) -> None:
        """Put a new environment into the last recorded state."""
        world, state = self.world, self._state
        repeatable = state.repeatable is not False
        if state.snapshot is None:
            raise NotResumable("the environment cannot fork", repeatable=repeatable)
        snapshot = state.snapshot

        async def fork() -> object:
            self._environment = made = await forked(world.family, snapshot)
            return digest_of(made)

        try:
            digest = await self._host.call("fork", world.patience.reset, fork)
        except EnvironmentFault as fault:
            raise NotResumable(str(fault), repeatable=repeatable) from fault
        if digest != state.digest:
            why = "a fork of the snapshot is in another state"
            raise NotResumable(why, repeatable=repeatable)

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
        """A recorded attempt is as old as its last entry, so that it ends alike when it resumes."""
        seconds = self.world.limits.seconds
        if seconds is None:
            return None
        if (self._tape.at if self._tape.recording else self.seconds) < seconds:
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
