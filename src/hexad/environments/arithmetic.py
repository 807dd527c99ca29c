"""What both calculator families share: options, tasks, environments and demonstrations."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field, field_validator, model_validator

from hexad.contract.digest import code_digest
from hexad.contract.ending import EndingKind
from hexad.contract.faults import UserError
from hexad.contract.messages import AssistantTurn, Message, ToolCall, ToolSchema
from hexad.contract.task import Split, Task
from hexad.environments import conversation, expression, schema, stream, toolbox, tools
from hexad.environments.advice import is_right
from hexad.environments.conversation import ToolConversation
from hexad.environments.expression import BOUND, Expression, Grammar, Operation
from hexad.environments.options import Options, read_splits
from hexad.environments.protocol import Demonstration
from hexad.environments.stream import ExpressionStream
from hexad.environments.task_card import TaskCard
from hexad.environments.toolbox import ToolBox
from hexad.environments.tools import Effect, Tool, ToolError

LONGEST = 12
"""Most operations that an expression may have."""
_COMMUTES = "+*"


def operate(a: int, op: str, b: int, operators: str) -> int:
    """The value of one operation. Raises ``ToolError`` for what the policy cannot have."""
    if op not in tuple(operators):
        raise ToolError(f"op must be one of {' '.join(operators)}")
    if max(abs(a), abs(b)) > BOUND:
        raise ToolError(f"numbers must be within {BOUND}")
    try:
        result = Operation(a, op, b).result
    except ArithmeticError as error:
        raise ToolError(str(error)) from error
    if abs(result) > BOUND:
        raise ToolError(f"the result is beyond {BOUND}")
    return result


class ArithmeticOptions(Options):
    """What expressions a split holds."""

    operations: dict[int, float] = Field(default={1: 0.2, 2: 0.4, 3: 0.4})
    """Share of the expressions with so many operations; shares need not add up to 1."""
    low: int = Field(default=1, ge=0)
    """Smallest operand."""
    high: int = Field(default=9, le=BOUND)
    """Largest operand."""
    operators: tuple[str, ...] = ("+", "-", "*")
    """Operators, all equally likely: a list, or a text such as "+-"."""
    seed: int = 0
    """Order of the training tasks. The other splits never depend on a seed."""
    mistakes: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the demonstrations in which the expert makes one wrong call, of loss weight 0, and
    then goes on rightly. Which ones depends on the task alone."""

    @field_validator("operators", mode="before")
    @classmethod
    def _split_text(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, str) else value

    @field_validator("operators")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        allowed = cls.model_fields["operators"].default
        if not value or len(set(value)) != len(value) or not set(value) <= set(allowed):
            raise ValueError(f"operators are distinct and among {' '.join(allowed)}")
        return value

    @field_validator("operations")
    @classmethod
    def _shares(cls, value: dict[int, float]) -> dict[int, float]:
        if not all(1 <= count <= LONGEST and 0 <= w < float("inf") for count, w in value.items()):
            raise ValueError(f"operations maps 1..{LONGEST} to shares of at least 0")
        if not sum(value.values()) > 0:
            raise ValueError("at least one share of operations must be positive")
        return value

    @model_validator(mode="after")
    def _range(self) -> ArithmeticOptions:
        if self.low > self.high:
            raise ValueError(f"low is {self.low} but high is {self.high}")
        return self


class ArithmeticFamily:
    """Tasks are expressions; a subclass says how they are read and with which tool.

    The question is the bare expression; ``task.data`` holds ``expression``, and for the verifier
    ``answer``, which the environment never shows. Raises ``UserError`` for bad options.
    """

    name: str
    version: str
    verifier = "answer"
    """Name of the verifier for training, in the feedback registry."""
    evaluation_verifier: str
    """Name of the independent verifier for evaluation."""
    stratum = "operations"
    """Key of a task's data by which evaluations break success down."""
    task_card = TaskCard(endings=(EndingKind.TERMINAL,))
    precedence: bool
    options: type[ArithmeticOptions] = ArithmeticOptions
    tool: Tool

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        split_options: Mapping[str, Mapping[str, Any]] | None = None,
        workers: int = 4,
    ) -> None:
        own = split_options or {}
        for split in Split:
            if split is not Split.TRAIN and "seed" in own.get(split.value, {}):
                where = f"task.{split.value}.options.seed"
                raise UserError("only training depends on a seed", where=where, fix="remove it")
        self._options = read_splits(self.options, options or {}, own)
        self._toolbox = ToolBox([self.tool], workers=workers)
        self._streams = {split: self._stream(split) for split in Split}

    @functools.cached_property
    def digest(self) -> str:
        """Digest of version, options without the seed, tools, and the source that matters."""
        splits = {
            split.value: options.model_dump(mode="json", exclude={"seed"})
            for split, options in self._options.items()
        }
        config = {"splits": splits, "tools": self._toolbox.digest}
        shared = (sys.modules[__name__], conversation, expression, stream, schema, toolbox, tools)
        return code_digest(self.name, self.version, config, type(self), *shared)

    @property
    def tools(self) -> tuple[ToolSchema, ...]:
        """The one tool."""
        return self._toolbox.schemas

    @property
    def effects(self) -> Mapping[str, Effect]:
        """The effect class of the tool."""
        return self._toolbox.effects

    def tasks(self, split: Split, count: int, *, offset: int = 0) -> Sequence[Task]:
        """Tasks ``offset`` to ``offset + count``; different unless training has used all up.

        Raises ``UserError`` when a finite split holds fewer.
        """
        return [self._task(split, drawn) for drawn in self._streams[split].take(offset, count)]

    def make(self) -> ToolConversation:
        """A fresh environment."""
        return ToolConversation(self._toolbox, "expression")

    def demonstration(self, task: Task) -> Demonstration:
        """One call an operation, in the order of evaluation, then the bare number.

        With the option ``mistakes`` one call may come before, on a number that is 1 too large: its
        result is wrong, and the next turn makes the right call.
        """
        operations = self._solved(task)
        turns = [self._call(done) for done in operations]
        turns.append(AssistantTurn(str(operations[-1].result)))
        weights = [1.0] * len(turns)
        draw = random.Random(f"mistake {task.task_id}")
        if draw.random() < self._options[task.split].mistakes:
            at = draw.randrange(len(operations))
            turns.insert(at, self._call(replace(operations[at], a=operations[at].a + 1)))
            weights.insert(at, 0.0)
        return Demonstration(task, tuple(turns), tuple(weights))

    def advice(self, task: Task, transcript: Sequence[Message]) -> tuple[AssistantTurn, ...]:
        """The next call, either way round where the operator allows it; then the value.

        The next operation is the first that was not called in its order: what a wrong call said
        changes nothing. Who knows the value may say it at any time.
        """
        operations = self._solved(task)
        called = (call for message in transcript for call in message.tool_calls)
        place = 0
        for call in called:
            turn = AssistantTurn("", (call,))
            if place < len(operations) and is_right(turn, self._calls(operations[place])):
                place += 1
        answer = AssistantTurn(str(operations[-1].result))
        return (*self._calls(operations[place]), answer) if place < len(operations) else (answer,)

    def _solved(self, task: Task) -> tuple[Operation, ...]:
        return Expression.parse(task.data["expression"]).solve(precedence=self.precedence)

    def _calls(self, done: Operation) -> tuple[AssistantTurn, ...]:
        """The calls that do an operation, the usual one first."""
        swapped = Operation(done.b, done.op, done.a)
        alike = done.op in _COMMUTES and done.a != done.b
        return (self._call(done), *((self._call(swapped),) if alike else ()))

    def _call(self, done: Operation) -> AssistantTurn:
        call = ToolCall(self.tool.name, {"a": done.a, "op": done.op, "b": done.b})
        return AssistantTurn("", (call,))

    def close(self) -> None:
        """Release the threads of the tools."""
        self._toolbox.close()

    def _stream(self, split: Split) -> ExpressionStream:
        options = self._options[split]
        grammar = Grammar(options.low, options.high, options.operators, self.precedence)
        seed = options.seed if split is Split.TRAIN else 0
        return ExpressionStream(grammar, split, options.operations, seed)

    def _task(self, split: Split, drawn: Expression) -> Task:
        answer = drawn.solve(precedence=self.precedence)[-1].result
        data = {"expression": drawn.text, "answer": answer, "operations": len(drawn.operators)}
        return Task(f"{self.name}:{drawn.text}", split, data)
