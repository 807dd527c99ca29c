import asyncio
import os
import subprocess
import sys
import threading
import time

import pytest
import sample_tools as tools

from hexad.contract.faults import ToolFault
from hexad.contract.messages import ToolCall
from hexad.environments import process
from hexad.environments.execution import MAX_CHARACTERS
from hexad.environments.toolbox import ToolBox

ALL = [
    tools.spin, tools.search, tools.leave_child, tools.leave, tools.divide, tools.broken,
    tools.broken_here, tools.nap, tools.echo, tools.remember, tools.remember_policy,
    tools.one_c_call,
]  # fmt: skip


@pytest.fixture
def box():
    made = ToolBox(ALL, timeout=5.0, workers=2)
    yield made
    made.close()
    assert made.live_workers == 0


def run(box, name, **arguments):
    return asyncio.run(box.call(ToolCall(name, arguments)))


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "Z"


def test_endless_work_of_the_policy_is_stopped_and_told(box):
    for name in ("spin", "one_c_call"):
        result = run(box, name)
        assert result.content == "error: timed out after 0.2s"
        assert not result.ok and result.effect is not None
        assert box.live_workers == 0
    assert run(box, "spin", seconds=0.0).content == "done"


def test_infrastructure_that_hangs_is_a_fault_and_the_next_call_succeeds(box):
    with pytest.raises(ToolFault, match=r"search: timed out after 0\.2s"):
        run(box, "search", seconds=3600.0)
    assert box.live_workers == 0
    assert run(box, "search", seconds=0.0).content == "found"


def test_a_kill_reaches_what_the_tool_started(box, tmp_path):
    path = tmp_path / "pid"
    while not (path.exists() and path.read_text()):
        run(box, "leave_child", path=str(path))
    deadline = time.monotonic() + 5
    while not gone(int(path.read_text())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gone(int(path.read_text()))


def test_eight_hanging_calls_on_two_workers_resolve_and_leave_no_children(box):
    async def all_of_them():
        calls = [box.call(ToolCall("spin", {})) for _ in range(8)]
        return await asyncio.gather(*calls)

    started = time.monotonic()
    run(box, "spin", seconds=0.0)
    startup = time.monotonic() - started
    started = time.monotonic()
    results = asyncio.run(all_of_them())
    assert [r.content for r in results] == ["error: timed out after 0.2s"] * 8
    assert time.monotonic() - started < 4 * (tools.LIMIT + 3 * startup)
    assert box.live_workers == 0
    assert run(box, "spin", seconds=0.0).ok


def test_never_more_workers_than_allowed(box):
    seen = []

    async def watch():
        calls = [asyncio.ensure_future(box.call(ToolCall("spin", {}))) for _ in range(5)]
        while not all(call.done() for call in calls):
            seen.append(box.live_workers)
            await asyncio.sleep(0.01)

    asyncio.run(watch())
    assert max(seen) == 2


def test_a_hanging_or_busy_tool_blocks_neither_the_loop_nor_other_tools(box):
    async def both():
        slow = [asyncio.ensure_future(box.call(ToolCall("nap", {"seconds": 1.0})))] * 6
        slow.append(asyncio.ensure_future(box.call(ToolCall("spin", {}))))
        started = time.monotonic()
        await box.call(ToolCall("nap", {"seconds": 0.0}))
        quick = time.monotonic() - started
        await asyncio.gather(*slow)
        return quick

    assert asyncio.run(both()) < 0.5


def test_cancelling_stops_the_work(box):
    async def cancelled():
        call = asyncio.ensure_future(box.call(ToolCall("search", {"seconds": 0.0})))
        await call
        box_call = asyncio.ensure_future(box.call(ToolCall("divide", {"a": 1, "b": 1})))
        await box_call
        hanging = asyncio.ensure_future(box.call(ToolCall("search", {"seconds": 3600.0})))
        await asyncio.sleep(0.05)
        before = box.live_workers
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        return before, box.live_workers

    before, after = asyncio.run(cancelled())
    assert (before, after) == (2, 1)


def test_limits_hold_from_any_thread(box):
    results = []
    thread = threading.Thread(target=lambda: results.append(run(box, "spin")))
    thread.start()
    thread.join(20)
    assert results[0].content == "error: timed out after 0.2s"


def test_policy_errors_are_observations_and_printing_is_harmless(box):
    assert run(box, "divide", a=7, b=2).content == "3.5"
    bad = run(box, "divide", a=7, b=0)
    assert (bad.content, bad.ok) == ("error: division by zero", False)
    assert run(box, "echo", text="ab", times=2).content == "abab"


def test_long_results_are_cut_and_say_so(box):
    text = run(box, "echo", text="x", times=MAX_CHARACTERS + 5).content
    assert text == "x" * MAX_CHARACTERS + "... (5 characters cut)"


@pytest.mark.parametrize("name", ["broken", "broken_here"])
@pytest.mark.parametrize("how", ["raise", "junk", "nan", "exit"])
def test_failures_of_the_tool_itself_are_faults_with_their_type(box, name, how):
    kinds = {"raise": "ConnectionError: no route", "junk": "TypeError", "nan": "ValueError"}
    expected = kinds.get(how, "SystemExit" if name == "broken_here" else "crashed")
    with pytest.raises(ToolFault, match=expected):
        run(box, name, how=how)


def test_a_crash_of_the_policys_program_is_its_own_doing(box):
    assert run(box, "leave", code=0).content == "error: the process crashed"


def test_workers_are_reused_except_for_code_of_the_policy(box):
    assert [run(box, "remember", value=1).content for _ in range(3)] == ["1", "2", "3"]
    assert [run(box, "remember_policy", value=1).content for _ in range(2)] == ["1", "1"]


def test_a_worker_that_cannot_start_is_a_fault_even_for_code_of_the_policy(box, monkeypatch):
    monkeypatch.setattr(process, "STARTUP_SECONDS", 0.001)
    with pytest.raises(ToolFault, match="did not start"):
        run(box, "spin")
    assert box.live_workers == 0


def test_closing_kills_running_calls_as_faults():
    box = ToolBox([tools.search], workers=1)
    run(box, "search", seconds=0.0)
    worker_dies = threading.Timer(0.05, box.close)
    worker_dies.start()
    with pytest.raises(ToolFault):
        run(box, "search", seconds=0.19)
    worker_dies.join()
    assert box.live_workers == 0
    with pytest.raises(ToolFault, match="closed"):
        run(box, "search", seconds=0.0)


ORPHAN = """
import asyncio, os, sys, threading
sys.path.insert(0, sys.argv[1])
import sample_tools
from hexad.contract.messages import ToolCall
from hexad.environments.toolbox import ToolBox

box = ToolBox([sample_tools.forever])
def leave():
    while not box.live_workers:
        pass
    [worker] = box._pool._busy
    while not worker._ready:
        pass
    print(worker.pid, flush=True)
    os.kill(os.getpid(), 9)
threading.Thread(target=leave).start()
asyncio.run(box.call(ToolCall("forever", {})))
"""


def test_a_worker_does_not_outlive_a_killed_parent():
    here = os.path.dirname(tools.__file__)
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN, here], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == -9, done.stderr
    deadline = time.monotonic() + 5
    while not gone(int(done.stdout)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gone(int(done.stdout))
