"""Runs a program that nobody trusts: bubblewrap, an unprivileged uid, limits that kill.

The program sees read-only ``/usr`` and the Python that runs it, but no package that is installed
there or lies on the caller's path (Hexad, and verifiers and tasks of the user's, among them); an
empty work folder in memory, its own processes, no network, no environment variables and no home.
What else lies below ``/usr`` and below that Python's own folder can be read: the standard library,
programs and their data. It is a wall of the kernel's namespaces and of a filter of system calls,
not a virtual machine.
"""

from __future__ import annotations

import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import hexad
from hexad.contract.faults import UserError, VerifierFault
from hexad.feedback import seccomp

WORK = "/tmp"
"""The work folder inside: the only place that can be written."""
PROGRAM = "/program.py"
"""The file inside that holds the program, where :func:`run` is given one."""
START = 20.0
"""Seconds that making the sandbox may take; they are no part of a program's limit."""
_PACKAGE = Path(hexad.__file__).resolve().parent
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib64", "/lib32")
_CHUNK = 65536
_UP = b"the sandbox is up\n"

_INSIDE = """
import os, resource, sys
uid, seconds, memory, processes, size = map(int, sys.argv[1:6])
for which, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, memory),
                    (resource.RLIMIT_FSIZE, size), (resource.RLIMIT_CORE, 0),
                    (resource.RLIMIT_NOFILE, 64), (resource.RLIMIT_MEMLOCK, 0)):
    resource.setrlimit(which, (most, most))
if uid:
    os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
os.umask(0o077)
nowhere = os.open(os.devnull, os.O_WRONLY)
os.write(2, b"the sandbox is up\\n")
os.dup2(nowhere, 2)
os.execv(sys.executable, [sys.executable, "-I", "-S", "-X", "utf8", *sys.argv[6:]])
"""
"""Sets the limits, gives every privilege up, says so, and becomes the program.

Until it has said so its stderr leads to the caller, and a failure is not the program's.
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use; ``memory`` and ``files`` in MB, ``memory`` for each process.

    So ``memory * processes`` bounds the whole. ``output`` is in bytes. Threads count as processes.
    """

    seconds: float = 5.0
    memory: int = 256
    processes: int = 8
    files: int = 16
    output: int = 1 << 20


@dataclass(frozen=True, slots=True)
class Ran:
    """What the program wrote, and its exit code, or the limit that stopped it (``over``)."""

    output: bytes
    code: int
    over: str | None = None


def require_sandbox(limits: Limits | None = None) -> None:
    """Raise ``UserError`` where bubblewrap is missing or may not run, or Python in ``limits``."""
    try:
        tried = run(("-c", "print('up')"), b"", replace(limits or Limits(), seconds=30.0))
    except VerifierFault as fault:
        what = f"generated code runs only in a sandbox, and bubblewrap cannot make one: {fault}"
        fix = "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1)"
        raise UserError(what, where="feedback.verifier", fix=fix) from None
    if tried.output != b"up\n":
        what, fix = f"Python does not start within the limits of the sandbox: {tried}", "allow more"
        raise UserError(what, where="feedback.options", fix=fix)


def _bubblewrap() -> str:
    found = shutil.which("bwrap")
    if found is None:
        raise UserError(
            "generated code runs only in a sandbox, and bubblewrap is not installed",
            where="feedback.verifier",
            fix="apt-get install bubblewrap (dnf, pacman and others name it alike); Linux only",
        )
    return found


def run(
    arguments: tuple[str, ...], stdin: bytes, limits: Limits, program: bytes | None = None
) -> Ran:
    """Run Python with ``arguments`` inside, and kill all that is left of it afterwards.

    ``program`` can be read there as the file ``PROGRAM``: an argument has at most 128 KB.
    At most ``limits.output`` bytes of its output are kept; what it writes to stderr is lost. Its
    time begins when the sandbox is made. Raises ``UserError`` without bubblewrap and
    ``VerifierFault`` where the sandbox could not be made: then the program has not begun.
    """
    bwrap = _bubblewrap()
    heard, told = socket.socketpair()  # unlike a pipe it cannot be opened again through /proc
    with ExitStack() as held:
        for each in (heard, told):
            held.enter_context(each)
        calls = held.enter_context(_readable(seccomp.program()))
        source = () if program is None else (held.enter_context(_readable(program)),)
        process = subprocess.Popen(
            [*_command(bwrap, limits, calls, source), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=told.fileno(),
            env={},
            pass_fds=(calls, *source),
            start_new_session=True,
        )
        output, over = bytearray(), None
        try:
            told.close()
            _await_start(heard)
            over = _converse(process, stdin, limits, output)
            if over is None:
                process.wait()
        finally:
            _end(process)
    code = process.returncode
    if over is None and code in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
        over = "seconds"
    return Ran(bytes(output[: limits.output]), code, over)


def _await_start(heard: socket.socket) -> None:
    """Until the limits hold and the program begins. Raises ``VerifierFault`` if it never does."""
    deadline, text = time.monotonic() + START, b""
    while _UP not in text:
        heard.settimeout(max(1e-3, deadline - time.monotonic()))
        try:
            chunk = heard.recv(_CHUNK)
        except TimeoutError:
            raise VerifierFault(f"the sandbox did not start within {START:g} s") from None
        if not chunk:
            last = text.decode("utf-8", "replace").strip().split("\n")[-1]
            raise VerifierFault(f"the sandbox could not be made: {last or 'no reason given'}")
        text += chunk


@contextmanager
def _readable(content: bytes) -> Iterator[int]:
    """A file descriptor from which ``content`` can be read."""
    with os.fdopen(os.memfd_create("hexad"), "w+b") as file:
        file.write(content)
        file.seek(0)
        yield file.fileno()


def _command(bwrap: str, limits: Limits, calls: int, source: tuple[int, ...]) -> list[str]:
    python = os.path.realpath(sys.executable)
    uid = _spare_uid() if os.geteuid() == 0 else 0
    numbers = (uid, int(limits.seconds) + 1, limits.memory << 20, limits.processes)
    inside = [*map(str, numbers), str(limits.files << 20)]
    unshared = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    powers = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if uid else ["--unshare-user"]
    return [
        *(bwrap, *unshared, "--unshare-cgroup-try", *powers, "--die-with-parent", "--new-session"),
        *("--clearenv", "--hostname", "sandbox", "--seccomp", str(calls)),
        *_mounts(limits),
        *(word for file in source for word in ("--perms", "0444", "--file", str(file), PROGRAM)),
        *("--remount-ro", "/"),
        *("--chdir", WORK, python, "-I", "-S", "-c", _INSIDE, *inside),
    ]


def _mounts(limits: Limits) -> Iterator[str]:
    """The file system: system and Python to read, a small folder in memory to write."""
    yield from ("--perms", "1777", "--size", str(limits.files << 20), "--tmpfs", WORK)
    roots = ["/usr"]
    base = os.path.realpath(sys.base_prefix)
    if not _below(base, "/usr"):
        roots.append(base)
        for parent in reversed(Path(base).parents[:-1]):  # so that every uid may pass
            yield from ("--perms", "0755", "--dir", str(parent))
    for root in roots:
        yield from ("--ro-bind", root, root)
    for path in _SYSTEM:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)
    for path in _private(roots):
        yield from ("--tmpfs", path, "--remount-ro", path)
    yield from ("--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev")


def _private(roots: Iterable[str]) -> list[str]:
    """Folders below ``roots`` that must not show: Hexad, the caller's, and installed packages.

    The standard library stays. A folder below another one of them is not named.
    """
    paths = sysconfig.get_paths(vars={"platbase": sys.base_exec_prefix})
    shared = sysconfig.get_config_var("DESTSHARED")
    library = [*(paths[name] for name in ("stdlib", "platstdlib")), sys.base_prefix]
    kept = [os.path.realpath(path) for path in (*library, *filter(None, [shared]))]
    own = [str(_PACKAGE), os.getcwd(), *(path for path in sys.path if path)]
    own += [sys.prefix] if sys.prefix != sys.base_prefix else []
    for root in roots:
        own += [str(path) for path in Path(root).glob("lib*/py*/*-packages")]
        own += [str(path) for path in Path(root).glob("local/lib*/py*/*-packages")]
    found: list[str] = []
    for path in sorted({os.path.realpath(path) for path in own}):
        shows = os.path.isdir(path) and any(_below(path, root) for root in roots)
        needed = any(_below(each, path) for each in kept)
        if shows and not needed and not any(_below(path, above) for above in found):
            found.append(path)
    return found


def _below(path: str, root: str) -> bool:
    return os.path.commonpath([path, root]) == root


def _spare_uid() -> int:
    """A uid that nobody has, so that the number of its processes is the sandbox's own.

    0 where this root has no other: then a user namespace takes its powers.
    """
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    ranges = [(int(first), int(count)) for first, _, count in map(str.split, lines)]
    first, count = max(ranges, key=lambda known: known[1])
    top = min(first + count, 2**31)
    low = max(first, top // 2)
    return low + secrets.randbelow(top - low)


def _converse(
    process: subprocess.Popen[bytes], stdin: bytes, limits: Limits, output: bytearray
) -> str | None:
    """Write ``stdin`` and read ``output`` until the program closes it; the limit that was hit."""
    assert process.stdin is not None and process.stdout is not None
    deadline = time.monotonic() + limits.seconds
    rest = memoryview(stdin)
    os.set_blocking(process.stdin.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        while True:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if time.monotonic() >= deadline:
                return "seconds"
            for key, _ in ready:
                if key.fileobj is process.stdin:
                    rest = _feed(process.stdin.fileno(), rest)
                    if not rest:
                        selector.unregister(process.stdin)
                        process.stdin.close()
                    continue
                chunk = os.read(process.stdout.fileno(), _CHUNK)
                output += chunk
                if len(output) > limits.output:
                    return "output"
                if not chunk:
                    return _await_end(process, deadline)


def _feed(pipe: int, rest: memoryview) -> memoryview:
    try:
        return rest[os.write(pipe, rest[:_CHUNK]) :]
    except BlockingIOError:
        return rest
    except BrokenPipeError:
        return rest[:0]


def _await_end(process: subprocess.Popen[bytes], deadline: float) -> str | None:
    """A program may close its output and go on."""
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "seconds"
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill bubblewrap; its first process inside dies with it, and with that one all the others."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None and not pipe.closed:
            try:
                pipe.close()
            except BrokenPipeError:
                continue
