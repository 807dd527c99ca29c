import asyncio
import statistics
import time
from types import MappingProxyType, SimpleNamespace

import pytest
from bad_environment import BadFamily

from hexad.contract.messages import AssistantTurn, ToolCall
from hexad.contract.task import Split
from hexad.environments.calculator import CalculatorFamily
from hexad.environments.chaos import JUNK, Chaos, ChaosError
from hexad.environments.latency import Latency
from hexad.environments.protocol import Declaring, Finite, Forkable, Repeatable, Step
from hexad.environments.wrap import Moment, disturb, uniform

CALL = AssistantTurn("", (ToolCall("calculate", {"a": 1, "op": "+", "b": 2}),))


def moment(seed=7, turn=1, split=Split.TRAIN):
    return Moment(split, seed, turn)


@pytest.mark.parametrize(
    ("latency", "u", "seconds"),
    [
        (Latency("constant", 2.0), 0.3, 2.0),
        (Latency("constant", 2.0, cap=1.5), 0.3, 1.5),
        (Latency("lognormal", 2.0, sigma=1.0), 0.5, 1.2130613194252668),  # 2 e^-0.5
        (Latency("lognormal", 2.0, sigma=1.0), 0.8413447460685429, 3.2974425414002564),  # 2 e^0.5
        (Latency("lognormal", 2.0, sigma=0.5), 0.5, 1.7649938051691904),  # 2 e^-0.125
        (Latency("pareto", 3.0, alpha=1.5), 0.5, 1.5874010519681994),  # least 1, 2^(2/3)
        (Latency("pareto", 3.0, alpha=1.5), 0.875, 4.0),  # 8^(2/3)
        (Latency("pareto", 3.0, alpha=1.5), 0.999, 100.0),  # 1000^(2/3)
        (Latency("pareto", 3.0, alpha=1.5, cap=50.0), 0.999, 50.0),
        (Latency("pareto", 4.0, alpha=2.0), 0.75, 4.0),  # least 2, 4^(1/2)
    ],
)
def test_quantiles_are_those_of_the_distribution(latency, u, seconds):
    assert latency.quantile(u) == pytest.approx(seconds, rel=1e-12)


def test_the_mean_is_the_one_that_was_asked_for():
    grid = [(i + 0.5) / 200_000 for i in range(200_000)]
    for latency in (Latency("lognormal", 0.3, sigma=1.0), Latency("pareto", 0.3, alpha=3.0)):
        assert statistics.fmean(map(latency.quantile, grid)) == pytest.approx(0.3, rel=2e-3)


def test_equal_keys_give_equal_numbers_and_every_part_of_the_key_counts():
    assert uniform("latency", 7, 1) == uniform("latency", 7, 1)
    others = {uniform("latency", 7, 2), uniform("latency", 8, 1), uniform("chaos", 7, 1)}
    assert len(others | {uniform("latency", 7, 1)}) == 4
    drawn = [uniform("latency", seed, turn) for seed in range(400) for turn in range(5)]
    assert all(0 < u < 1 for u in drawn)
    assert len(set(drawn)) == 2000
    latency = Latency("lognormal", 0.5, sigma=1.0)
    keys = [(seed, turn) for seed in range(3) for turn in range(1, 5)]
    assert len({latency.seconds(moment(*key)) for key in keys}) == 12
    tenths = [sum(i / 10 <= u < (i + 1) / 10 for u in drawn) for i in range(10)]
    assert all(160 <= count <= 240 for count in tenths), tenths  # 200 expected, sd 13.4


@pytest.mark.parametrize(
    ("at", "reset", "step"), [("step", 0.0, 0.5), ("reset", 0.5, 0.0), ("both", 0.5, 0.5)]
)
def test_only_the_named_calls_of_the_named_splits_wait(at, reset, step):
    latency = Latency("constant", 0.5, at=at)
    assert (latency.seconds(moment(turn=0)), latency.seconds(moment(turn=3))) == (reset, step)
    assert latency.seconds(moment(turn=3, split=Split.HIDDEN)) == 0.0
    hidden = Latency("constant", 0.5, splits=(Split.HIDDEN,))
    assert hidden.seconds(moment(split=Split.HIDDEN)) == 0.5 and hidden.seconds(moment()) == 0.0


def play(family, seed=5, split=Split.TRAIN):
    async def episode():
        world = family.make()
        [task] = family.tasks(split, 1)
        start = await world.reset(task, seed)
        return start, await world.step(CALL), world

    return asyncio.run(episode())


def test_a_wait_is_real_counts_as_tool_time_and_changes_nothing_else():
    plain = CalculatorFamily()
    slow = disturb(plain, [Latency("constant", 0.2)])
    started = time.monotonic()
    start, step, _ = play(slow)
    assert 0.2 <= time.monotonic() - started < 2
    bare_start, bare_step, _ = play(plain)
    assert start == bare_start and step.messages == bare_step.messages
    assert 0.2 <= step.tool_seconds < 0.3 and step.tool_calls == 1
    started = time.monotonic()
    play(slow, split=Split.SELECTION)
    assert time.monotonic() - started < 0.15


def test_abilities_neither_appear_nor_vanish():
    calculator = CalculatorFamily()
    family = disturb(calculator, [Latency("constant", 0.1)])
    assert isinstance(family, Declaring) and not isinstance(family, Finite)
    assert family.effects == calculator.effects and family.verifier == "answer"
    assert family.demonstration(family.tasks(Split.TRAIN, 1)[0]).turns
    world = family.make()
    assert isinstance(world, Forkable) and isinstance(world, Repeatable)
    assert hasattr(type(world), "repeatable")  # protocols of Python 3.12 look no further
    once = disturb(BadFamily({}, {}), [Latency("constant", 0.1)]).make()  # it cannot fork
    assert not isinstance(once, Forkable) and isinstance(once, Repeatable)

    class Bare:
        async def close(self):
            pass

    tasks = SimpleNamespace(make=Bare, task_count=lambda split: 3, name="b", digest="d", tools=())
    finite = disturb(tasks, [Chaos()])
    assert isinstance(finite, Finite) and finite.task_count(Split.TRAIN) == 3
    assert not isinstance(finite, Declaring)
    bare = finite.make()
    assert not isinstance(bare, Repeatable) and not hasattr(bare, "state_digest")
    assert getattr(bare, "repeatable", True) is True


def test_an_undisturbed_family_is_itself_and_the_digest_names_what_disturbs():
    plain = CalculatorFamily()
    assert disturb(plain, []) is plain
    ways = [
        [],
        [Latency("constant", 0.1)],
        [Latency("constant", 0.2)],
        [Latency("constant", 0.1, splits=(Split.HIDDEN,))],
        [Chaos(crash=0.1)],
        [Latency("constant", 0.1), Chaos(crash=0.1)],
    ]
    assert len({disturb(plain, way).digest for way in ways}) == len(ways)
    other = disturb(CalculatorFamily({"high": 5}), ways[1]).digest
    assert other != disturb(plain, ways[1]).digest == disturb(CalculatorFamily(), ways[1]).digest


class Noting:
    """A disturbance that notes the calls it sees."""

    config = MappingProxyType({"noting": True})

    def __init__(self):
        self.seen = []

    async def around(self, moment, work):
        self.seen.append((moment.split, moment.seed, moment.turn))
        return await work()


def test_a_fork_goes_on_at_the_turn_where_it_branched_with_the_same_key():
    noting = Noting()
    family = disturb(CalculatorFamily(), [noting])
    _, _, world = play(family, seed=5)
    branch = family.make().fork(world.snapshot())  # as a worker that was started again does
    twin = branch.fork(branch.snapshot())

    async def go_on():
        await branch.step(CALL)
        await branch.step(CALL)
        await twin.step(CALL)

    asyncio.run(go_on())
    assert noting.seen == [(Split.TRAIN, 5, turn) for turn in (0, 1, 2, 3, 2)]
    assert branch.state_digest() != twin.state_digest() != world.state_digest()
    with pytest.raises(ValueError, match="no snapshot"):
        branch.fork(b"{}")


def test_fates_come_as_often_as_asked_and_exclude_each_other():
    chaos = Chaos(crash=0.1, hang=0.2, junk=0.3, slow_start=0.25, slow_seconds=1.0)
    fates = [chaos.fate(moment(seed, turn)) for seed in range(500) for turn in range(4)]
    for name, p in {"crash": 0.1, "hang": 0.2, "junk": 0.3, "": 0.4}.items():
        assert fates.count(name) / 2000 == pytest.approx(p, abs=0.045), name  # 4 sd
    assert fates[:4] != fates[4:8] or fates[:4] != fates[8:12]
    slow = [chaos.slow(moment(seed, 0)) for seed in range(2000)]
    assert sum(slow) / 2000 == pytest.approx(0.25, abs=0.04)
    assert not any(chaos.slow(moment(seed, 1)) for seed in range(100))
    hidden = moment(split=Split.HIDDEN)
    assert Chaos(crash=1.0).fate(hidden) == "" and not chaos.slow(moment(3, 0, Split.HIDDEN))
    assert Chaos(crash=1.0).fate(moment()) == "crash" and Chaos().fate(moment()) == ""


def test_a_crash_raises_before_the_call_and_a_hang_never_returns():
    async def around(chaos):
        calls = []

        async def work():
            calls.append(1)
            return Step()

        try:
            return await asyncio.wait_for(chaos.around(moment(), work), 0.1), calls
        except (ChaosError, TimeoutError) as error:
            return error, calls

    error, calls = asyncio.run(around(Chaos(crash=1.0)))
    assert isinstance(error, ChaosError) and "call 1 crashed" in str(error) and not calls
    error, calls = asyncio.run(around(Chaos(hang=1.0)))
    assert isinstance(error, TimeoutError) and not calls
    junk, calls = asyncio.run(around(Chaos(junk=1.0)))
    assert any(junk is one for one in JUNK) and calls == [1]
    assert asyncio.run(around(Chaos())) == (Step(), [1])


def test_a_slow_start_takes_its_seconds():
    family = disturb(CalculatorFamily(), [Chaos(slow_start=1.0, slow_seconds=0.2)])
    started = time.monotonic()
    play(family)
    assert 0.2 <= time.monotonic() - started < 2
