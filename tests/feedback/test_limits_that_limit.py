"""Field case O17: a limit stops the work, on any thread, and a good answer is right after it."""

import asyncio
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from builders import episode
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.messages import Message, Role
from hexad.contract.task import Split, Task
from hexad.environments.process import WorkerProcess
from hexad.environments.registry import Origin
from hexad.feedback.registry import verifier
from hexad.feedback.sandbox import START

TESTS = Path(__file__).parents[1]
sys.path.append(str(TESTS / "run"))

GOOD = Origin("calculator", {}, {}, 2)
ENDED = episode(ending=Ending.of(EndingKind.TERMINAL), verdict=None, rewards=())
THIRD = Task("t", Split.TRAIN, {"answer": "1/3"})


needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap")


def says(text):
    return (Message(Role.ASSISTANT, text),)


@pytest.fixture
def make():
    made = []

    def build(name, options=None):
        made.append(verifier(name, GOOD.make(), GOOD, options))
        return made[-1]

    yield build
    for one in made:
        one.close()
        assert one.live_workers == 0


def test_the_verdict_is_the_same_from_any_thread_loop_and_process(make):
    judge = make("math")

    def check():
        return str(judge.verify(THIRD, ENDED, says(r"\frac{1}{3}")).status)

    async def within():
        return check()

    assert check() == "correct"
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(check).result() == "correct"
    assert asyncio.run(within()) == "correct"
    script = (
        f"import sys; sys.path[:0] = [{str(TESTS)!r}, {str(TESTS / 'feedback')!r}]\n"
        "from test_limits_that_limit import *\n"
        "judge = verifier('math', GOOD.make(), GOOD)\n"
        r"print(judge.verify(THIRD, ENDED, says(r'\frac{1}{3}')).status); judge.close()"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.stdout == "correct\n", ran.stderr


def test_a_call_of_c_that_never_returns_is_stopped(make):
    judge = make("bad_parts:Stuck")
    assert str(judge.verify(THIRD, ENDED, says("1")).status) == "timeout"
    assert judge.live_workers == 0


def test_eight_hanging_answers_on_two_workers_take_four_limits_and_leave_nothing(make, monkeypatch):
    judge, waits, start = make("bad_parts:HangsOnSome"), [], WorkerProcess._start

    def started(worker):
        begun = time.monotonic()
        start(worker)
        waits.append(time.monotonic() - begun)

    monkeypatch.setattr(WorkerProcess, "_start", started)
    begun = time.monotonic()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: judge.verify(THIRD, ENDED, says("hang")), range(8)))
    spent = time.monotonic() - begun
    assert [(str(v.status), v.score) for v in found] == [("timeout", 0.0)] * 8
    assert judge.live_workers == 0 and len(waits) == 8
    assert 4.0 <= spent < 6.0 + sum(waits)
    assert str(judge.verify(THIRD, ENDED, says("fine")).status) == "correct"


def test_what_math_verify_cannot_simplify_in_time_is_a_timeout_and_a_good_answer_follows(make):
    judge = make("math")
    judge._limit = lambda task: 1.0
    tower = "9^{" * 6 + "9" + "}" * 6
    found = judge.verify(THIRD, ENDED, says(f"${tower}$"))
    assert str(found.status) in ("timeout", "wrong", "invalid") and found.score == 0.0
    judge._limit = lambda task: 60.0
    assert str(judge.verify(THIRD, ENDED, says("1/3")).status) == "correct"


@pytest.mark.parametrize(
    ("name", "options", "data", "text"),
    [
        pytest.param(
            *("python", {"memory": 4096, "seconds": 20.0}),
            *({"tests": ["assert f(2) == 4"]}, "def f(x): return len(bytes(x << 30)) >> 29"),
            marks=needs_bwrap,
        ),
        ("numeric", {"absolute": 0.5}, {"answer": 1}, "1.5"),
        ("exact", {"ignore_case": True}, {"answer": "Paris"}, "PARIS"),
    ],
)
def test_options_of_a_ready_verifier_hold_in_its_process(make, name, options, data, text):
    found = make(name, options).verify(Task("t", Split.TRAIN, data), ENDED, says(text))
    assert str(found.status) == "correct", found


@needs_bwrap
def test_the_whole_limit_leaves_every_program_its_own_and_the_start(make, monkeypatch):
    judge, given = make("python", {"seconds": 1.0}), []

    def noted(worker, request, seconds):
        given.append(seconds)
        return {"verdict": ["wrong", 0.0, "{}"]}

    monkeypatch.setattr(WorkerProcess, "call", noted)
    script, call = {"stdin": "", "stdout": "1"}, "assert f(2) == 4"
    for tests in ([script] * 30, [script] * 30 + [call] * 9, [call] * 30, 7):
        judge.verify(Task("t", Split.TRAIN, {"tests": tests}), ENDED, says("1"))
    one = START + 1.0
    assert given == [10.0 + runs * one for runs in (30, 31, 1, 0)]
