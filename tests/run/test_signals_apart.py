"""Who stops ``hexad compare`` stops the training under way, and each hears a Ctrl-C once."""

import os
import signal
import subprocess
import sys

import pytest

from hexad.apart import apart

CHILD = """
import os, sys, time
from hexad.cli.interrupt import Interrupts
with Interrupts(silent=True) as interrupts:
    print(os.getpid(), flush=True)
    while not interrupts.requested():
        time.sleep(0.01)
    print("asked", flush=True)
    try:
        time.sleep(float(sys.argv[1]))
    except KeyboardInterrupt:
        print("at once", flush=True)
sys.exit(130)
"""
PARENT = """
import sys
from hexad.apart import apart
from hexad.cli.interrupt import Interrupts
with Interrupts(silent=True) as interrupts:
    try:
        code, _ = apart([sys.executable, "-c", *sys.argv[1:]], quiet=False)
    except KeyboardInterrupt:
        print("stopped", flush=True)
    else:
        print(code, interrupts.requested(), flush=True)
"""


@pytest.fixture
def started():
    """A parent in a group of its own that waits for a child; with the child's number."""
    parents = []

    def start(linger):
        words = [sys.executable, "-c", PARENT, CHILD, str(linger)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
        parents.append(process)
        return process, int(process.stdout.readline())

    yield start
    for process in parents:
        process.kill()
        process.communicate(timeout=20)


def line(process):
    return process.stdout.readline().strip()


@pytest.mark.parametrize("tell", [os.kill, os.killpg], ids=["scheduler", "terminal"])
def test_both_hear_one_interrupt_whether_one_was_told_or_the_group(started, tell):
    parent, _ = started(0.4)
    tell(parent.pid, signal.SIGINT)
    assert line(parent) == "asked"
    assert line(parent) == "130 True"  # a doubled signal would have stopped it at once
    assert parent.wait(timeout=20) == 0


def test_the_second_interrupt_stops_both_at_once(started):
    parent, _ = started(60)
    os.killpg(parent.pid, signal.SIGINT)
    assert line(parent) == "asked"
    os.killpg(parent.pid, signal.SIGINT)
    assert (line(parent), line(parent)) == ("at once", "stopped")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_no_training_is_left_behind(started, number):
    parent, child = started(60)
    os.kill(parent.pid, number)
    assert parent.wait(timeout=20) == -number
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        told = "import signal; raise SystemExit(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
        assert apart([sys.executable, "-c", told], quiet=True)[0] == 1
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_run_apart_tells_its_code_and_its_memory(capfd):
    code, peak = apart([sys.executable, "-c", "print('x'); raise SystemExit(3)"], quiet=True)
    assert code == 3 and 2**20 < peak < 2**32 and capfd.readouterr().out == ""
    killed = "import os; os.kill(os.getpid(), 9)"
    assert apart([sys.executable, "-c", killed], quiet=True)[0] == -9
