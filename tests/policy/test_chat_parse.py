"""The parser takes any ids, keeps every token in a span, and never lets bad JSON through."""

import json

import other_templates as others
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexad.contract.messages import AssistantTurn, ToolCall, ToolSchema
from hexad.contract.segment import SpanKind
from hexad.policy import builtin
from hexad.policy.chat import Chat

TOOL = ToolSchema("calculate", "Do one operation", {"type": "object", "properties": {}})
CALL = ToolCall("calculate", {"a": 3, "op": "+", "b": -4})


def chat_of(tokenizer) -> Chat:
    return Chat(tokenizer, (TOOL,), (tokenizer.eos_token_id,))


CHATS = {
    "own": chat_of(builtin.tokenizer()),
    "chatml": chat_of(others.chatml()),
    "llama": chat_of(others.llama()),
    "mistral": chat_of(others.mistral()),
}
OWN = CHATS["own"]


def ids_of(chat: Chat, text: str) -> list[int]:
    return chat._template.ids(text).tolist()


def plain(calls) -> list[tuple[str, dict, str | None]]:
    return [(call.name, dict(call.arguments), call.error) for call in calls]


@pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS)
def test_a_canonical_turn_parses_back(chat):
    ids = chat.encode(AssistantTurn("", (CALL,)))
    parsed = chat.parse(ids)
    assert plain(parsed.turn.tool_calls) == plain([CALL])
    assert (parsed.turn.content, parsed.turn.complete) == ("", True)
    assert [(s.kind, s.name) for s in parsed.spans] == [
        (SpanKind.TOOL_CALL, "calculate"),
        (SpanKind.TEXT, ""),
    ]
    assert parsed.spans[-1].start == len(ids) - 1


@pytest.mark.parametrize("chat", [OWN, CHATS["chatml"]], ids=["by token", "by text"])
def test_text_around_two_calls_is_the_content(chat):
    turn = AssistantTurn("let me see", (CALL, ToolCall("calculate", {"b": "x"})))
    ids = chat.encode(turn)
    parsed = chat.parse(ids)
    assert parsed.turn.content == "let me see"
    assert plain(parsed.turn.tool_calls) == plain(turn.tool_calls)
    kinds = [span.kind.value for span in parsed.spans]
    separator = ["text"] if chat is OWN else []  # there ">\n" is one token, of the first tag
    assert kinds == ["text", "tool_call", *separator, "tool_call", "text"]
    first = parsed.spans[1]
    text = chat._parser.text(ids[first.start : first.end].tolist())
    assert text.startswith("<tool_call>") and text.rstrip().endswith("</tool_call>")


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(sorted(CHATS)), data=st.data())
def test_arbitrary_ids_parse_and_spans_cover_them_exactly(name, data):
    chat = CHATS[name]
    token = st.integers(0, len(chat._template.tokenizer) - 1)
    tags = st.sampled_from([*ids_of(chat, "<tool_call>{[TOOL_CALLS]</tool_call>"), chat.turn_end])
    ids = data.draw(st.lists(token | tags, max_size=40))
    parsed = chat.parse(ids)
    edges = [0, *(edge for span in parsed.spans for edge in (span.start, span.end)), len(ids)]
    assert edges[::2] == edges[1::2]
    assert all(span.end > span.start for span in parsed.spans)
    assert {span.kind for span in parsed.spans} <= {SpanKind.TEXT, SpanKind.TOOL_CALL}
    assert parsed.turn.complete == (bool(ids) and ids[-1] == chat.turn_end)
    json.dumps(plain(parsed.turn.tool_calls), allow_nan=False, ensure_ascii=False).encode()


BAD = {
    "not JSON": "{3",
    "trailing text": '{"name": "f", "arguments": {}} x',
    "not an object": "[1, 2]",
    "empty list": "[]",
    "nothing": "",
    "name missing": '{"arguments": {}}',
    "name not a string": '{"name": 3, "arguments": {}}',
    "name empty": '{"name": "", "arguments": {}}',
    "arguments missing": '{"name": "f"}',
    "arguments in a string": '{"name": "f", "arguments": "{}"}',
    "arguments a list": '{"name": "f", "arguments": []}',
    "duplicate key": '{"name": "f", "name": "g", "arguments": {}}',
    "duplicate key inside": '{"name": "f", "arguments": {"a": 1, "a": 2}}',
    "NaN": '{"name": "f", "arguments": {"a": NaN}}',
    "infinity": '{"name": "f", "arguments": {"a": -Infinity}}',
    "overflow": '{"name": "f", "arguments": {"a": 1e999}}',
    "huge integer": '{"name": "f", "arguments": {"a": ' + "9" * 5000 + "}}",
    "unpaired surrogate": '{"name": "f", "arguments": {"a": "\\ud800"}}',
    "deep": '{"name": "f", "arguments": ' + '{"a": ' * 5000 + "1" + "}" * 5001,
    "deep list": "[" * 20000,
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
@pytest.mark.parametrize("chat", [OWN, CHATS["chatml"]], ids=["by token", "by text"])
def test_a_bad_call_is_kept_with_its_error(chat, body):
    ids = [*ids_of(chat, f"<tool_call>\n{body}\n</tool_call>"), chat.turn_end]
    (call,) = [c for c in chat.parse(ids).turn.tool_calls if c.error is not None][:1]
    assert dict(call.arguments) == {}
    assert call.raw == f"\n{body}\n"


def test_a_missing_closing_tag_is_an_error_and_the_span_reaches_to_the_stop():
    ids = [*ids_of(OWN, '<tool_call>\n{"name": "f", "arguments": {}}'), OWN.turn_end]
    parsed = OWN.parse(ids)
    (call,) = parsed.turn.tool_calls
    assert call.error == "</tool_call> is missing"
    assert (parsed.spans[0].end, parsed.spans[1].kind) == (len(ids) - 1, SpanKind.TEXT)


def test_text_that_only_spells_a_tag_is_text():
    letters = [token for letter in "<tool_call>" for token in ids_of(OWN, letter)]
    parsed = OWN.parse([*letters, OWN.turn_end])
    assert parsed.turn == AssistantTurn("<tool_call>")


def test_control_tokens_sampled_inside_a_turn_stay_visible():
    start = OWN._template.tokenizer.convert_tokens_to_ids("<|im_start|>")
    ids = [*ids_of(OWN, "14"), start, OWN.turn_end]
    assert OWN.parse(ids).turn.content == "14<|im_start|>"


def test_a_turn_without_calls_keeps_its_text_as_it_is():
    ids = [*ids_of(OWN, " 14\n"), OWN.turn_end]
    assert OWN.parse(ids).turn.content == " 14\n"


def test_without_tools_tags_are_text():
    tokenizer = builtin.tokenizer()
    chat = Chat(tokenizer, (), (tokenizer.eos_token_id,))
    ids = OWN.encode(AssistantTurn("", (CALL,)))
    parsed = chat.parse(ids)
    assert parsed.turn.tool_calls == ()
    assert parsed.turn.content.startswith("<tool_call>")


def test_a_list_of_calls_gives_them_all():
    chat = CHATS["mistral"]
    calls = (CALL, ToolCall("calculate", {"a": "b"}))
    parsed = chat.parse(chat.encode(AssistantTurn("", calls)))
    assert plain(parsed.turn.tool_calls) == plain(calls)


def test_a_call_cut_by_a_limit_is_incomplete_and_has_an_error():
    ids = OWN.encode(AssistantTurn("", (CALL,)))[:-3]
    parsed = OWN.parse(ids)
    assert not parsed.turn.complete
    assert parsed.turn.tool_calls[0].error is not None
    assert [(s.kind, s.start, s.end) for s in parsed.spans] == [("tool_call", 0, len(ids))]
