"""Calculators that take their time, for workers: named by recipes as ``module:object``."""

import asyncio
import os
import time
from pathlib import Path

from hexad.environments.calculator import CalculatorFamily


class _Delayed:
    """An environment whose reset first does ``wait``."""

    def __init__(self, inner, wait):
        self._inner, self._wait = inner, wait

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def reset(self, task, seed):
        await self._wait(task)
        return await self._inner.reset(task, seed)

    async def step(self, turn):
        return await self._inner.step(turn)

    async def close(self):
        await self._inner.close()


class SlowFamily(CalculatorFamily):
    """Every reset takes a minute, without blocking its thread."""

    async def _wait(self, task):
        await asyncio.sleep(60)

    def make(self):
        return _Delayed(super().make(), self._wait)


class HangingFamily(SlowFamily):
    """Every reset blocks its thread for good, as a library that waits for a network may."""

    async def _wait(self, task):
        time.sleep(3600)


class SpawningFamily(SlowFamily):
    """Starts a process of its own and says its id in ``HEXAD_TEST_PIDS``, then waits."""

    async def _wait(self, task):
        child = await asyncio.create_subprocess_exec("sleep", "3600")
        folder = Path(os.environ["HEXAD_TEST_PIDS"])
        (folder / ".new").write_text(str(child.pid))
        (folder / ".new").rename(folder / "child")
        await asyncio.sleep(3600)


class TalkingFamily(CalculatorFamily):
    """Prints, as user code does, and reads what is not meant for it."""

    def make(self):
        print("a word on the standard output", flush=True)
        try:
            input()
        except (EOFError, OSError):  # pytest allows no reading at all
            print("nothing to read", flush=True)
        return super().make()


class _Unforkable(_Delayed):
    """Gives snapshots, and cannot go on from them."""

    def fork(self, snapshot):
        raise RuntimeError("this snapshot is of another machine")


class _Lasting(_Unforkable):
    repeatable = False


class UnforkableFamily(CalculatorFamily):
    """What was interrupted cannot go on."""

    kind = _Unforkable

    async def _wait(self, task):
        pass

    def make(self):
        return self.kind(super().make(), self._wait)


class LastingFamily(UnforkableFamily):
    """And a reset does not undo what was done."""

    kind = _Lasting


class SometimesSlowFamily(SlowFamily):
    """Tasks of three operations take a minute."""

    async def _wait(self, task):
        if task.data["operations"] == 3:
            await super()._wait(task)
