"""Tools at the top of a module, where a worker process finds them."""

import os
import subprocess
import sys
import time
from typing import Literal

from hexad.environments.tools import Effect, ToolError, tool

LIMIT = 0.2
CALLS = []


@tool(effect=Effect.READ_ONLY, policy_code=True, timeout=LIMIT)
def spin(seconds: float = 3600.0) -> str:
    """Compute without end."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "done"


@tool(effect=Effect.READ_ONLY, timeout=600.0)
def forever() -> str:
    """Compute without end and without a limit that matters."""
    while True:
        pass


@tool(effect=Effect.READ_ONLY, timeout=LIMIT)
def search(seconds: float) -> str:
    """Infrastructure that may hang."""
    time.sleep(seconds)
    return "found"


@tool(effect=Effect.READ_ONLY, policy_code=True, timeout=LIMIT)
def one_c_call() -> int:
    """Stay inside a single C call that never looks at signals or the interpreter lock."""
    return len(str(7 ** (10**9)))


@tool(effect=Effect.READ_ONLY, policy_code=True, timeout=LIMIT)
def leave_child(path: str) -> str:
    """Start a child process that would survive, note its id, and hang."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(path, "w") as file:
        file.write(str(child.pid))
    time.sleep(3600)
    return ""


@tool(effect=Effect.READ_ONLY, policy_code=True)
def leave(code: int) -> str:
    """End the process."""
    os._exit(code)


@tool(effect=Effect.READ_ONLY)
def divide(a: int, b: int) -> float:
    """Divide a by b.

    This second paragraph is not part of the description.
    """
    print("a tool may print")
    if b == 0:
        raise ToolError("division by zero")
    return a / b


@tool(effect=Effect.READ_ONLY)
def broken(how: Literal["raise", "junk", "nan", "exit"]) -> object:
    """Fail in one of the ways that are not the policy's."""
    return misbehave(how)


@tool(effect=Effect.READ_ONLY, isolated=False)
def broken_here(how: Literal["raise", "junk", "nan", "exit"]) -> object:
    """Fail in this process."""
    return misbehave(how)


@tool(effect=Effect.READ_ONLY, isolated=False)
def nap(seconds: float) -> str:
    """Block a thread."""
    time.sleep(seconds)
    return "rested"


@tool(effect=Effect.READ_ONLY)
async def echo(text: str, times: int = 1) -> str:
    """Repeat a text."""
    return text * times


@tool(effect=Effect.READ_ONLY)
def remember(value: int) -> int:
    """Number of calls that this process has seen."""
    CALLS.append(value)
    return len(CALLS)


@tool(effect=Effect.READ_ONLY, policy_code=True)
def remember_policy(value: int) -> int:
    """The same, for code of the policy."""
    CALLS.append(value)
    return len(CALLS)


@tool(effect=Effect.IRREVERSIBLE, isolated=False)
def send(text: str) -> str:
    """Send a message."""
    return "sent"


@tool(effect=Effect.REVERSIBLE, isolated=False)
def note(text: str) -> str:
    """Write a note."""
    if not text:
        raise OSError("the disk is full")
    return "noted"


def misbehave(how):
    if how == "raise":
        raise ConnectionError("no route")
    if how == "exit":
        raise SystemExit(3)
    return object() if how == "junk" else float("nan")


@tool(effect=Effect.READ_ONLY, timeout=60.0)
def variables() -> str:
    """Names of the environment variables that a worker sees."""
    return " ".join(os.environ)
