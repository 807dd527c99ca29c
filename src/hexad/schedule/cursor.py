"""Which tasks and which stored items come next: pure functions of a cursor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hexad.contract.faults import UserError
from hexad.contract.task import Split, Task
from hexad.environments.protocol import Finite, TaskFamily


def train_limit(family: TaskFamily, count: int | None) -> int | None:
    """After how many train tasks the data ends: ``count``, else what the family itself says.

    ``None`` where neither is given. Raises ``UserError`` for a count beyond the family's, and for a
    family that does not answer with a number of tasks.
    """
    size = family.task_count(Split.TRAIN) if isinstance(family, Finite) else None
    if size is None:
        return count
    if type(size) is not int or size < 1:
        raise UserError(
            f"{family.name} says that it has {size!r} train tasks",
            where=f"{type(family).__name__}.task_count",
            fix="return a positive number, or None where tasks never end",
        )
    if count is not None and count > size:
        raise UserError(
            f"{count} train tasks are wanted, {family.name} has {size}",
            where="task.train.count",
            fix=f"lower it to at most {size}, or leave it out",
        )
    return size if count is None else count


def train_tasks(family: TaskFamily, limit: int | None, cursor: int, count: int) -> Sequence[Task]:
    """Train tasks number ``cursor`` to ``cursor + count``, fewer where ``limit`` ends them.

    Raises ``UserError`` if the family hands out a task of another split: sources accept only train
    tasks.
    """
    if limit is not None:
        count = min(count, limit - cursor)
    if count <= 0:
        return ()
    tasks = family.tasks(Split.TRAIN, count, offset=cursor)
    for task in tasks:
        if task.split is not Split.TRAIN:
            raise UserError(
                f"task {task.task_id} of split {task.split} was handed out as a train task; "
                "sources accept only train tasks",
                where=f"{type(family).__name__}.tasks",
                fix="return tasks of the split that was asked for",
            )
    if len(tasks) != count:
        raise UserError(
            f"{count} train tasks were asked for, {len(tasks)} came",
            where=f"{type(family).__name__}.tasks",
            fix="say how many there are with task_count, or set task.train.count",
        )
    return tasks


def shuffled(size: int, seed: int, epoch: int) -> list[int]:
    """The order of ``size`` items in pass number ``epoch``: a permutation by counter.

    It depends on the three arguments alone, so a resumed run needs no generator state.
    """
    generator = np.random.Generator(np.random.Philox(key=[seed, epoch]))
    return [int(index) for index in generator.permutation(size)]


def next_indices(size: int, seed: int, position: int, count: int) -> list[int]:
    """Indices of the next batch at ``position`` items consumed, at most ``count``.

    A batch never crosses the end of a pass, so it never holds an item twice.
    """
    epoch, place = divmod(position, size)
    return shuffled(size, seed, epoch)[place : place + count]
