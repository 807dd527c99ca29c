"""Real workers for tests: a small recipe, its first weights, and orders to play."""

import asyncio
import os
import signal
import threading
import time
from contextlib import ExitStack
from dataclasses import replace

from hexad.contract.arrow import to_ipc
from hexad.contract.episode import Times
from hexad.contract.task import Split
from hexad.environments.registry import family
from hexad.policy.local import LocalEngine
from hexad.recipe.axes import Recipe
from hexad.rollout.build import policy_of, world_of
from hexad.rollout.plan import plan_group
from hexad.schedule import messages
from hexad.schedule.messages import Beat, Play, Publish, Ready
from hexad.schedule.weights import pack, unpack

PATIENCE = 240.0


def recipe(**changes):
    """Tiny policy, calculator, short turns, two rows; ``changes`` are dotted keys, ``__`` a dot."""
    tree = Recipe().model_dump(mode="json")
    usual = {"task__limits__turn_tokens": 12, "task__limits__turns": 2, "system__engine_rows": 2}
    for key, value in (usual | changes).items():
        *path, last = key.split("__")
        section = tree
        for name in path:
            section = section[name]
        section[last] = value
    return Recipe.model_validate(tree)


def published(made, version, scale=1.0):
    """The publish frame of ``version``: the recipe's first weights, the head times ``scale``."""
    policy = policy_of(made)
    weights = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    for tensor in weights.values():
        tensor.mul_(scale)
    return Publish(version=version, lineage=f"weights-{version}").frame(pack(weights))


def plans(made, index, members=1, version=0):
    """Plans to try train task number ``index``."""
    tasks = family(made.task.environment, made.task.options)
    (task,) = tasks.tasks(Split.TRAIN, 1, offset=index)
    name = f"v{version}-{index}"
    return plan_group(task, members, name=name, seed=0, environment=tasks.name)


def orders(made, index, members=1, **changes):
    """Frames that ask for these plans."""
    return [Play.of(plan, index, **changes).frame() for plan in plans(made, index, members)]


class Talk:
    """Reads what the workers of a backend say."""

    def __init__(self, backend):
        self.backend, self.heard, self.beats = backend, [], []

    def wait(self, slot, kind, seconds=PATIENCE):
        """The next message of ``kind`` from ``slot`` and its body; ``None`` waits for its end."""
        deadline = time.monotonic() + seconds
        while True:
            for place, (sender, frame) in enumerate(self.heard):
                message = frame and messages.read(frame)
                if sender == slot and (message is None if kind is None else type(message) is kind):
                    del self.heard[place]
                    return message, frame and frame.body
                wrong = message is None or type(message) is messages.Failed
                if sender == slot and wrong:
                    raise AssertionError(f"{message}\n{self.backend.said(slot)}")
            left = deadline - time.monotonic()
            assert left > 0, f"no {kind} from worker {slot}: {self.backend.said(slot)}"
            self.collect(left)

    def collect(self, seconds=1.0):
        """Take in what arrives next; beats apart."""
        for sender, frame in self.backend.receive(seconds):
            if frame is not None and frame.head["kind"] == Beat.kind:
                self.beats.append((sender, messages.read(frame)))
            else:
                self.heard.append((sender, frame))

    def begin(self, slot, made, version=0):
        """Start the worker of ``slot`` and let it load ``version``."""
        self.backend.start(slot)
        ready, _ = self.wait(slot, Ready)
        self.backend.send(slot, published(made, version))
        self.wait(slot, messages.Loaded)
        return ready


def running(pid):
    """Whether the process ``pid`` runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def gone(pid, seconds=10.0):
    """Whether ``pid`` ends within ``seconds``."""
    deadline = time.monotonic() + seconds
    while running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not running(pid)


def until(path, seconds=PATIENCE):
    """The number in the file ``path``, once it is there."""
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline, path
        time.sleep(0.02)
    return int(path.read_text())


def stop_process(pid):
    """Freeze it: it is there and says nothing."""
    os.kill(pid, signal.SIGSTOP)


def world(made, version=0, scale=1.0, held=None):
    """The world of a synchronous run of ``made`` after the same publish."""
    policy = policy_of(made)
    policy.model.load_state_dict(unpack(published(made, version, scale).body))
    engine = LocalEngine(policy, rows=made.system.engine_rows)
    asyncio.run(engine.publish(None, version))
    return world_of(made, policy, engine, "weights-{}".format, held or ExitStack())


def same(left, right):
    """Whether two episodes are the same bits, times apart."""
    blank = [to_ipc([replace(each, times=Times())]) for each in (left, right)]
    return bytes(blank[0]) == bytes(blank[1])


def threads(*names):
    """Names of the live threads that begin with one of ``names``."""
    return [t.name for t in threading.enumerate() if t.name.startswith(names)]
