"""Verifiers, mappings and families that misbehave, by name."""

import os
import time

from hexad.contract.reward import Reward
from hexad.contract.verdict import Verdict, VerdictStatus
from hexad.environments.calculator import CalculatorFamily
from hexad.environments.tools import Effect, tool
from hexad.feedback.cards import Card


class Wrong:
    """A verifier that works; the others below do not."""

    digest = "bad_parts"
    timeout = 0.5
    variables = ("HEXAD_TEST_SEEN",)

    def __init__(self, family):
        self.family = family

    def verify(self, task, episode, transcript):
        return Verdict(VerdictStatus.WRONG, 0.0)


class Environ(Wrong):
    timeout = 20

    def verify(self, task, episode, transcript):
        return Verdict(VerdictStatus.WRONG, 0.0, repr(dict(os.environ)))


class Echo(Wrong):
    """Tells what it was shown, and prints, which must not look like a reply."""

    timeout = 20

    def verify(self, task, episode, transcript):
        print('{"verdict": ["correct", 1.0, ""]}', flush=True)
        return Verdict(VerdictStatus.WRONG, 0.25, repr((task, episode, transcript)))


class Raises(Wrong):
    def verify(self, task, episode, transcript):
        raise KeyError("boo")


class Hangs(Wrong):
    def verify(self, task, episode, transcript):
        time.sleep(3600)


class TimedByTask(Hangs):
    def timeout(self, task):
        return task.data["seconds"]


class Spins(Wrong):
    def verify(self, task, episode, transcript):
        while True:
            pass


class Hoards(Wrong):
    """Wants more memory than it declares."""

    timeout, memory = 20, 64

    def verify(self, task, episode, transcript):
        return Verdict(VerdictStatus.CORRECT, len(bytearray(256 << 20)) / (256 << 20))


class Free(Wrong):
    """Declares no limit, and fails for want of memory."""

    timeout = 20

    def verify(self, task, episode, transcript):
        raise MemoryError("1 EB")


class Optioned(Wrong):
    timeout = 20

    def __init__(self, family, near=0.0):
        self.near = near

    def verify(self, task, episode, transcript):
        return Verdict(VerdictStatus.WRONG, self.near)


class Carded(Wrong):
    card = Card("carded", "nothing", "everything")


class BadlyCarded(Wrong):
    card = "checks all"


class Stuck(Wrong):
    """Inside one call of C that holds the interpreter's lock."""

    timeout = 1.0

    def verify(self, task, episode, transcript):
        return Verdict(VerdictStatus.WRONG, 1.0 / 7 ** (10**9))


class HangsOnSome(Wrong):
    """Never returns on the answer ``hang``."""

    timeout = 1.0

    def verify(self, task, episode, transcript):
        while transcript[-1].content == "hang":
            pass
        return Verdict(VerdictStatus.CORRECT, 1.0)


class Exits(Wrong):
    def verify(self, task, episode, transcript):
        os._exit(3)


class Junk(Wrong):
    def verify(self, task, episode, transcript):
        return {"score": 1}


class Impatient(Wrong):
    timeout = 0


class NotANumber:
    version = "nan/1"

    def rewards(self, verdict, episode):
        return (Reward("task", float("nan")),)


class RaisingMapping:
    version = "raising/1"

    def rewards(self, verdict, episode):
        raise KeyError("no weight")


class TextMapping:
    version = "text/1"

    def rewards(self, verdict, episode):
        return "1.0"


@tool(effect=Effect.IRREVERSIBLE, isolated=False)
def send(a: int, op: str, b: int) -> str:
    """Send it."""
    return "sent"


CLOSED = []


class Closing(CalculatorFamily):
    """Tells when it is closed; ``close: raise`` or ``close: hang`` go wrong."""

    def __init__(self, options, split_options, workers=4):
        options = dict(options)
        self.how = options.pop("close", "well")
        super().__init__(options, split_options, workers)

    def close(self):
        CLOSED.append(self.how)
        super().close()
        if self.how == "raise":
            raise OSError("the server is gone")
        if self.how == "hang":
            time.sleep(3600)


class Sending(Closing):
    tool = send


class Small(Closing):
    """Three tasks, and it knows."""

    def task_count(self, split):
        return 3
