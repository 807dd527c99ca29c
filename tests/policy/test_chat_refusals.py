"""Templates that rewrite history or cannot show tools are refused, with the reason."""

import other_templates as others
import pytest

from hexad.contract.faults import UserError
from hexad.contract.messages import AssistantTurn, Message, Role, ToolCall, ToolSchema
from hexad.policy import builtin
from hexad.policy.chat import Chat

TOOL = ToolSchema("look_up", "Look up a word", {"type": "object", "properties": {}})


def chat_of(tokenizer, tools=(TOOL,)) -> Chat:
    return Chat(tokenizer, tools, (tokenizer.eos_token_id,))


@pytest.mark.parametrize(
    ("template", "tools", "reason"),
    [
        (others.THINKING, (TOOL,), "adds or removes text inside an assistant turn"),
        (others.THINKING, (), "adds or removes text inside an assistant turn"),
        (others.FORGETFUL, (), "the render changes before a turn that is followed by: user"),
        (others.TOOLLESS, (TOOL,), "a template without tools"),
        (others.BARE, (), "not with a special token"),
        ("{{ raise_exception('no') }}", (), "cannot render a conversation of user: no"),
        ("{{ messages[9].content }}", (), "cannot render"),
        ("{% for m in messages %}{{ 'x' + m.missing }}{% endfor %}", (), "cannot render"),
    ],
)
def test_a_template_is_refused_with_the_reason(template, tools, reason):
    with pytest.raises(UserError, match=reason):
        chat_of(others.chatml(template), tools)


def test_dropped_thinking_is_refused_at_the_turn_where_it_would_happen():
    """Field case O02: tool results keep earlier thinking, a new user message drops it."""
    chat = chat_of(others.chatml(others.FORGETFUL))
    sampled = chat.encode(AssistantTurn("<think>\nx\n</think>\n\ny", (ToolCall("look_up", {}),)))
    assert len(chat.follow(sampled, [Message(Role.TOOL, "1", "look_up")]).ids)
    with pytest.raises(UserError, match="rewrites history"):
        chat.follow(sampled, [Message(Role.USER, "and now?")])


def test_tools_that_move_to_the_last_user_message_are_refused_at_that_turn():
    chat = chat_of(others.mistral(others.MISTRAL_LAST_USER))
    sampled = chat.encode(AssistantTurn("hello"))
    with pytest.raises(UserError, match="followed by: user"):
        chat.follow(sampled, [Message(Role.USER, "and now?")])


def test_a_tokenizer_that_joins_tokens_across_the_seam_is_refused():
    """With the split of GPT-2 a double newline is one token alone and two before a word."""
    from tokenizers import pre_tokenizers

    tokenizer = others.llama()
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    try:
        with pytest.raises(UserError, match="across the seam"):
            chat_of(tokenizer)
    finally:
        others.tokenizer.cache_clear()


def test_two_calls_where_the_template_takes_one_are_refused_at_that_turn():
    chat = chat_of(others.llama())
    results = [Message(Role.TOOL, "1", "look_up"), Message(Role.TOOL, "2", "look_up")]
    with pytest.raises(UserError, match="one call only"):
        chat.follow([chat.turn_end], results)


def test_text_that_a_template_drops_cannot_be_demonstrated():
    chat = chat_of(others.mistral())
    with pytest.raises(UserError, match="drops the text"):
        chat.encode(AssistantTurn("let me see", (ToolCall("look_up", {}),)))


def test_the_close_token_must_be_a_stop_id():
    with pytest.raises(ValueError, match="close token"):
        Chat(builtin.tokenizer(), (), (0,))


@pytest.mark.parametrize("shown", ["result", "call"])
def test_a_template_that_hides_calls_or_results_is_refused(shown):
    hidden = {
        "result": ("+ message.content + '\\n</tool_response>'", "+ '\\n</tool_response>'"),
        "call": ('{"name": "\' + call.function.name + \'"', '{"name": "f"'),
    }[shown]
    template = others.CHATML.replace(*hidden)
    assert template != others.CHATML
    with pytest.raises(UserError, match=f"does not show tool {shown}s"):
        chat_of(others.chatml(template))
