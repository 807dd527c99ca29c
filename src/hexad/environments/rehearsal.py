"""Scripted policies that try a task's card out: does it end as it says, is what it forbids held?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from hexad.contract.ending import Ending
from hexad.contract.faults import UserError
from hexad.contract.messages import AssistantTurn, ToolCall
from hexad.contract.refusal import Refusal
from hexad.contract.task import Task
from hexad.environments.guard import uncontained
from hexad.environments.permission import Approval, Guard
from hexad.environments.protocol import TaskFamily
from hexad.environments.task_card import card_of

SEED = 0
_UNREADABLE = ToolCall("", {}, "not a call")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Script:
    """A policy that says ``turns`` and then, if ``endless``, the last one for ever.

    ``held``: each of its calls must be refused.
    """

    name: str
    turns: tuple[AssistantTurn, ...]
    endless: bool = False
    held: bool = False


def scripts(family: TaskFamily, task: Task, guard: Guard | None) -> list[Script]:
    """The scripts that can be played without harm.

    The expert's own only where a reset undoes every tool; a refused call never reaches a tool.
    """
    found = [
        Script("answers nothing", (AssistantTurn(""),)),
        Script("never stops", (AssistantTurn("", (_UNREADABLE,)),), endless=True),
    ]
    if not uncontained(family):
        try:
            found.insert(0, Script("the expert", family.demonstration(task).turns))
        except UserError:
            pass  # a family without an expert says so
    for each in guard.forbidden if guard is not None else ():
        call = ToolCall(each.tool, dict(each.arguments))
        turns = (AssistantTurn("", (call,)), AssistantTurn(""))
        found.append(Script(f"calls {each.text}", turns, held=True))
    for tool in sorted(guard.approval.tools) if guard is not None and guard.approval else ():
        turns = (AssistantTurn("", (ToolCall(tool, {}),)), AssistantTurn(""))
        found.append(Script(f"calls {tool} unapproved", turns, held=True))
    return found


def rehearse(family: TaskFamily, task: Task, guard: Guard | None, limit: int) -> Row:
    """The card, and how each script's episode of at most ``limit`` turns went, as JSON.

    ``kept`` is false where an episode ended in a way that the card does not name, or where a call
    that must be held was not. Nobody is asked to approve anything: every such call is denied.
    """
    card = card_of(family)
    if guard is not None and guard.approval is not None:
        guard = replace(guard, approval=Approval(guard.approval.tools, lambda asked: False, 1.0))
    rows = [
        asyncio.run(_play(family, task, guard, script, limit))
        for script in scripts(family, task, guard)
    ]
    for row in rows:
        ending = row["ending"]
        named = card is None or ending is None or ending in [str(kind) for kind in card.endings]
        row["kept"] = named and (not row["held"] or (bool(row["refused"]) and row["untouched"]))
    return {"card": None if card is None else card.row(), "scripts": rows}


async def _play(
    family: TaskFamily, task: Task, guard: Guard | None, script: Script, limit: int
) -> Row:
    environment = family.make()
    refused: list[Refusal] = []
    ending: Ending | None = None
    played, untouched = 0, True
    try:
        await environment.reset(task, SEED)
        for turn in islice(_said(script, limit), limit):
            played += 1
            before = environment.state_digest()
            review = None if guard is None else await guard.review(task, played - 1, turn)
            if review is not None and review.refusals:
                refused += review.refusals
                untouched = untouched and environment.state_digest() == before
                continue
            if (ending := (await environment.step(turn)).ending) is not None:
                break
    finally:
        await environment.close()
    return {
        "script": script.name,
        "turns": played,
        "ending": None if ending is None else str(ending.kind),
        "refused": [str(refusal.reason) for refusal in refused],
        "untouched": untouched,
        "held": script.held,
    }


def _said(script: Script, limit: int) -> Sequence[AssistantTurn]:
    return script.turns + (script.turns[-1],) * (limit if script.endless else 0)
