from scripted_workers import ScriptedWorkers

from hexad.contract.arrow import from_ipc
from hexad.schedule import messages
from hexad.schedule.messages import Finished, Loaded, Play, Publish, Ready, Stop


def order(number, **changes):
    return Play(
        index=number, task_id=f"task-{number}", group_id=f"v0-{number}", member=0, seed=0,
        environment="calculator", episode_id=f"v0-{number}-0", **changes,
    ).frame()  # fmt: skip


def begun(**script):
    workers = ScriptedWorkers(**script)
    workers.start(0)
    workers.send(0, Publish(version=4, lineage="w4").frame(b"weights"))
    (_, ready), (_, loaded) = workers.receive(1.0)
    assert isinstance(messages.read(ready), Ready)
    assert messages.read(loaded) == Loaded(version=4)
    return workers


def test_scripted_workers_answer_after_their_delay_with_the_version_they_loaded():
    workers = begun(delay=lambda play, rng: 5 - play.index)
    for number in (1, 2, 3):
        workers.send(0, order(number, lost=number))
    found = []
    while batch := workers.receive(1.0):
        found += batch
    said = [messages.read(frame) for _, frame in found]
    assert said == [Finished(episode_id=f"v0-{n}-0", lost=n) for n in (3, 2, 1)]
    (episode,) = from_ipc(found[0][1].body)
    assert episode.provenance.versions == ((4, "w4"),) and episode.task_id == "task-3"


def test_a_scripted_death_loses_what_was_not_answered_and_is_told_once():
    workers = begun(dies=[(0, 2)], delay=lambda play, rng: 3)
    workers.send(0, order(1))
    workers.send(0, order(2))
    workers.send(0, order(3))
    assert workers.receive(1.0) == [(0, None)] and not workers.alive(0)
    assert workers.receive(1.0) == []
    workers.start(0)
    workers.send(0, Stop().frame())
    assert workers.receive(1.0) == [(0, None)]
