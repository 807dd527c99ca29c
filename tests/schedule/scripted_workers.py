"""Workers without processes: a script decides what comes back, when, and who dies."""

import random
from dataclasses import dataclass, field

import builders
from hexad.contract.arrow import to_ipc
from hexad.contract.reward import Reward
from hexad.schedule.frame import Frame, decode, encode
from hexad.schedule.messages import Finished, Loaded, Play, Publish, Ready, Stop, read


def scripted_episode(play, versions, rng):
    """A legal episode of ``play`` under the newest of ``versions``, correct with even odds."""
    version, success = max(versions), rng.random() < 0.5
    return builders.episode(
        play.member,
        episode_id=play.episode_id,
        task_id=play.task_id,
        group_id=play.group_id,
        environment=play.environment,
        initial_state=f"state-{play.task_id}",
        segments=(builders.segment(version=version),),
        provenance=builders.provenance(versions=((version, versions[version]),)),
        verdict=builders.verdict("correct" if success else "wrong"),
        rewards=(Reward("task", float(success)),),
    )


def at_once(play, rng):
    """Every episode is ready at the next ``receive``."""
    return 1


@dataclass
class _Worker:
    versions: dict = field(default_factory=dict)
    plays: int = 0


class ScriptedWorkers:
    """A ``Backend`` in virtual time: one tick a ``receive``, or on to the next thing that happens.

    ``answer(play, versions, rng)`` gives the episode, or a ``Frame`` to send instead (a ``Paused``,
    a ``Failed``, junk), or ``None`` for a worker that never answers. ``versions`` maps what the
    worker has loaded to lineages. ``delay(play, rng)`` is the ticks until the answer comes.
    ``dies`` holds ``(slot, n)``: the worker of the slot dies on its n-th play since the start, n
    from 1, and loses what it had not answered. ``shuffle`` mixes what is due at one tick.
    Every frame passes through its encoded form, as it does between processes.
    """

    def __init__(
        self,
        answer=scripted_episode,
        *,
        seed=0,
        delay=at_once,
        dies=(),
        shuffle=False,
        digests=None,
    ):
        self.rng = random.Random(seed)
        self.answer, self.delay, self.dies, self.shuffle = answer, delay, set(dies), shuffle
        self.digests = {} if digests is None else dict(digests)
        self.now, self.starts, self.closed = 0, 0, False
        self.sent, self.workers, self._due, self._order = [], {}, [], 0

    def start(self, slot):
        assert slot not in self.workers and not self.closed
        self.starts += 1
        self.workers[slot] = _Worker()
        ready = Ready(digests=self.digests, seconds=0.1, pid=1000 + self.starts)
        self._later(slot, ready.frame(), 0)

    def send(self, slot, frame):
        frame = decode(encode(frame))
        self.sent.append((slot, frame))
        worker, message = self.workers.get(slot), read(frame)
        if worker is None:
            return
        if isinstance(message, Publish):
            worker.versions[message.version] = message.lineage
            self._later(slot, Loaded(version=message.version).frame(), 0)
        elif isinstance(message, Stop):
            self._gone(slot)
        else:
            self._play(slot, worker, message)

    def receive(self, timeout):
        if not self._due:
            return []
        self.now = max(self.now + 1, min(tick for tick, *_ in self._due))
        ready = [each for each in self._due if each[0] <= self.now]
        self._due = [each for each in self._due if each[0] > self.now]
        if self.shuffle:
            # Deaths stay last: nothing of a worker follows its end.
            self.rng.shuffle(ready)
            ready.sort(key=lambda each: each[3] is None)
        else:
            ready.sort(key=lambda each: each[:2])
        return [(slot, frame and decode(encode(frame))) for _, _, slot, frame in ready]

    def silent(self, slot):
        return 0.0

    def alive(self, slot):
        return slot in self.workers

    def kill(self, slot):
        if slot in self.workers:
            self._gone(slot)

    def said(self, slot):
        return f"the scripted worker {slot}"

    def close(self, seconds=5.0):
        self.closed = True
        self.workers.clear()
        self._due.clear()

    def _play(self, slot, worker, play: Play):
        worker.plays += 1
        if (slot, worker.plays) in self.dies:
            self.dies.discard((slot, worker.plays))
            self._gone(slot)
            return
        answer = self.answer(play, dict(worker.versions), self.rng)
        if answer is None:
            return
        if not isinstance(answer, Frame):
            done = Finished(episode_id=play.episode_id, lost=play.lost)
            answer = done.frame(bytes(to_ipc([answer])))
        self._later(slot, answer, self.delay(play, self.rng))

    def _gone(self, slot):
        del self.workers[slot]
        self._due = [each for each in self._due if each[2] != slot]
        self._later(slot, None, 0)

    def _later(self, slot, frame, ticks):
        self._order += 1
        self._due.append((self.now + ticks, self._order, slot, frame))
