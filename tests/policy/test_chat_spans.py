"""Spans say whose the tokens are, and stored ids with spans give the transcript back."""

import numpy as np
import other_templates as others
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexad.contract.messages import AssistantTurn, Message, Role, ToolCall, ToolSchema
from hexad.contract.segment import Segment, Span, SpanKind
from hexad.policy import builtin
from hexad.policy.chat import Chat, Rendered

TOOL = ToolSchema("look_up", "Look up a word", {"type": "object", "properties": {}})


def chat_of(tokenizer, tools=(TOOL,)) -> Chat:
    return Chat(tokenizer, tools, (tokenizer.eos_token_id,))


OWN = chat_of(builtin.tokenizer())


def shown(chat: Chat, rendered: Rendered) -> list[tuple[str, str, str]]:
    text = chat._parser.text
    return [
        (span.kind.value, span.name, text(rendered.ids[span.start : span.end].tolist()))
        for span in rendered.spans
    ]


def covers(rendered: Rendered) -> bool:
    edges = [0, *(e for s in rendered.spans for e in (s.start, s.end)), len(rendered.ids)]
    return edges[::2] == edges[1::2] and all(s.end > s.start for s in rendered.spans)


def test_the_prompt_says_what_is_system_user_and_template():
    prompt = OWN.prompt([Message(Role.SYSTEM, "Be kind."), Message(Role.USER, "3+4")])
    parts = shown(OWN, prompt)
    assert [(kind, text) for kind, _, text in parts if kind != "system"] == [
        ("template", "<|im_start|>system\n"),
        ("template", "<|im_end|>\n<|im_start|>user\n"),
        ("user", "3+4"),
        ("template", "<|im_end|>\n<|im_start|>assistant\n"),
    ]
    assert parts[1][2].startswith("Be kind.\n\n<tools>\n") and "look_up" in parts[1][2]
    assert covers(prompt)


def test_without_system_and_tools_there_is_no_system_span():
    chat = chat_of(builtin.tokenizer(), ())
    assert [kind for kind, _, _ in shown(chat, chat.prompt([Message(Role.USER, "hi")]))] == [
        "template",
        "user",
        "template",
    ]


def test_what_follows_a_turn_names_the_tool_of_each_observation():
    answers = [Message(Role.TOOL, "7", "look_up"), Message(Role.TOOL, "é8", "other")]
    follow = OWN.follow([OWN.turn_end], answers)
    said = [part for part in shown(OWN, follow) if part[0] != "template"]
    assert said == [("observation", "look_up", "7"), ("observation", "other", "é8")]
    assert covers(follow)


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(max_size=12), max_size=3), ended=st.booleans(), user=st.booleans())
@pytest.mark.parametrize(
    "chat",
    [OWN, chat_of(others.chatml()), chat_of(others.mistral())],
    ids=["own", "chatml", "mistral"],
)
def test_spans_cover_any_rendered_text_exactly(chat, texts, ended, user):
    role = Role.USER if user else Role.TOOL
    messages = [Message(role, text, None if user else "look_up") for text in texts]
    assert covers(chat.follow([chat.turn_end] if ended else [5], messages))
    assert covers(chat.prompt([Message(Role.USER, text) for text in texts] or [Message(role, "")]))


def test_an_escaped_observation_is_still_an_observation():
    chat = chat_of(others.llama())
    follow = chat.follow([chat.turn_end], [Message(Role.TOOL, 'a "b"', "look_up")])
    (said,) = [part for part in shown(chat, follow) if part[0] != "template"]
    assert said[:2] == ("observation", "look_up") and "b" in said[2]


def recorded(pieces: list[tuple[Rendered, bool, int]]) -> Segment:
    ids = np.concatenate([piece.ids for piece, _, _ in pieces])
    action = np.concatenate([np.full(len(p.ids), acted) for p, acted, _ in pieces])
    spans, start = [], 0
    for piece, _, turn in pieces:
        spans += [Span(s.kind, s.name, turn, s.start + start, s.end + start) for s in piece.spans]
        start += len(piece.ids)
    blank = np.full(len(ids), np.nan, dtype=np.float32)
    none = np.full(len(ids), -1)
    return Segment(ids, action, action.astype(np.float32), blank, none, none, tuple(spans))


def record(chat: Chat, prompt, exchanges) -> Segment:
    pieces = [(chat.prompt(prompt), False, 0)]
    for number, (turn, answers) in enumerate(exchanges):
        ids = chat.encode(turn)
        pieces.append((Rendered(ids, chat.parse(ids).spans), True, number))
        if answers:
            pieces.append((chat.follow(ids, answers), False, number + 1))
    return recorded(pieces)


def test_the_transcript_comes_back_from_stored_ids_and_spans():
    prompt = [Message(Role.SYSTEM, "Be kind."), Message(Role.USER, "ünï 3+4")]
    call = ToolCall("look_up", {"word": "x", "n": 3})
    exchanges = [
        (AssistantTurn("hm", (call, call)), [Message(Role.TOOL, t, "look_up") for t in "78"]),
        (AssistantTurn("so what?"), [Message(Role.USER, "go on")]),
        (AssistantTurn("14"), []),
    ]
    told, *rest = OWN.decode([record(OWN, prompt, exchanges)])
    assert told.role is Role.SYSTEM and told.content.startswith("Be kind.")
    expected = [prompt[1]]
    for turn, answers in exchanges:
        expected += [turn.message(), *answers]
    assert [(m.role, m.content, m.name) for m in rest] == [
        (m.role, m.content, m.name) for m in expected
    ]
    asked = [[(c.name, c.arguments, c.error) for c in m.tool_calls] for m in rest]
    assert asked == [[(c.name, c.arguments, c.error) for c in m.tool_calls] for m in expected]


def test_a_transcript_of_two_contexts_has_both_in_order():
    segment = record(OWN, [Message(Role.USER, "a")], [(AssistantTurn("b"), [])])
    contents = [message.content for message in OWN.decode([segment, segment])]
    assert contents[1:3] == ["a", "b"] and contents[4:] == ["a", "b"]


def test_the_same_question_is_rendered_once():
    chat = chat_of(builtin.tokenizer())
    messages = [Message(Role.USER, "3+4")]
    assert chat.prompt(messages) is chat.prompt(list(messages))
    assert SpanKind.USER in {span.kind for span in chat.prompt(messages).spans}


def test_turns_that_only_look_alike_are_encoded_apart():
    chat = chat_of(builtin.tokenizer())
    arguments = [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1.0, "b": 2}, {"a": True, "b": 2}]
    turns = [AssistantTurn("", (ToolCall("look_up", each),)) for each in arguments]
    turns += [AssistantTurn("x", turns[0].tool_calls), AssistantTurn("x")]
    first = [chat.encode(turn).tolist() for turn in turns]
    assert len({tuple(ids) for ids in first}) == len(turns)
    assert [chat.encode(turn).tolist() for turn in turns] == first
    assert [chat_of(builtin.tokenizer()).encode(turn).tolist() for turn in turns] == first


def test_an_outline_of_one_conversation_serves_only_alike_ones():
    """A chat that has seen the others cuts each conversation as a fresh one does."""
    asked = [
        [Message(Role.USER, "1")],
        [Message(Role.USER, "1"), Message(Role.USER, "2")],
        [Message(Role.SYSTEM, "1"), Message(Role.USER, "2")],
    ]
    answered = [
        [],
        [Message(Role.TOOL, "1", "look_up")],
        [Message(Role.TOOL, "1", "other")],
        [Message(Role.TOOL, "2", "other"), Message(Role.TOOL, "1", "other")],
        [Message(Role.USER, "1")],
    ]
    old = chat_of(builtin.tokenizer())
    for _ in range(2):
        for messages in asked:
            fresh = chat_of(builtin.tokenizer()).prompt(messages)
            assert shown(old, old.prompt(messages)) == shown(old, fresh)
        for messages in answered:
            for header in (True, False):
                fresh = chat_of(builtin.tokenizer()).follow([5], messages, header=header)
                assert shown(old, old.follow([5], messages, header=header)) == shown(old, fresh)


@pytest.mark.parametrize("header", [True, False])
def test_an_observation_is_cut_out_exactly_with_and_without_a_header(header):
    answers = [Message(Role.TOOL, "7", "look_up"), Message(Role.TOOL, "8", "other")]
    said = shown(OWN, OWN.follow([OWN.turn_end], answers, header=header))
    assert [part for part in said if part[0] != "template"] == [
        ("observation", "look_up", "7"),
        ("observation", "other", "8"),
    ]
    assert said[-1][2].endswith("assistant\n") == header


def test_what_the_template_writes_around_nothing_is_one_span():
    said = shown(OWN, OWN.follow([OWN.turn_end], [Message(Role.TOOL, "", "look_up")]))
    assert [kind for kind, _, _ in said] == ["template"]
