"""What the source and its workers say to each other, typed; a message is the header of a frame.

To a worker: ``Start`` (body: the recipe), ``Publish`` (weights), ``Play`` (the log of an episode
that goes on, or nothing), ``Stop``. From a worker: ``Ready``, ``Loaded``, ``Finished`` (the episode
as Arrow IPC), ``Paused`` (its log), ``Lost``, ``Beat``, ``Failed``. Frames arrive in order.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from hexad.contract.task import Task
from hexad.rollout.plan import EpisodePlan
from hexad.schedule.frame import Frame, FrameError


class Message(BaseModel):
    """Fields of a header, beside ``kind``."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: ClassVar[str]

    def frame(self, body: bytes = b"") -> Frame:
        """The message as a frame with ``body``."""
        return Frame({"kind": self.kind} | self.model_dump(mode="json"), body)


class Start(Message):
    """The first frame of all: the body is the resolved recipe, ``wal`` the folder of the logs.

    ``paths`` are folders that the trainer finds modules in; an actor looks there last.
    """

    kind: ClassVar[str] = "start"
    wal: str
    paths: tuple[str, ...] = ()


class Publish(Message):
    """New weights: ``version`` of the policy, whose ``lineage`` digest they have."""

    kind: ClassVar[str] = "publish"
    version: NonNegativeInt
    lineage: str


class Play(Message):
    """Play train task number ``index`` as the plan that the other fields name.

    The worker takes the task from its own environment and checks it by ``task_id``. ``pause_after``
    sampled tokens of this sitting the episode is paused; ``None`` never. ``lost`` tokens were
    sampled for it before and are gone; the answer carries them on. ``lineage`` has the digests of
    the versions in the log that comes along: they may be older than the worker.
    """

    kind: ClassVar[str] = "play"
    index: NonNegativeInt
    task_id: str
    group_id: str
    member: NonNegativeInt
    seed: NonNegativeInt
    environment: str
    episode_id: str
    pause_after: PositiveInt | None = None
    lost: NonNegativeInt = 0
    lineage: dict[int, str] = {}

    @classmethod
    def of(cls, plan: EpisodePlan, index: int, **rest: Any) -> Play:
        """The order to play ``plan``, whose task is train task number ``index``.

        ``rest`` are the fields that no plan has.
        """
        return cls(
            index=index,
            task_id=plan.task.task_id,
            group_id=plan.group_id,
            member=plan.member,
            seed=plan.seed,
            environment=plan.environment,
            episode_id=plan.episode_id,
            **rest,
        )

    def plan(self, task: Task) -> EpisodePlan:
        """The plan, with ``task`` from the worker's own environment."""
        return EpisodePlan(
            task, self.group_id, self.member, self.seed, self.environment, self.episode_id
        )


class Stop(Message):
    """End: close environments and verifier, then the worker."""

    kind: ClassVar[str] = "stop"


class Ready(Message):
    """The worker has built everything; ``digests`` by part, ``seconds`` since it began."""

    kind: ClassVar[str] = "ready"
    digests: dict[str, str]
    seconds: float
    pid: int


class Loaded(Message):
    """The worker samples from ``version``."""

    kind: ClassVar[str] = "loaded"
    version: NonNegativeInt


class Finished(Message):
    """An episode ended and was judged. ``lost``: its sampled tokens that are in no episode."""

    kind: ClassVar[str] = "episode"
    episode_id: str
    lost: NonNegativeInt


class Paused(Message):
    """An episode sampled its tokens of this sitting; the body is its log."""

    kind: ClassVar[str] = "paused"
    episode_id: str
    lost: NonNegativeInt


class Lost(Message):
    """An episode can neither go on nor be tried again, for ``reason``: ``lost`` tokens are gone.

    It did, or may have done, something that a reset does not undo.
    """

    kind: ClassVar[str] = "lost"
    episode_id: str
    lost: NonNegativeInt
    reason: str


class Beat(Message):
    """A sign of life, every second, from a thread of its own.

    ``live`` episodes are played, ``waiting`` plans are not begun. The event loop answered
    ``loop_seconds`` ago: a large number is a loop that hangs, not a slow tool. ``busy_seconds`` is
    processor time since the start, ``rss_bytes`` resident memory; ``engine`` are its counters.
    """

    kind: ClassVar[str] = "beat"
    live: NonNegativeInt
    waiting: NonNegativeInt
    version: int
    loop_seconds: float
    busy_seconds: float
    rss_bytes: NonNegativeInt
    engine: dict[str, int]


class Failed(Message):
    """The worker ends by an error: the ``user``'s, or a ``bug`` of ours with its traceback."""

    kind: ClassVar[str] = "failed"
    error: Literal["user", "bug"]
    message: str
    where: str = ""
    fix: str = ""


_ALL = (Start, Publish, Play, Stop, Ready, Loaded, Finished, Paused, Lost, Beat, Failed)
_KINDS: dict[str, type[Message]] = {each.kind: each for each in _ALL}


def read(frame: Frame) -> Message:
    """The message of ``frame``. Raises ``FrameError`` for an unknown kind and for wrong fields."""
    fields = dict(frame.head)
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise FrameError(f"a message of unknown kind {kind!r}")
    try:
        return _KINDS[kind].model_validate_json(json.dumps(fields), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise FrameError(f"a message {kind}: {place}: {first['msg']}") from error
