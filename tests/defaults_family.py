"""Families whose tools have arguments that a call may leave out."""

import enum
import os
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator

from hexad.contract.ending import EndingKind
from hexad.contract.messages import AssistantTurn, ToolCall
from hexad.contract.task import Split, Task
from hexad.environments.conversation import ToolConversation
from hexad.environments.protocol import Demonstration
from hexad.environments.task_card import TaskCard
from hexad.environments.toolbox import ToolBox
from hexad.environments.tools import Effect, tool

DONE = []
LOG = "HEXAD_TEST_SENT"
"""Name of the variable that holds the file which a message leaves a line in."""


class Mode(enum.Enum):
    SOFT = "soft"
    HARD = "hard"


class How(BaseModel):
    force: bool = True
    depth: int = 3


@tool(effect=Effect.REVERSIBLE, isolated=False)
def delete(path: str, force: bool = True) -> str:
    """Delete a file."""
    DONE.append((path, force))
    return "deleted"


@tool(effect=Effect.REVERSIBLE, isolated=False)
def wipe(
    how: How = How(),  # noqa: B008
    mode: Mode = Mode.HARD,
    name: Annotated[str, BeforeValidator(str.lower)] = "disk",
) -> str:
    """Wipe a disk."""
    DONE.append((how, mode, name))
    return "wiped"


class Files:
    """Tools as JSON schemas say; the expert deletes the file, softly, and answers."""

    name = "files"
    digest = "files-1"
    tools_ = (delete, wipe)

    def __init__(self, options=None, split_options=None, workers=1):
        self.box = ToolBox(self.tools_)

    @property
    def tools(self):
        return self.box.schemas

    def tasks(self, split, count, *, offset=0):
        each = range(offset, offset + count)
        return [Task(f"file-{i}", Split(split), {"file": f"/f{i}", "answer": 1}) for i in each]

    def make(self):
        return ToolConversation(self.box, "file")

    def demonstration(self, task):
        soft = ToolCall("delete", {"path": task.data["file"], "force": False})
        return Demonstration(task, (AssistantTurn("", (soft,)), AssistantTurn("1")))


class TypedFiles(Files):
    """The same, and what its tools are."""

    @property
    def functions(self):
        return {each.name: each for each in self.tools_}


@tool(effect=Effect.IRREVERSIBLE, isolated=False)
def send(text: str) -> str:
    """Send a message that nobody can call back."""
    with Path(os.environ[LOG]).open("a") as file:
        file.write(text + "\n")
    return "sent"


class Mail(Files):
    """Whoever plays may send mail."""

    name = "mail"
    digest = "mail-1"
    tools_ = (send,)
    effects = {"send": Effect.IRREVERSIBLE}  # noqa: RUF012

    def demonstration(self, task):
        call = ToolCall("send", {"text": task.data["file"]})
        return Demonstration(task, (AssistantTurn("", (call,)), AssistantTurn("1")))


class ContainedMail(Mail):
    """The same in a sandbox, as its card says."""

    task_card = TaskCard((EndingKind.TERMINAL,), sandbox="a mail server of its own")
