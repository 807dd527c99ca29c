"""A world without a model: one character a token, an environment that a test can break."""

import asyncio
import time
from dataclasses import dataclass, field, replace

import numpy as np

from hexad.contract.digest import digest
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.messages import AssistantTurn, Message, Role, ToolSchema
from hexad.contract.reward import Reward
from hexad.contract.segment import ACTION_SPANS, Span, SpanKind
from hexad.contract.task import Split, Task
from hexad.contract.verdict import Verdict, VerdictStatus
from hexad.environments.protocol import Demonstration, Start, Step
from hexad.feedback.judge import Feedback
from hexad.policy.draw import uniforms
from hexad.policy.scripted import Reply, ScriptedEngine
from hexad.recipe.axes import LimitsSpec
from hexad.rollout.plan import plan_group
from hexad.rollout.world import PolicyIdentity, World

STOP, HEADER, CLOSE = 0, 1, 2


def ids_of(text, *tail):
    """int32 ids of a text, one a character."""
    return np.array([*map(ord, text), *tail], np.int32)


@dataclass(frozen=True)
class Rendered:
    """Ids and spans, as ``hexad.policy.chat.Rendered``."""

    ids: np.ndarray
    spans: tuple


@dataclass(frozen=True)
class Parsed:
    """A turn and its spans, as ``hexad.policy.chat.Parsed``."""

    turn: AssistantTurn
    spans: tuple


class ToyChat:
    """The Chat of one-character tokens; every turn is plain text."""

    def prompt(self, messages):
        return self._render(SpanKind.USER, messages, [], True)

    def follow(self, completion_ids, messages, *, header=True):
        close = [] if len(completion_ids) and completion_ids[-1] == STOP else [CLOSE]
        return self._render(SpanKind.OBSERVATION, messages, close, header)

    def parse(self, completion_ids):
        complete = bool(completion_ids[-1] == STOP)
        text = "".join(chr(i) for i in completion_ids.tolist() if i != STOP)
        span = Span(SpanKind.TEXT, "", 0, 0, len(completion_ids))
        return Parsed(AssistantTurn(text, complete=complete), (span,))

    def encode(self, turn):
        return ids_of(turn.content, STOP)

    def decode(self, segments):
        texts = []
        for segment in segments:
            for span in segment.spans:
                if span.kind in ACTION_SPANS:
                    ids = segment.ids[span.start : span.end].tolist()
                    texts.append("".join(chr(i) for i in ids if i != STOP))
        return tuple(Message(Role.ASSISTANT, text) for text in texts)

    def _render(self, kind, messages, close, header):
        pieces = [(SpanKind.TEMPLATE, close)]
        pieces += [(kind, ids_of(m.content).tolist()) for m in messages]
        pieces += [(SpanKind.TEMPLATE, [HEADER] if header else [])]
        ids, spans = [], []
        for name, piece in pieces:
            if piece:
                spans.append(Span(name, "", 0, len(ids), len(ids) + len(piece)))
                ids += piece
        return Rendered(np.array(ids, np.int32), tuple(spans))


class ToyEnvironment:
    """Answers ``ok`` to every turn and ends at a turn that starts with ``.``."""

    repeatable = True

    def __init__(self, family):
        self.family = family
        self.closed = False

    async def reset(self, task, seed):
        self.task, self.seed = task, seed
        self.family.seeds.append(seed)
        return Start((Message(Role.USER, task.data["text"]),), self.family.tools, digest(task.data))

    async def step(self, turn):
        if turn.content.startswith("."):
            return Step(ending=Ending.of(EndingKind.TERMINAL), rewards=(Reward("env", 1.0),))
        return Step((Message(Role.TOOL, "ok"),), tool_calls=1, tool_seconds=0.5)

    def state_digest(self):
        return None

    async def close(self):
        self.closed = True


@dataclass
class ToyFamily:
    """``make`` builds environments of class ``kind``; ``made`` keeps them all."""

    kind: type = ToyEnvironment
    name: str = "toy"
    digest: str = "toy-digest"
    tools: tuple = (ToolSchema("look", "Look."),)
    made: list = field(default_factory=list)
    seeds: list = field(default_factory=list)

    def tasks(self, split, count, *, offset=0):
        return [
            Task(f"toy:{i}", Split(split), {"text": f"t{i}"}) for i in range(offset, offset + count)
        ]

    def make(self):
        self.made.append(self.kind(self))
        return self.made[-1]

    def demonstration(self, task):
        return Demonstration(task, (AssistantTurn("a"), AssistantTurn(".")))


class ToyVerifier:
    """Correct when the episode terminated."""

    digest = "toy-verifier"

    def verify(self, task, episode, transcript):
        good = episode.ending.terminated and transcript[-1].content.startswith(".")
        return Verdict(VerdictStatus.CORRECT if good else VerdictStatus.WRONG, float(good))


class ToyMapping:
    """One component."""

    version = "toy/1"

    def rewards(self, verdict, episode):
        return (Reward("task", verdict.score),)


def say(text, **changes):
    """A reply that says ``text`` and stops."""
    return Reply([*map(ord, text), STOP], **changes)


def chatter(request):
    """A reply that depends on the request's key and position only: 1-4 letters or an end."""
    u = uniforms(request.key, len(request.ids), 6)
    if u[0] < 0.35:
        return say(".", logprobs=[-u[1], -u[2]])
    text = "".join(chr(97 + int(x * 26)) for x in u[2 : 3 + int(u[1] * 4)])
    return say(text, logprobs=[-float(x) for x in u[: len(text) + 1]])


def toy_world(script=chatter, kind=ToyEnvironment, **changes):
    """A world over a scripted engine."""
    engine = script if hasattr(script, "sample") else ScriptedEngine(script)
    limits = LimitsSpec(**{"turns": 6, "turn_tokens": 8, "context_tokens": 64})
    world = World(
        engine=engine,
        chat=ToyChat(),
        family=ToyFamily(kind),
        policy=PolicyIdentity("tokenizer", "template", "float32"),
        stop_ids=(STOP,),
        lineage=lambda version: f"lineage-{version}",
        feedback=Feedback(ToyVerifier(), ToyMapping()),
        limits=limits,
    )
    return replace(world, **changes)


def toy_plans(tasks=1, size=1, seed=0):
    """Plans of the first ``tasks`` train tasks."""
    found = ToyFamily().tasks(Split.TRAIN, tasks)
    return [
        plan
        for i, task in enumerate(found)
        for plan in plan_group(task, size, name=f"g{i}", seed=seed, environment="toy")
    ]


def untimed(episode):
    """The episode without its wall-clock facts."""
    return replace(episode, times=type(episode.times)())


async def nap(seconds):
    """Sleep off the engine's loop, as a slow tool would."""
    await asyncio.to_thread(time.sleep, seconds)
