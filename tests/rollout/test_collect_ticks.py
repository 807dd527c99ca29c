"""Clocks and threads decide nothing: equal plans and seeds give equal bits."""

import asyncio
import random
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from hexad.contract.admission import admit_group
from hexad.contract.ending import EndingKind
from hexad.contract.episode import Episode
from hexad.contract.needs import Needs
from hexad.rollout.collect import collect
from hexad.rollout.demonstrate import record
from toyworld import ToyEnvironment, chatter, nap, say, toy_plans, toy_world, untimed


def delayed(seed, longest=0.01):
    """Environments whose every call takes a random time, drawn anew for each world."""
    clock = random.Random(seed)

    class Delayed(ToyEnvironment):
        async def reset(self, task, seed):
            await nap(clock.random() * longest)
            return await super().reset(task, seed)

        async def step(self, turn):
            await nap(clock.random() * longest)
            return await super().step(turn)

    return Delayed


def calls(world):
    return [
        (r.session, r.ids.tolist(), r.key, r.max_tokens, r.stop_ids) for r in world.engine.requests
    ]


@pytest.mark.parametrize("rows", [3, 5, 64])
def test_tool_delays_change_neither_bits_nor_the_engines_call_sequence(rows):
    plans, worlds = toy_plans(4, size=4), []
    results = []
    for kind in (ToyEnvironment, delayed(1), delayed(2)):
        worlds.append(toy_world(chatter, kind=kind))
        results.append([untimed(e) for e in collect(plans, worlds[-1], rows=rows)])
    assert results[0] == results[1] == results[2]
    assert calls(worlds[0]) == calls(worlds[1]) == calls(worlds[2])
    assert [e.episode_id for e in results[0]] == [p.episode_id for p in plans]
    assert len({tuple(e.segments[0].ids.tolist()) for e in results[0]}) > 8


@pytest.mark.parametrize("play", [collect, record])
def test_no_episode_is_formatted_on_the_way_out(play, monkeypatch):
    """``asyncio.run`` of Python 3.11 formats what its coroutine returns."""
    formatted = []
    monkeypatch.setattr(Episode, "__repr__", lambda self: formatted.append(self) or "")
    assert len(play(toy_plans(2), toy_world(lambda r: say(".")))) == 2
    assert not formatted


def test_the_engine_gets_each_tick_in_plan_order_and_never_more_than_rows():
    world = toy_world(lambda r: say("." if len(r.ids) > 12 else "abc"), kind=delayed(3))
    open_now, most = set(), 0
    sample = world.engine.sample

    async def watched(request):
        nonlocal most
        open_now.add(request.session)
        most = max(most, len(open_now))
        try:
            return await sample(request)
        finally:
            open_now.discard(request.session)

    world.engine.sample = watched
    episodes = collect(toy_plans(6), world, rows=2)
    assert most == 2
    assert all(e.ending.kind is EndingKind.TERMINAL for e in episodes)
    order = [request.session for request in world.engine.requests]
    expected = []
    for pair in (("g0-0/0", "g1-0/0"), ("g2-0/0", "g3-0/0"), ("g4-0/0", "g5-0/0")):
        expected += pair * 3
    assert order == expected


def test_o09_groups_are_carried_and_share_their_initial_state():
    plans = toy_plans(3, size=2)
    mixed = [plans[i] for i in (4, 0, 3, 2, 5, 1)]
    straight = {e.episode_id: untimed(e) for e in collect(plans, toy_world())}
    shuffled = [untimed(e) for e in collect(mixed, toy_world(kind=delayed(4)))]
    assert [e.group_id for e in shuffled] == [p.group_id for p in mixed]
    assert [e.member for e in shuffled] == [p.member for p in mixed]
    # The draws follow the carried identity: the order of the batch changes no episode.
    assert {e.episode_id: e for e in shuffled} == straight
    assert len({e.initial_state for e in shuffled if e.group_id == "g1"}) == 1
    assert admit_group(shuffled, Needs()) == []
    pair = [straight["g0-0"], straight["g0-1"]]
    assert pair[0].seed != pair[1].seed


def test_finished_episodes_are_reported_once_in_plan_order():
    plans, seen = toy_plans(9), []
    collect(plans, toy_world(chatter, kind=delayed(5)), rows=4, done=seen.append)
    assert [e.episode_id for e in seen] == [p.episode_id for p in plans]
    assert all(e.verdict is not None for e in seen)


def test_nothing_to_do_is_an_empty_list():
    assert collect([], toy_world()) == []


def test_a_blocked_tool_does_not_stop_the_others_tools():
    release = threading.Event()

    class Waiting(ToyEnvironment):
        async def step(self, turn):
            if self.task.task_id == "toy:0":
                assert await asyncio.to_thread(release.wait, 5)
            elif self.task.task_id == "toy:4":
                release.set()
            return await super().step(turn)

    episodes = collect(toy_plans(5), toy_world(lambda r: say("."), kind=Waiting))
    assert not any(e.faulted for e in episodes)


INTERRUPTED = textwrap.dedent(
    """
    import asyncio, signal, sys, time
    from toyworld import *
    from hexad.rollout.collect import collect
    from hexad.rollout.world import Patience

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job begins deaf to it

    class Slow(ToyEnvironment):
        async def step(self, turn):
            print("stepping", flush=True)
            await asyncio.sleep(60)
        async def close(self):
            print("closed", flush=True)
            await asyncio.sleep({linger})

    world = toy_world(lambda r: say("a"), kind=Slow, patience=Patience(close=60))
    try:
        collect(toy_plans(2), world)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    """
)


@pytest.mark.parametrize(("presses", "linger"), [(1, 0), (2, 60)])
def test_ctrl_c_closes_environments_and_a_second_one_does_not_wait(presses, linger):
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.format(linger=linger)],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        lines = [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        if presses == 2:
            lines += [process.stdout.readline() for _ in range(2)]
            process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=40)
    said = "".join(lines) + rest
    assert said.count("stepping") == 2 and said.count("closed") == 2
    assert said.rstrip().endswith("interrupted")


def test_a_free_place_is_filled_before_the_next_tick_opens():
    def script(request):
        turns = {"g0": 1, "g1": 3, "g2": 3}[request.session[:2]]
        # The prompt has 3 tokens and each turn with its answer adds 5.
        return say("." if len(request.ids) >= 3 + 5 * (turns - 1) else "a")

    world = toy_world(script)
    collect(toy_plans(3), world, rows=2)
    order = [request.session[:2] for request in world.engine.requests]
    assert order == ["g0", "g1", "g1", "g2", "g1", "g2", "g2"]
