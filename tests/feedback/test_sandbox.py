"""Programs that try to get out of the sandbox, to look into the grader, or to stay."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hexad
from hexad.contract.faults import UserError, VerifierFault
from hexad.feedback import sandbox
from hexad.feedback.registry import build
from hexad.feedback.sandbox import Limits, run

needs_bwrap = pytest.mark.skipif(
    shutil.which("bwrap") is None,
    reason="bubblewrap is not installed: apt-get install bubblewrap",
)
pytestmark = needs_bwrap
QUICK = Limits(seconds=20.0)
HEAD = "import os, sys, socket, subprocess, time, ctypes, signal\n"


def attack(program, limits=QUICK):
    return run(("-c", HEAD + program), b"", limits)


def refused(expression):
    """What raising an ``OSError`` looks like from outside; a success prints ``got``."""
    program = f"try:\n    {expression}\n    print('got')\nexcept OSError as e: print('no')"
    ran = attack(program)
    return ran.output == b"no\n" and ran.code == 0


def mine(mark):
    """Command lines of this machine's processes that hold ``mark``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in line and int(entry.name) != os.getpid():
                found.append(entry.name)
    return found


def gone(mark):
    deadline = time.monotonic() + 10.0
    while mine(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not mine(mark)


def test_a_program_runs_and_its_exit_code_comes_back():
    ran = run(("-c", "import sys; print(sys.stdin.read()[::-1]); sys.exit(3)"), b"abc", QUICK)
    assert (ran.output, ran.code, ran.over) == (b"cba\n", 3, None)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow",
        "/etc/passwd",
        "/work",
        str(Path.home()) + "/.bashrc",
        str(Path(hexad.__file__).parent),
        os.getcwd(),
        __file__,
        sys.prefix,
        "/sys",
        "/proc/1/root/etc/shadow",
        "/proc/1/environ",
        "/proc/1/mem",
        "/dev/sda",
        "/dev/mem",
        "/proc/kcore",
        "/proc/sysrq-trigger",
        "/run/docker.sock",
        "/var/run",
    ],
)
def test_what_is_outside_cannot_be_read(path):
    look = f"os.listdir({path!r}) if os.path.isdir({path!r}) else open({path!r}, 'rb').read(1)"
    assert refused(look)


@pytest.mark.parametrize(
    "path", ["/usr/x", "/x", "/dev/shm/x", "/dev/x", "/proc/sys/kernel/core_pattern", "/etc/x"]
)
def test_nothing_but_the_work_folder_can_be_written(path):
    assert refused(f"open({path!r}, 'w').write('x')")
    assert not os.path.exists("/usr/x") and not os.path.exists("/x")


def test_the_work_folder_is_empty_private_and_gone_afterwards():
    mark = "hexad-sandbox-mark"
    ran = attack(f"print(os.listdir()); open('{mark}', 'w').write('x'); print(os.getcwd())")
    assert ran.output == b"[]\n/tmp\n"
    assert not os.path.exists(f"/tmp/{mark}") and attack("print(os.listdir())").output == b"[]\n"


def installed():
    """Folders of packages of this Python's base and of the system."""
    base = Path(os.path.realpath(sys.base_prefix))
    roots = (base, Path("/usr"), Path("/usr/local"))
    return [str(path) for root in roots for path in root.glob("lib*/py*/*-packages")]


def test_installed_packages_and_folders_on_the_path_are_empty_inside(monkeypatch):
    packages = installed()
    assert any(os.listdir(path) for path in packages) and os.listdir("/usr/share")
    monkeypatch.syspath_prepend("/usr/share")
    for path in (*packages, "/usr/share"):
        assert attack(f"print(os.listdir({path!r}))").output == b"[]\n", path
        assert refused(f"open({path!r} + '/x', 'w')")


def test_the_standard_library_stays():
    program = "import asyncio, decimal, json, sqlite3, ssl, unittest, zoneinfo; print('all')"
    assert attack(program).output == b"all\n"


def test_links_lead_nowhere():
    program = (
        "os.symlink('/etc/shadow', 'a'); os.symlink('../../../../work', 'b')\n"
        "for path in ('a', 'b', '/proc/self/root/etc/shadow', '/proc/self/cwd/../etc/shadow'):\n"
        "    try: print(open(path).read())\n"
        "    except OSError: print('no')\n"
        "try: os.link('/usr/bin/env', 'c'); print('got')\n"
        "except OSError: print('no')"
    )
    assert attack(program).output == b"no\n" * 5


def test_there_are_no_variables_no_privileges_and_no_open_files(monkeypatch):
    monkeypatch.setenv("HEXAD_SECRET", "key")
    kept = attack("print(sorted(os.environ))").output
    assert b"HEXAD_SECRET" not in kept and b"HOME" not in kept
    program = (
        "status = dict(l.split(':', 1) for l in open('/proc/self/status'))\n"
        "print(os.getuid() != 0, os.getgroups() in ([], [os.getgid()]),"
        " int(status['CapEff'], 16), status['NoNewPrivs'].strip())\n"
        "print(sorted(os.listdir('/proc/self/fd')))"
    )
    first, second = attack(program).output.decode().splitlines()
    assert first == ("True True 0 1" if os.getuid() == 0 else first)
    assert second == "['0', '1', '2', '3']"  # 3 is the listing itself


def test_privileges_do_not_come_back():
    for call in ("os.setuid(0)", "os.setgroups([0])", "os.chroot('/')", "os.nice(-5)"):
        if os.getuid() == 0:
            assert refused(call), call
    mounted = "libc = ctypes.CDLL(None); print(libc.mount(b'x', b'/tmp', b'tmpfs', 0, None))"
    assert attack(mounted).output == b"-1\n"


@pytest.mark.parametrize(
    "call",
    [
        "unshare(0x10000000)",  # a user namespace
        "unshare(0x00020000)",
        "syscall(435, 0, 0)",  # clone3, and by number what has no name in the C library
        "syscall(56 if os.uname().machine == 'x86_64' else 220, 0x10000011, 0, 0, 0, 0)",
        "memfd_create(b'x', 0)",
        "shmget(0, 1 << 30, 0o1600)",
        "msgget(0, 0o1600)",
        "ptrace(0, 0, 0, 0)",
        "chroot(b'/tmp')",
        "setns(0, 0)",
        "syscall(425, 1, 0)",  # io_uring
        "syscall(438, 0, 1, 0)",  # pidfd_getfd: open files of others
        "syscall(0x40000000 + 39)",  # getpid of another ABI
    ],
)
def test_calls_that_would_open_a_gap_are_refused(call):
    program = f"libc = ctypes.CDLL(None, use_errno=True)\nprint(libc.{call}, ctypes.get_errno())"
    answer, errno = map(int, attack(program).output.split())
    assert answer == -1 and errno in (1, 38)


def test_threads_and_programs_of_the_system_still_work():
    program = (
        "import threading\n"
        "thread = threading.Thread(target=lambda: print('thread', flush=True))\n"
        "thread.start(); thread.join()\n"
        "print(subprocess.run(['/usr/bin/env', 'echo', 'x'], capture_output=True).stdout)"
    )
    assert attack(program).output == b"thread\nb'x\\n'\n"


def test_there_is_no_network():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for call in (
            f"socket.create_connection(('127.0.0.1', {port}), 2)",
            "socket.create_connection(('1.1.1.1', 53), 2)",
            "socket.getaddrinfo('example.com', 80)",
            "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        ):
            assert refused(call), call
    assert attack("print(os.listdir('/sys/class/net') if os.path.isdir('/sys') else 0)").output


def test_other_processes_can_neither_be_seen_nor_traced_nor_killed():
    seen = attack("print(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()))").output
    assert seen == b"[1, 2]\n"
    assert refused(f"os.kill({os.getpid()}, signal.SIGKILL)")
    traced = (
        f"libc = ctypes.CDLL(None); print(libc.ptrace(16, {os.getpid()}, 0, 0), "
        "libc.ptrace(16, 1, 0, 0))"
    )
    assert attack(traced).output == b"-1 -1\n"
    parent = attack("os.kill(os.getppid(), signal.SIGKILL); print('alive')")
    assert parent.over is None and parent.output in (b"alive\n", b"")


def test_a_fork_bomb_ends_with_the_limit_and_leaves_nothing():
    mark = "fork-bomb-of-this-test"
    program = (
        f"mark = {mark!r}\nmade = 0\n"
        "try:\n"
        "    while made < 50:\n"
        "        if os.fork() == 0: time.sleep(600)\n"
        "        made += 1\n"
        "except OSError: pass\n"
        "print(made)"
    )
    ran = attack(program, Limits(seconds=20.0, processes=6))
    assert ran.output == b"5\n"  # and the program itself
    assert gone(mark)
    endless = f"mark = {mark!r}\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    assert attack(endless, Limits(seconds=1.0, processes=6)).over == "seconds"
    assert gone(mark)


def test_a_memory_bomb_meets_the_limit():
    program = "try: b = bytearray(1 << 30); print('got')\nexcept MemoryError: print('no')"
    assert attack(program, Limits(seconds=20.0, memory=128)).output == b"no\n"


def test_files_of_the_work_folder_are_bounded_alone_and_together():
    program = (
        "total = 0\n"
        "try:\n"
        "    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "    for i in range(100):\n"
        "        with open(str(i), 'wb') as f: total += f.write(bytes(1 << 20))\n"
        "except OSError: pass\n"
        "print(total >> 20)"
    )
    assert int(attack(program, Limits(seconds=20.0, files=4)).output) <= 4


def test_output_without_end_is_cut():
    ran = attack("while True: print('x' * 65536)", Limits(seconds=30.0, output=100_000))
    assert ran.over == "output" and len(ran.output) == 100_000


@pytest.mark.parametrize(
    "program",
    [
        "time.sleep(600)",
        "while True: pass",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
        "os.close(1); os.close(0); time.sleep(600)",
        "7 ** (10 ** 9)",
    ],
)
def test_what_never_ends_is_killed(program):
    begun = time.monotonic()
    assert attack(program, Limits(seconds=1.0)).over == "seconds"
    assert time.monotonic() - begun < 10.0


def test_a_daemon_does_not_outlive_the_program():
    mark = "daemon-of-this-test"
    program = (
        f"mark = {mark!r}\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        for n in (0, 1, 2): os.close(n)\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        "print('left')"
    )
    assert attack(program).output == b"left\n"
    assert gone(mark)


def test_the_sandbox_dies_with_the_process_that_made_it():
    mark = "orphan-of-this-test"
    script = (
        "from hexad.feedback.sandbox import Limits, run\n"
        f"run(('-c', 'import time; time.sleep(600) # {mark}'), b'', Limits(seconds=600))"
    )
    parent = subprocess.Popen([sys.executable, "-c", script])
    try:
        deadline = time.monotonic() + 60.0
        # The parent, bubblewrap twice, the program: earlier the inner one may not have asked yet to
        # die with the outer.
        while len(mine(mark)) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(mine(mark)) >= 4
    finally:
        parent.kill()
        parent.wait()
    assert gone(mark)


def test_without_bubblewrap_generated_code_is_refused(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    for make in (sandbox.require_sandbox, lambda: build("python", None)):
        with pytest.raises(UserError, match="bubblewrap is not installed") as caught:
            make()
        assert "apt-get install bubblewrap" in caught.value.fix


def test_a_bubblewrap_that_cannot_make_namespaces_is_refused(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho up | tr -d u\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UserError, match="cannot make one"):
        sandbox.require_sandbox()


def test_a_limit_that_cannot_be_set_is_the_sandboxs_failure_and_not_the_programs():
    beyond = Limits(memory=1 << 50)
    with pytest.raises(VerifierFault, match="could not be made: OverflowError"):
        attack("print('begun')", beyond)
    with pytest.raises(UserError, match="could not be made: OverflowError"):
        sandbox.require_sandbox(beyond)


def test_a_sandbox_that_is_not_made_in_time_is_no_time_out_of_the_program(monkeypatch):
    monkeypatch.setattr(sandbox, "START", 1e-3)
    with pytest.raises(VerifierFault, match="did not start"):
        attack("print('begun')")


def test_python_that_does_not_start_within_the_limits_is_refused_beforehand():
    with pytest.raises(UserError, match="does not start within the limits"):
        sandbox.require_sandbox(Limits(memory=8))


def test_the_program_cannot_speak_for_the_sandbox():
    program = "os.write(2, b'x' * 65536)\nprint(os.readlink('/proc/self/fd/2'))"
    assert attack(program).output == b"/dev/null\n"
