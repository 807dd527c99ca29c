"""An episode goes on from its log as if nobody had stopped it."""

import asyncio
import json
from dataclasses import replace

import pytest
from calculator_world import calling, make_world, plans

from hexad.contract.digest import digest
from hexad.contract.ending import EndingKind
from hexad.contract.faults import ContractViolation, EngineFault
from hexad.contract.messages import Message, Role, ToolCall
from hexad.environments.protocol import Step
from hexad.environments.tools import Effect
from hexad.policy.load import load_policy
from hexad.policy.scripted import Reply
from hexad.rollout.agent import assess, play
from hexad.rollout.attempt import Seat
from hexad.rollout.entries import Sampled, Stepped
from hexad.rollout.host import Hosts
from hexad.rollout.log import EpisodeLog
from hexad.rollout.resume import NotResumable
from toyworld import (
    Parsed,
    ToyChat,
    ToyEnvironment,
    chatter,
    say,
    toy_plans,
    toy_world,
    untimed,
)


class Counter(ToyEnvironment):
    """Counts its turns; the family counts every step that was really executed."""

    turns = 0
    repeatable = True
    over = False

    async def step(self, turn):
        self.turns += 1
        self.over = turn.content.startswith(".")
        self.family.executed += 1
        if any(not self.family.effects[call.name].contained for call in turn.tool_calls):
            self.repeatable = False
        return await super().step(turn)

    def state_digest(self):
        return digest([self.task.data, self.turns])

    def snapshot(self):
        assert not self.over, "nobody goes on from an end"
        return json.dumps([self.task.task_id, self.turns]).encode()

    def fork(self, snapshot):
        made = type(self)(self.family)
        name, made.turns = json.loads(snapshot)
        made.task = next(p.task for p in toy_plans(9) if p.task.task_id == name)
        return made


class Fixed(Counter):
    """Cannot fork."""

    snapshot = fork = None


class Calling(ToyChat):
    """A turn that starts with ``!`` calls the tool ``look``."""

    def parse(self, completion_ids):
        parsed = super().parse(completion_ids)
        calls = (ToolCall("look", {}),) if parsed.turn.content.startswith("!") else ()
        return Parsed(replace(parsed.turn, tool_calls=calls), parsed.spans)


def counting(script=chatter, effect=Effect.REVERSIBLE, kind=Counter, **changes):
    """A world of counters whose only tool is of class ``effect``."""
    world = toy_world(script, kind=kind, chat=Calling(), **changes)
    world.family.effects, world.family.executed = {"look": effect}, 0
    return world


async def sit(plan, world, log=None, **seat):
    hosts = Hosts(1)
    try:
        seat = Seat(world.engine.sample, hosts, **seat)
        return await (play(plan, world, seat) if log is None else play(plan, world, seat, log))
    finally:
        hosts.stop()


def played(plan, world, log=None, **seat):
    return asyncio.run(sit(plan, world, log or EpisodeLog.create(), **seat))


def boundaries(data):
    """Every length of ``data`` at which an entry ends, and one inside every entry."""
    found, last = [], -1
    for end in range(0, len(data) + 1, 8):
        count = len(EpisodeLog.read(data[:end]).entries())
        if count != last:
            found += [end, end + 88]
            last = count
    return [end for end in found if end <= len(data)] + [len(data)]


def cut_after(data, kind, number=0):
    """The log ``data`` up to its entry of class ``kind`` with this number."""
    log, seen = EpisodeLog.create(), 0
    for entry in EpisodeLog.read(data).entries():
        log.append(entry)
        if type(entry) is kind:
            if seen == number:
                return log
            seen += 1
    raise LookupError(kind)


@pytest.mark.parametrize("seed", range(4))
def test_an_episode_resumed_anywhere_is_the_uninterrupted_one(seed):
    plan, log = toy_plans(seed=seed)[0], EpisodeLog.create()
    whole = played(plan, counting(), log)
    assert untimed(whole) == untimed(asyncio.run(sit(plan, counting())))
    assert len(whole.states) == whole.costs.turns > 0
    for end in boundaries(log.data()):
        again, part = counting(), EpisodeLog.read(log.data()[:end])
        answered = sum(isinstance(entry, Stepped) for entry in part.entries())
        sampled = sum(isinstance(entry, Sampled) for entry in part.entries())
        known = part.sittings
        episode = played(plan, again, part)
        assert untimed(episode) == untimed(whole)
        assert episode.times.tool_seconds == whole.times.tool_seconds
        assert again.family.executed == whole.costs.turns - answered
        assert len(again.engine.requests) == whole.costs.turns - sampled
        assert part.sittings == known + 1
        assert all(made.closed for made in again.family.made)


@pytest.mark.parametrize("free", [True, False])
def test_a_real_episode_resumed_anywhere_is_the_uninterrupted_one_to_the_bit(free):
    policy = load_policy("builtin:tiny", seed=0)
    world = make_world(policy)
    world = world if free else calling(world, policy)
    plan, log = plans(world, 2, 2)[2 if free else 0], EpisodeLog.create()
    whole = played(plan, world, log)
    assert free or whole.costs.tool_calls == 3
    for end in boundaries(log.data()):
        fresh = replace(make_world(policy), sampling=world.sampling)
        episode = played(plan, fresh, EpisodeLog.read(log.data()[:end]))
        assert untimed(episode) == untimed(whole)
    judged = [untimed(asyncio.run(assess(plan, world, each))) for each in (episode, whole)]
    assert judged[0] == judged[1] and judged[0].verdict


class Failing(Counter):
    """Fails at the second turn of the first two instances that were reset."""

    async def step(self, turn):
        if self.turns == 1 and len(self.family.seeds) < 3:
            raise RuntimeError("boom")
        return await super().step(turn)


def test_what_faulted_attempts_cost_is_not_forgotten():
    plan, log = toy_plans()[0], EpisodeLog.create()
    script = {f"g0-0/{attempt}": [say("ab"), say("c"), say(".")] for attempt in range(3)}
    whole = played(plan, counting(script, kind=Failing), log)
    assert whole.attempt == 2 and len(whole.faults) == 2 and whole.costs.lost_tokens == 10
    assert log.sampled_tokens == 17
    again = counting({"g0-0/2": [say("c"), say(".")]}, kind=Failing)
    again.family.seeds += [0, 0, 0]
    episode = played(plan, again, cut_after(log.data(), Stepped, 2))
    assert untimed(episode) == untimed(whole)
    assert episode.times.tool_seconds == whole.times.tool_seconds == 2.0
    assert episode.times.seconds >= episode.times.engine_seconds > 0


def test_a_fault_after_a_resumption_is_retried_as_the_next_attempt():
    plan, log = toy_plans()[0], EpisodeLog.create()
    played(plan, counting([say("ab"), say(".")]), log)
    part = cut_after(log.data(), Stepped)
    again = counting({"g0-0/0": [say("c")], "g0-0/1": [say(".")]}, kind=Failing)
    episode = played(plan, again, part)
    assert episode.attempt == 1 and episode.costs.lost_tokens == 3 + 2
    assert [fault.attempt for fault in episode.faults] == [0]
    assert [key.key.attempt for key in again.engine.requests] == [0, 1]


@pytest.mark.parametrize("effect", [Effect.EXTERNAL, Effect.IRREVERSIBLE])
def test_a_call_that_a_reset_does_not_undo_is_never_executed_again(effect):
    plan, log = toy_plans()[0], EpisodeLog.create()
    whole = played(plan, counting([say("!"), say("a"), say(".")], effect), log)
    answerless = cut_after(log.data(), Sampled)
    again = counting([], effect)
    with pytest.raises(NotResumable, match="answer is missing") as error:
        played(plan, again, answerless)
    assert not error.value.repeatable and not again.family.executed and not again.engine.requests
    assert answerless.sampled_tokens == 2  # what the caller counts as lost
    for number in (0, 1):  # with its answer, and at a later turn, the episode goes on
        again = counting([say("a"), say(".")][number:], effect)
        episode = played(plan, again, cut_after(log.data(), Stepped, number))
        assert untimed(episode) == untimed(whole)
    script = [say("a"), Reply(fault=EngineFault("down"))]
    again = counting(script, effect)
    episode = played(plan, again, cut_after(log.data(), Stepped))
    assert episode.ending.kind is EndingKind.INFRASTRUCTURE_ERROR and episode.attempt == 0


@pytest.mark.parametrize("effect", [Effect.READ_ONLY, Effect.REVERSIBLE])
def test_a_call_that_a_reset_undoes_is_executed_from_the_snapshot_before_it(effect):
    plan, log = toy_plans()[0], EpisodeLog.create()
    whole = played(plan, counting([say("!"), say("!"), say(".")], effect), log)
    again = counting([say(".")], effect)
    episode = played(plan, again, cut_after(log.data(), Sampled, 1))
    assert untimed(episode) == untimed(whole) and again.family.executed == 2


def test_calls_whose_effects_nobody_declares_are_not_trusted_where_some_may_last():
    plan, log = toy_plans()[0], EpisodeLog.create()
    world = counting([say("!"), say(".")])
    played(plan, world, log)
    again = counting([say(".")])
    again = replace(again, family=Undeclared(again.family))
    with pytest.raises(NotResumable, match="answer is missing"):
        played(plan, again, cut_after(log.data(), Sampled))
    assert again.family.inner.executed == 0


class Undeclared:
    """A family without its effects."""

    def __init__(self, inner):
        self.inner = inner
        self.name, self.digest, self.tools = inner.name, inner.digest, inner.tools

    def make(self):
        return self.inner.make()


def test_an_environment_that_cannot_fork_is_not_resumed_but_a_finished_one_needs_none():
    plan, log = toy_plans()[0], EpisodeLog.create()
    whole = played(plan, counting([say("a"), say(".")], kind=Fixed), log)
    for kind, number in ((Sampled, 0), (Stepped, 0), (Sampled, 1)):
        again = counting([], kind=Fixed)
        with pytest.raises(NotResumable, match="cannot fork") as error:
            played(plan, again, cut_after(log.data(), kind, number))
        assert error.value.repeatable and not again.engine.requests
    again = counting([], kind=Fixed)
    assert untimed(played(plan, again, EpisodeLog.read(log.data()))) == untimed(whole)
    assert again.family.made == []


class Drifting(Counter):
    """Forks into another state than the one of the snapshot."""

    def fork(self, snapshot):
        made = super().fork(snapshot)
        made.turns += 1
        return made


class Breaking(Counter):
    def fork(self, snapshot):
        raise RuntimeError("no such state")


@pytest.mark.parametrize(
    ("kind", "why"), [(Drifting, "another state"), (Breaking, "no such state")]
)
def test_a_fork_that_fails_or_is_somewhere_else_is_not_played(kind, why):
    plan, log = toy_plans()[0], EpisodeLog.create()
    played(plan, counting([say("a"), say(".")]), log)
    again = counting([], kind=kind)
    with pytest.raises(NotResumable, match=why):
        played(plan, again, cut_after(log.data(), Stepped))
    assert all(made.closed for made in again.family.made)


class Snapping(Counter):
    """Its snapshot is no bytes, or is none at all."""

    def snapshot(self):
        return "text"


class Odd(Counter):
    async def step(self, turn):
        await super().step(turn)
        call = ToolCall("look", {"a": object()})
        return Step((Message(Role.ASSISTANT, "", tool_calls=(call,)),))


@pytest.mark.parametrize(
    ("kind", "why"), [(Snapping, "snapshot returned a str"), (Odd, "cannot be recorded")]
)
def test_what_cannot_be_logged_is_the_environments_fault(kind, why):
    episode = played(toy_plans()[0], counting([say("a")] * 3, kind=kind))
    assert episode.ending.kind is EndingKind.ENVIRONMENT_ERROR
    assert all(why in fault.message for fault in episode.faults) and len(episode.faults) == 3


def test_time_goes_on_where_it_stopped():
    """2.5 s of 4 s are recorded: 1.5 s later the episode is out of time."""
    now = [100.0]

    class Late(Counter):
        async def step(self, turn):
            now[0] += 2.5
            return await super().step(turn)

    def late(script):
        world = counting(script, kind=Late, clock=lambda: now[0])
        return replace(world, limits=world.limits.model_copy(update={"seconds": 4.0}))

    plan, log = toy_plans()[0], EpisodeLog.create()
    whole = played(plan, late([say("a")] * 3), log)
    assert whole.ending.kind is EndingKind.TRUNCATED_TIME and whole.costs.turns == 2
    now[0] = 7.0
    part = cut_after(log.data(), Stepped)
    again = played(plan, late([say("a")] * 3), part)
    assert untimed(again) == untimed(whole)
    assert again.times.seconds == 5.0 and again.times.started == log.started == part.started
    assert untimed(played(plan, late([]), EpisodeLog.read(log.data()))) == untimed(whole)


def test_the_log_of_another_episode_is_our_own_bug():
    log = EpisodeLog.create()
    played(toy_plans(size=2)[1], counting(), log)
    with pytest.raises(ContractViolation, match="g0-1 is played as g0-0"):
        played(toy_plans(size=2)[0], counting(), log)
