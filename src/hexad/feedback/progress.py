"""``remaining_operations``: how much of a calculator's expression is still to be done."""

from __future__ import annotations

from hexad.contract.faults import UserError, VerifierFault
from hexad.contract.messages import Message, Role
from hexad.contract.task import Task
from hexad.environments.arithmetic import ArithmeticFamily
from hexad.environments.expression import Expression
from hexad.environments.protocol import TaskFamily


class RemainingOperations:
    """Minus the share of operations that are not done yet: -1 at the start, 0 when all are.

    An operation is done when it was called with the right numbers, after all before it, and the
    tool gave its result. So it is a function of the executed calls, which are the state.
    """

    version = "remaining_operations/1"

    def __init__(self, family: TaskFamily) -> None:
        precedence = getattr(family, "precedence", None)
        if not isinstance(precedence, bool):
            raise UserError(
                f"remaining_operations reads expressions, and {family.name} has none",
                where="feedback.process",
                fix=f"use it with a calculator ({ArithmeticFamily.__name__}), or an own signal",
            )
        self._precedence = precedence

    def level(self, task: Task, transcript: tuple[Message, ...]) -> float:
        """-(operations left) / operations. Raises ``VerifierFault`` for a task without any."""
        text = task.data.get("expression")
        if not isinstance(text, str):
            raise VerifierFault(f"task {task.task_id} has no expression")
        operations = Expression.parse(text).solve(precedence=self._precedence)
        done, waiting = 0, []
        for message in transcript:
            if message.role is Role.ASSISTANT:
                waiting = list(message.tool_calls)
            if message.role is not Role.TOOL or not waiting or done == len(operations):
                continue
            call, due = waiting.pop(0), operations[done]
            right = dict(call.arguments) == {"a": due.a, "op": due.op, "b": due.b}
            done += right and message.content.strip() == str(due.result)
        return (done - len(operations)) / len(operations)
