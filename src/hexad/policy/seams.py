"""What a template writes between two sampled turns, derived from the template itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from hexad.contract.faults import UserError
from hexad.contract.messages import Message, Role, ToolCall
from hexad.policy.template import WHERE, Template

_CACHED = 256
QUESTION = Message(Role.USER, "q")
PLAIN = "ok"
THOUGHT = "<think>\nhm\n</think>\n\nok"
"""A turn with thinking: what rewriting templates drop or move."""


def refused(reason: str) -> UserError:
    """The error for a template that does not only append."""
    return UserError(
        f"the chat template rewrites history: {reason}",
        where=WHERE,
        fix="use a template that only appends: what was sampled must stay in the context",
    )


def _calling(names: Sequence[str]) -> Message:
    """A turn that calls the tools ``names``."""
    calls = tuple(ToolCall(name, {}) for name in names)
    return Message(Role.ASSISTANT, THOUGHT, tool_calls=calls)


class Seams:
    """The texts around an assistant turn, of a template that only ever appends.

    ``header`` is the generation header of a first turn, ``close`` is what follows the text of a
    turn (the close token and a separator), ``turn_end`` the id of the close token. The constructor
    raises ``UserError`` for a template that changes a turn when it becomes history.
    """

    def __init__(self, template: Template) -> None:
        self._template = template
        self._cached_before = lru_cache(_CACHED)(self._before)
        asked = template.text([QUESTION], header=False)
        headed = template.text([QUESTION], header=True)
        if not headed.startswith(asked):
            raise refused("the generation header changes what precedes it")
        self.header = headed[len(asked) :]
        self.opening = headed
        self.close = self._written(PLAIN)
        if self._written(THOUGHT) != self.close:
            raise refused("a turn with thinking is not rendered as it was written")
        self.turn_end = self._turn_end()

    def after(self, messages: Sequence[Message], *, header: bool) -> str:
        """The text from the end of an assistant turn's own text on, up to the next turn.

        Leading tool messages answer that many calls of the turn. Raises ``UserError`` where the
        template changes the turn because of what follows.
        """
        calls = next((i for i, m in enumerate(messages) if m.role is not Role.TOOL), len(messages))
        names = tuple(m.name or "f" for m in messages[:calls])
        turn, before = _calling(names), self._cached_before(names)
        whole = self._template.text([QUESTION, turn, *messages], header=header)
        roles = ", ".join(message.role for message in messages)
        if not whole.startswith(before):
            raise refused(f"the render changes before a turn that is followed by: {roles}")
        if not before.endswith(self.close):
            raise refused("a turn with tool calls is closed differently from one without")
        return self.close + whole[len(before) :]

    def _before(self, names: tuple[str, ...]) -> str:
        """A conversation up to a turn that calls ``names``."""
        return self._template.text([QUESTION, _calling(names)], header=False)

    def turn(self, message: Message) -> str:
        """The text of an assistant message after the header, with its close."""
        text = self._template.text([QUESTION, message], header=False)
        if not text.startswith(self.opening):
            raise refused("an assistant turn does not start with the generation header")
        return text[len(self.opening) :]

    def _written(self, content: str) -> str:
        """What follows a turn that says ``content``."""
        text = self.turn(Message(Role.ASSISTANT, content))
        if not text.startswith(content):
            raise refused("it adds or removes text inside an assistant turn")
        return text[len(content) :]

    def _turn_end(self) -> int:
        tokenizer = self._template.tokenizer
        ids = self._template.ids(self.close)
        if len(ids) == 0 or int(ids[0]) not in tokenizer.added_tokens_decoder:
            raise UserError(
                f"the chat template closes a turn with {self.close!r}, not with a special token",
                where=WHERE,
                fix="use a template that ends each assistant turn with its own special token",
            )
        return int(ids[0])
