"""The worker without a transport, in this process."""

import asyncio
import time

import pytest
import worker_kit as kit
from worker_kit import orders, plans, published, recipe

from hexad.contract.arrow import from_ipc
from hexad.rollout.collect import collect
from hexad.schedule import messages
from hexad.schedule.frame import Frame
from hexad.schedule.messages import Beat, Failed, Finished, Loaded, Play, Ready, Stop
from hexad.schedule.worker import serve


def talk(made, wal, script, seconds=60.0):
    """Run ``script(tell, hear)`` against a worker; everything that it said, beats apart."""
    said, changed = [], asyncio.Event()

    async def main():
        loop, arriving = asyncio.get_running_loop(), asyncio.Queue()

        def send(frame):
            loop.call_soon_threadsafe(lambda: (said.append(frame), changed.set()))

        async def hear(kind, count=1):
            while True:
                found = [(m, f.body) for f in said if type(m := messages.read(f)) is kind]
                if len(found) >= count:
                    return found
                changed.clear()
                await changed.wait()

        working = loop.create_task(serve(made, arriving.get, send, wal))
        async with asyncio.timeout(seconds):
            await script(arriving.put_nowait, hear)
            await working
        await asyncio.sleep(0)  # what the pulse still had on its way

    asyncio.run(main())
    return [(messages.read(f), f.body) for f in said if f.head["kind"] != Beat.kind]


def test_a_worker_plays_what_a_synchronous_run_plays_bit_for_bit(tmp_path):
    made = recipe()

    async def script(tell, hear):
        tell(published(made, 0))
        for order in orders(made, 3, members=3):
            tell(order)
        await hear(Finished, 3)
        tell(Stop().frame())

    said = talk(made, tmp_path, script)
    assert [type(m) for m, _ in said] == [Ready, Loaded, Finished, Finished, Finished]
    found = {e.episode_id: e for _, body in said[2:] for e in from_ipc(body)}
    world = kit.world(made)
    assert dict(said[0][0].digests) == world.provenance(()).parts()
    for expected in collect(plans(made, 3, members=3), world):
        assert kit.same(found[expected.episode_id], expected)


def test_every_token_carries_the_version_that_was_loaded_and_the_lineage_goes_along(tmp_path):
    made = recipe()

    async def script(tell, hear):
        for version in (4, 5):
            tell(published(made, version, scale=1.0 + version / 10))
            tell(orders(made, version)[0])
            await hear(Finished, version - 3)
        tell(Stop().frame())

    said = talk(made, tmp_path, script)
    episodes = [e for m, body in said if type(m) is Finished for e in from_ipc(body)]
    for episode, version in zip(sorted(episodes, key=lambda e: e.group_id), (4, 5), strict=True):
        assert episode.provenance.versions == ((version, f"weights-{version}"),)
        (segment,) = episode.segments
        assert set(segment.version[segment.action].tolist()) == {version}
        world = kit.world(made, version, scale=1.0 + version / 10)
        assert kit.same(episode, collect(plans(made, version), world)[0])


def test_a_plan_that_came_after_a_publish_never_begins_on_an_older_version(tmp_path):
    made = recipe(task__limits__turn_tokens=48)

    async def script(tell, hear):
        for version in range(5):
            tell(published(made, version, scale=1.0 + version / 10))
            for order in orders(made, version, members=3):
                tell(order)
        await hear(Finished, 15)
        tell(Stop().frame())

    for _, body in talk(made, tmp_path, script)[1:]:
        for episode in from_ipc(body) if body else ():
            oldest = min(version for version, _ in episode.provenance.versions)
            assert oldest >= int(episode.group_id.partition("-")[2])


def test_no_more_than_the_declared_rows_are_played_at_once_in_order_of_arrival(tmp_path):
    made = recipe(system__engine_rows=1)

    async def script(tell, hear):
        tell(published(made, 0))
        for index in (5, 3, 4):
            tell(orders(made, index)[0])
        await hear(Finished, 3)
        tell(Stop().frame())

    said = talk(made, tmp_path, script)
    ids = [m.episode_id for m, _ in said if type(m) is Finished]
    assert ids == ["v0-5-0", "v0-3-0", "v0-4-0"]


def test_lost_tokens_of_earlier_sittings_are_carried_on(tmp_path):
    made = recipe()

    async def script(tell, hear):
        tell(published(made, 0))
        tell(orders(made, 1, lost=17)[0])
        await hear(Finished)
        tell(Stop().frame())

    ((done, _),) = [each for each in talk(made, tmp_path, script) if type(each[0]) is Finished]
    assert done.lost == 17


@pytest.mark.parametrize(
    ("frame", "error", "told"),
    [
        (Frame({"kind": "nothing"}), "bug", "unknown kind"),
        (Loaded(version=1).frame(), "bug", "'loaded'"),
        (messages.Publish(version=1, lineage="w").frame(b"junk"), "bug", "weights cannot be read"),
        (
            Play(
                index=0, task_id="other", group_id="g", member=0, seed=0, environment="e",
                episode_id="i",
            ).frame(),
            "user",
            "task number 0 is",
        ),
    ],
    ids=["unknown", "not for a worker", "broken weights", "another task"],
)  # fmt: skip
def test_an_order_that_cannot_be_obeyed_ends_the_worker_and_is_told(tmp_path, frame, error, told):
    async def script(tell, hear):
        tell(frame)

    (last, _) = talk(recipe(), tmp_path, script)[-1]
    assert type(last) is Failed and last.error == error and told in last.message


def test_a_users_mistake_is_told_as_his(tmp_path):
    made = recipe(task__environment="no.such.module:Family")

    async def script(tell, hear):
        await hear(Failed)

    ((failed, _),) = talk(made, tmp_path, script)
    assert failed.error == "user" and failed.where == "task.environment"
    assert "cannot import no.such.module" in failed.message and "spelling" in failed.fix


def test_a_stop_is_heard_while_episodes_run_and_leaves_no_threads(tmp_path):
    made = recipe(task__limits__turn_tokens=64, task__limits__turns=8)

    async def script(tell, hear):
        tell(published(made, 0))
        await hear(Loaded)
        for order in orders(made, 1, members=8):
            tell(order)
        tell(Stop().frame())

    began = time.monotonic()
    said = talk(made, tmp_path, script)
    assert time.monotonic() - began < 20 and not any(type(m) is Failed for m, _ in said)
    assert kit.threads("environments", "pulse") == []


def test_a_hung_event_loop_and_a_slow_tool_look_different_in_the_beats(tmp_path):
    made = recipe(task__environment="worker_environments:SlowFamily")
    slow, hung = [], []

    async def script(tell, hear):
        tell(published(made, 0))
        await hear(Loaded)
        tell(orders(made, 0)[0])
        heard = len(await hear(Beat))
        slow.extend(m for m, _ in (await hear(Beat, heard + 3))[heard + 1 :])
        time.sleep(2.5)  # this is the worker's loop too
        hung.extend(m for m, _ in (await hear(Beat, heard + 5))[heard + 3 :])
        tell(Stop().frame())

    talk(made, tmp_path, script)
    assert all(beat.live == 1 and beat.loop_seconds < 1.0 for beat in slow)
    assert max(beat.loop_seconds for beat in hung) > 1.0
    assert all(beat.rss_bytes > 2**26 and beat.engine for beat in slow)
