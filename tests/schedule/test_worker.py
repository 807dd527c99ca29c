"""The worker without a transport, in this process."""

import asyncio
import time

import pytest
import worker_kit as kit
from worker_kit import orders, plans, published, recipe

from hexad.contract.arrow import from_ipc
from hexad.rollout.collect import collect
from hexad.rollout.entries import Restarted
from hexad.rollout.log import EpisodeLog
from hexad.schedule import messages
from hexad.schedule.frame import Frame
from hexad.schedule.messages import Beat, Failed, Finished, Loaded, Lost, Paused, Play, Ready, Stop
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


def test_plans_beyond_the_rows_wait_also_while_no_row_samples(tmp_path):
    made = recipe(task__environment="worker_environments:SlowFamily", system__engine_rows=2)

    async def script(tell, hear):
        tell(published(made, 0))
        for order in orders(made, 0, members=5):
            tell(order)
        await hear(Loaded)
        heard = len(await hear(Beat))
        (beat, _) = (await hear(Beat, heard + 2))[-1]
        tell(Stop().frame())
        assert (beat.live, beat.waiting) == (2, 3)

    talk(made, tmp_path, script)


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


def test_an_episode_that_was_cut_anywhere_goes_on_from_its_log_as_if_it_had_not_been(tmp_path):
    made = recipe()
    expected = collect(plans(made, 3), kit.world(made))[0]

    async def begin(tell, hear):
        tell(published(made, 0))
        tell(orders(made, 3)[0])
        await hear(Finished)
        tell(Stop().frame())

    talk(made, tmp_path, begin)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    assert path.name == "v0-3-0.arrows"
    for cut in (0, 10, len(whole) // 2, len(whole) - 1, len(whole)):

        async def resume(tell, hear, log=whole[:cut]):
            tell(published(made, 0))
            (frame,) = orders(made, 3, lost=4)
            tell(Frame(frame.head, log))
            await hear(Finished)
            tell(Stop().frame())

        ((done, body),) = [e for e in talk(made, tmp_path, resume) if type(e[0]) is Finished]
        assert done.lost == 4 and kit.same(from_ipc(body)[0], expected)


def test_a_paused_episode_comes_back_as_its_log_and_goes_on_with_newer_weights(tmp_path):
    made = recipe()

    async def pause(tell, hear):
        tell(published(made, 3))
        tell(orders(made, 3, pause_after=5)[0])
        await hear(Paused)
        tell(Stop().frame())

    ((paused, log),) = [e for e in talk(made, tmp_path, pause) if type(e[0]) is Paused]
    assert paused == Paused(episode_id="v0-3-0", lost=0)
    assert (EpisodeLog.read(log).sampled_tokens, EpisodeLog.read(log).newest_version) == (5, 3)

    async def resume(tell, hear):
        tell(published(made, 4, scale=1.5))
        (frame,) = orders(made, 3, lineage={3: "weights-3"})
        tell(Frame(frame.head, log))
        await hear(Finished)
        tell(Stop().frame())

    ((_, body),) = [e for e in talk(made, tmp_path, resume) if type(e[0]) is Finished]
    (episode,) = from_ipc(body)
    assert episode.provenance.versions == ((3, "weights-3"), (4, "weights-4"))
    (segment,) = episode.segments
    versions = segment.version[segment.action].tolist()
    assert versions == sorted(versions) and versions.count(3) == 5


def test_an_episode_never_goes_on_with_older_weights(tmp_path):
    made = recipe()

    async def pause(tell, hear):
        tell(published(made, 3))
        tell(orders(made, 3, pause_after=5)[0])
        await hear(Paused)
        tell(Stop().frame())

    log = talk(made, tmp_path, pause)[-1][1]

    async def resume(tell, hear):
        tell(published(made, 2))
        (frame,) = orders(made, 3)
        tell(Frame(frame.head, log))

    (failed, _) = talk(made, tmp_path, resume)[-1]
    assert failed.error == "bug" and "sampled by version 3 and is to go on with 2" in failed.message


@pytest.mark.parametrize("repeatable", [True, False])
def test_what_cannot_go_on_is_counted_lost_and_tried_again_only_if_a_reset_undoes_it(
    tmp_path, repeatable
):
    kind = "Unforkable" if repeatable else "Lasting"
    made = recipe(task__environment=f"worker_environments:{kind}Family")

    async def pause(tell, hear):
        tell(published(made, 0))
        tell(orders(made, 3, pause_after=5)[0])
        await hear(Paused)
        tell(Stop().frame())

    log = talk(made, tmp_path, pause)[-1][1]

    async def resume(tell, hear):
        tell(published(made, 0))
        (frame,) = orders(made, 3, lost=2)
        tell(Frame(frame.head, log))
        await hear(Finished if repeatable else Lost)
        tell(Stop().frame())

    (last, body) = talk(made, tmp_path, resume)[-1]
    assert last.lost == 2 + 5
    if repeatable:
        assert from_ipc(body)[0].costs.sampled_tokens > 5
    else:
        assert type(last) is Lost and last.reason


def test_no_death_after_a_restart_forgets_what_was_lost(tmp_path):
    """Wherever the second play is cut, all that was ever sampled is in the episode or lost."""
    made = recipe(task__environment="worker_environments:UnforkableFamily")
    path, seen = tmp_path / "v0-3-0.arrows", []

    async def play(tell, hear):
        def go_on(log, **changes):
            (frame,) = orders(made, 3, **changes)
            tell(Frame(frame.head, log))

        tell(published(made, 0))
        go_on(b"", pause_after=5)
        go_on((await hear(Paused))[0][1], pause_after=7)  # which restarts it, as forks fail
        go_on((await hear(Paused, 2))[1][1])  # and again
        ((done, _),) = await hear(Finished)
        assert done.lost == 5 + 7
        entries = EpisodeLog.read(path.read_bytes()).entries()
        for end in range(1 + entries.index(Restarted()), 1 + len(entries)):
            cut = EpisodeLog.create()
            for entry in entries[:end]:
                cut.append(entry)
            go_on(cut.data(), lost=2)
            done, body = (await hear(Finished, len(seen) + 2))[-1]
            whole = path.read_bytes()
            assert whole.startswith(cut.data())
            seen.append((done.lost, from_ipc(body)[0].costs, EpisodeLog.read(whole)))
        tell(Stop().frame())

    talk(made, tmp_path, play)
    for lost, costs, log in seen:
        assert lost + costs.sampled_tokens + costs.lost_tokens == 2 + log.sampled_tokens
        assert lost >= 2 + 5
    assert len(seen) >= 8 and {lost for lost, *_ in seen} == {2 + 5, 2 + 5 + 7}


@pytest.mark.parametrize("refresh", ["at_episode", "at_turn", "in_flight"])
def test_a_running_episode_takes_new_weights_when_the_recipe_says(tmp_path, refresh):
    made = recipe(
        task__limits__turn_tokens=400, task__limits__context_tokens=500, timing__refresh=refresh
    )

    async def script(tell, hear):
        tell(published(made, 0))
        tell(orders(made, 3)[0])
        path = tmp_path / "v0-3-0.arrows"
        while not path.exists() or len(EpisodeLog.read(path.read_bytes()).entries()) < 2:
            await asyncio.sleep(0)
        for _ in range(20):  # some tokens of the first turn, one each
            await asyncio.sleep(0)
        tell(published(made, 1, scale=1.01))
        tell(published(made, 2, scale=1.02))
        await hear(Loaded, 3)
        tell(orders(made, 4)[0])
        await hear(Finished, 2)
        tell(Stop().frame())

    said = talk(made, tmp_path, script)
    found = {e.group_id: e for m, body in said if type(m) is Finished for e in from_ipc(body)}
    versions = [v for v, _ in found["v0-3"].provenance.versions]
    assert versions[0] == 0 and versions[-1] == (2 if refresh == "in_flight" else 0)
    assert [v for v, _ in found["v0-4"].provenance.versions] == [2]
    assert [m.version for m, _ in said if type(m) is Loaded] == [0, 1, 2]
