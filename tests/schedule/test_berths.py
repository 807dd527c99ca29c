import asyncio
import time

import pytest
import worker_kit as kit

from hexad.contract.faults import EnvironmentFault
from hexad.schedule.berths import Berths


async def hang(berths, log):
    """An environment that hangs without blocking its thread, and is closed."""

    async def work():
        await asyncio.sleep(60)

    async def close():
        log.append("closed")

    with berths.berth() as hosts:
        host = hosts.take(0)
        with pytest.raises(EnvironmentFault, match=r"longer than 0\.05 s"):
            await host.call("step", 0.05, work)
        host.leave("close", close)


def test_hung_environments_leave_no_threads_behind_and_get_to_close():
    log = []

    async def main():
        berths = Berths(grace=1.0)
        for _ in range(6):
            await hang(berths, log)
        assert len(kit.threads("environments")) == 6
        with berths.berth():
            pass
        await asyncio.sleep(1.5)
        assert len(kit.threads("environments")) == 0 and log == ["closed"] * 6
        berths.close()

    asyncio.run(main())


def test_an_episode_beside_a_hung_one_keeps_its_thread():
    async def main():
        berths = Berths(grace=0.0)

        async def beside():
            with berths.berth() as hosts:
                host = hosts.take(1)
                await asyncio.sleep(0.2)
                return await host.call("step", 1.0, answer)

        async def answer():
            return "here"

        other = asyncio.create_task(beside())
        await asyncio.sleep(0)
        await hang(berths, [])
        with berths.berth() as hosts:
            assert not hosts.worn
        assert await other == "here"
        berths.close()

    asyncio.run(main())
    time.sleep(0.1)
    assert kit.threads("environments") == []
