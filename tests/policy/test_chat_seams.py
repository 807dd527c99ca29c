"""Contexts that are appended turn by turn equal the one-shot render of the conversation."""

import numpy as np
import other_templates as others
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexad.contract.messages import AssistantTurn, Message, Role, ToolCall, ToolSchema
from hexad.policy import builtin
from hexad.policy.chat import Chat
from hexad.policy.template import Template

TOOL = ToolSchema("look_up", "Look up a word", {"type": "object", "properties": {}})
OTHER = ToolSchema("count", "Count", {"type": "object", "properties": {"n": {"type": "integer"}}})

SETTINGS = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
SPELLED = st.sampled_from(
    ["<|im_end|>", "<|im_start|>user\n", "<tool_call>", "</tool_response>", "\n", '\n{"name": "']
)
ANY = st.lists(st.text(max_size=8) | SPELLED, max_size=4).map("".join)
TAME = st.text(st.characters(codec="utf-8", categories=("L", "Nd", "Po", "So")), max_size=8).map(
    lambda text: "a" + text.replace("\\", "").replace('"', "")
)


def conversations(text: st.SearchStrategy[str], most_calls: int):
    """A prompt, and (turn, answers) pairs; the last turn has no answers."""
    values = st.integers() | text | st.booleans() | st.none()
    arguments = st.dictionaries(st.text(max_size=4), values, max_size=3)
    call = st.builds(ToolCall, st.sampled_from(["look_up", "count"]), arguments)

    @st.composite
    def build(draw: st.DrawFn):
        prompt = [Message(Role.USER, draw(text))]
        exchanges = []
        for _ in range(draw(st.integers(0, 3))):
            calls = tuple(draw(st.lists(call, max_size=most_calls)))
            said = draw(text) if not calls or most_calls > 1 else ""
            answers = [Message(Role.TOOL, draw(text), c.name) for c in calls]
            if not calls:
                answers = [Message(Role.USER, draw(text))]
            exchanges.append((AssistantTurn(said, calls), answers))
        return prompt, [*exchanges, (AssistantTurn(draw(text)), [])]

    return build()


def check(chat: Chat, prompt: list[Message], exchanges: list) -> None:
    whole = list(prompt)
    pieces = [chat.prompt(prompt)]
    for turn, answers in exchanges:
        ids = chat.encode(turn)
        last = not answers
        after = chat.follow(ids, answers, header=not last)
        pieces += [ids, after]
        whole += [turn.message(), *answers]
    joined = np.concatenate([getattr(piece, "ids", piece) for piece in pieces])
    template = Template(chat._template.tokenizer, chat.tools)
    expected = template.ids(template.text(whole, header=False))
    assert joined.tolist() == expected.tolist()
    assert joined.dtype == np.int32


def chat_of(tokenizer, tools=(TOOL, OTHER)) -> Chat:
    return Chat(tokenizer, tools, (tokenizer.eos_token_id,))


@pytest.fixture(scope="module")
def own() -> Chat:
    return chat_of(builtin.tokenizer())


@SETTINGS
@given(conversation=conversations(ANY, 3))
def test_appended_turns_equal_the_one_shot_render_for_any_text(own, conversation):
    check(own, *conversation)


@SETTINGS
@given(system=ANY, conversation=conversations(ANY, 3))
def test_appended_turns_equal_the_one_shot_render_with_a_system_message(own, system, conversation):
    prompt, exchanges = conversation
    check(own, [Message(Role.SYSTEM, system), *prompt], exchanges)


@pytest.mark.parametrize(
    ("tokenizer", "most_calls"),
    [(others.chatml(), 3), (others.llama(), 1), (others.mistral(), 3)],
    ids=["chatml", "llama", "mistral"],
)
@SETTINGS
@given(data=st.data())
def test_appended_turns_equal_the_one_shot_render_of_other_templates(tokenizer, most_calls, data):
    conversation = data.draw(conversations(TAME, most_calls))
    if tokenizer.bos_token is not None and most_calls > 1:
        conversation = _without_text_beside_calls(conversation)
    check(chat_of(tokenizer), *conversation)


def _without_text_beside_calls(conversation):
    prompt, exchanges = conversation
    turns = [
        (AssistantTurn("" if turn.tool_calls else turn.content, turn.tool_calls), answers)
        for turn, answers in exchanges
    ]
    return prompt, turns


def test_sampled_ids_are_never_encoded_again(own):
    """Field case O01: a non-canonical sample stays as it is in the next context."""
    letters = [int(own._template.ids(letter)[0]) for letter in "number"]
    assert letters != own._template.ids("number").tolist()
    sampled = [*letters, own.turn_end]
    follow = own.follow(sampled, [Message(Role.USER, "7")])
    canonical = own.follow(own.encode(AssistantTurn("number")), [Message(Role.USER, "7")])
    assert follow.ids.tolist() == canonical.ids.tolist()
    assert own.parse(sampled).turn == AssistantTurn("number")


def test_consecutive_tool_results_share_one_user_message(own):
    turn = own.encode(AssistantTurn("", (ToolCall("count", {}), ToolCall("count", {}))))
    results = [Message(Role.TOOL, "1", "count"), Message(Role.TOOL, "2", "count")]
    text = own._parser.text(own.follow(turn, results).ids.tolist())
    assert text == (
        "\n<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n"
        "</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_turn_cut_by_a_limit_is_closed_by_template_tokens(own):
    cut = own._template.ids("12")
    follow = own.follow(cut, [Message(Role.USER, "go on")])
    ended = own.follow([*cut, own.turn_end], [Message(Role.USER, "go on")])
    assert follow.ids.tolist() == [own.turn_end, *ended.ids.tolist()]
    assert follow.spans[0].kind == "template"
    assert not own.parse(cut).turn.complete
    assert own.parse([*cut, own.turn_end]).turn.complete


def test_another_stop_id_ends_the_turn_and_is_closed_after():
    tokenizer = builtin.tokenizer()
    end_of_text = tokenizer.pad_token_id
    chat = Chat(tokenizer, (TOOL,), (end_of_text, tokenizer.eos_token_id))
    sampled = [*chat._template.ids("12").tolist(), end_of_text]
    parsed = chat.parse(sampled)
    assert parsed.turn == AssistantTurn("12")
    follow = chat.follow(sampled, [Message(Role.USER, "x")])
    assert follow.ids[0] == chat.turn_end


def test_an_empty_completion_can_be_followed(own):
    follow = own.follow([], [Message(Role.USER, "x")])
    assert follow.ids[0] == own.turn_end
    assert own.parse([]).spans == ()


def test_a_call_with_an_error_has_no_canonical_form(own):
    with pytest.raises(ValueError, match="malformed"):
        own.encode(AssistantTurn("", (ToolCall("", {}, "not valid JSON"),)))
