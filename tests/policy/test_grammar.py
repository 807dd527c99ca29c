"""What the tool-call grammar lets through, and what a matcher says of it."""

from dataclasses import replace

import numpy as np
import pytest

from hexad.contract.faults import UserError
from hexad.contract.messages import Message, Role, ToolCall, ToolSchema
from hexad.contract.sampling import Sampling
from hexad.policy import builtin
from hexad.policy.builtin import tokenizer
from hexad.policy.grammar import Grammars, tool_call_grammar
from hexad.policy.load import load_policy
from hexad.policy.syntax import ToolSyntax
from hexad.policy.transforms import MAX_SUPPORT

TOOLS = (
    ToolSchema(
        "calculate",
        "adds",
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "op": {"enum": ["+", "*"]}},
            "required": ["a", "op"],
        },
    ),
    ToolSchema("look_up", "", {}),
)
POLICY = load_policy("builtin:tiny", seed=0)
GRAMMARS = Grammars(POLICY.tokenizer, 520, POLICY.stop_ids)
TURN = POLICY.chat(TOOLS)
GRAMMAR = tool_call_grammar(TOOLS, TURN.syntax, POLICY.tokenizer)
TAGS = ToolSyntax("[CALLS]", "[/CALLS]", "parameters", None, None)
BARE = ToolSyntax("", "", "parameters", None, None)


def encoded(text):
    return POLICY.tokenizer(text, add_special_tokens=False)["input_ids"]


def says(text, grammar=GRAMMAR):
    """``no`` where some token is refused, else whether the turn may ``end`` or must go ``on``."""
    matcher = GRAMMARS.matcher(grammar, POLICY.stop_ids)
    for token in encoded(text):
        if not matcher.allowed()[token]:
            return "no"
        matcher.accept(token)
    ends = matcher.allowed()[list(POLICY.stop_ids)]
    assert ends.all() == ends.any()
    return "end" if ends.all() else "on"


CALL = '<tool_call>\n{"name": "calculate", "arguments": {"a": 12, "op": "*"}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "look_up", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is 14.", "end"),
        ("a { brace } and\nlines", "end"),
        ("", "on"),
        (CALL, "end"),
        (OTHER, "end"),
        ("Let me see.\n" + CALL, "end"),
        (CALL + "\n" + OTHER, "end"),
        (CALL + CALL, "end"),
        (CALL.replace("\n", ""), "end"),
        ("<tool_response>\nnot special", "end"),
        (CALL[:-12], "on"),
        (CALL[:31], "on"),
        (CALL + " and text", "no"),
        (CALL.replace("calculate", "compute"), "no"),
        (CALL.replace("12", '"12"'), "no"),
        (CALL.replace('"*"', '"-"'), "no"),
        (CALL.replace('"a": 12, ', ""), "no"),
        (CALL.replace("12", '12, "b": 1'), "no"),
        (CALL.replace("arguments", "parameters"), "no"),
        (CALL.replace(": 12", ":12"), "no"),
        (OTHER.replace("{}", '{"x": 1}'), "no"),
        ("</tool_call>", "no"),
        ("<|im_start|>", "no"),
        ("a<|im_end|>", "no"),
    ],
)
def test_turns_of_the_tool_call_grammar(text, answer):
    if text.endswith("<|im_end|>"):
        # A stop id is allowed where the turn may end; it is never accepted as text.
        assert says(text[:-10]) == "end"
        return
    assert says(text) == answer


def test_calls_as_the_template_renders_them_are_in_the_grammar():
    calls = (ToolCall("calculate", {"a": -3, "op": "+"}), ToolCall("look_up", {}))
    for content in ("", "Let me see."):
        turn = Message(Role.ASSISTANT, content, tool_calls=calls)
        asked = [Message(Role.USER, "q")]
        start = len(TURN.prompt(asked).ids)
        ids = TURN.prompt([*asked, turn, *asked]).ids[start:].tolist()
        matcher = GRAMMARS.matcher(GRAMMAR, POLICY.stop_ids)
        for token in ids[: ids.index(TURN.turn_end)]:
            assert matcher.allowed()[token]
            matcher.accept(token)
        assert matcher.allowed()[TURN.turn_end]


@pytest.mark.parametrize(
    ("syntax", "text", "answer"),
    [
        (TAGS, 'so [CALLS]{"name": "calculate", "parameters": {"a": 1, "op": "+"}}[/CALLS]', "end"),
        (TAGS, "so [CALLS]", "on"),
        (TAGS, "so [CALLS]x", "no"),
        (TAGS, "so [CALL", "end"),
        (TAGS, "[CALLS]\n", "on"),
        (TAGS, "so [CALL [CALLS]{", "on"),
        (TAGS, "<tool_call>so [CALLS]{", "on"),
        (TAGS, "<tool_call>so<tool_call>", "end"),
        (BARE, '{"name": "calculate", "parameters": {"a": 1, "op": "+"}}', "end"),
        (BARE, '{"name": "calculate"}', "no"),
        (BARE, " {x", "no"),
        (BARE, "so {x", "end"),
    ],
)
def test_tags_that_are_no_tokens(syntax, text, answer):
    assert says(text, tool_call_grammar(TOOLS, syntax, POLICY.tokenizer)) == answer


def test_the_mask_covers_logits_beyond_the_tokenizer_and_never_allows_them():
    allowed = GRAMMARS.matcher("start: /(.|\\n)*/", (7,)).allowed()
    assert allowed.shape == (520,) and not allowed[512:].any()
    # 7 ends the turn here; the policy's own stop ids do not.
    assert allowed[7] and not allowed[list(POLICY.stop_ids)].any()


def test_matchers_of_one_grammar_do_not_share_their_place():
    first, second = (GRAMMARS.matcher('start: "ab"', POLICY.stop_ids) for _ in range(2))
    (a, b) = encoded("a") + encoded("b")
    first.accept(a)
    assert first.allowed()[b] and not first.allowed()[a]
    assert second.allowed()[a] and not second.allowed()[b]
    first.accept(b)
    assert np.flatnonzero(first.allowed()).tolist() == list(POLICY.stop_ids)


def test_a_stuck_matcher_allows_nothing():
    matcher = GRAMMARS.matcher('start: "ab"', POLICY.stop_ids)
    matcher.accept(encoded("z")[0])
    assert not matcher.allowed().any()
    assert matcher.error


def test_a_text_that_is_no_grammar_is_refused():
    with pytest.raises(UserError, match="the grammar cannot be read"):
        Grammars(tokenizer(), 512, (0, 2)).matcher("root ::= 1", (0, 2))


def test_a_recipe_names_the_tool_calls_of_its_task():
    named = POLICY.behaviour(Sampling(0.7, 40, grammar="tool_calls"), TURN)
    assert named == Sampling(0.7, 40, grammar=GRAMMAR)
    own = Sampling(grammar="start: /[0-9]+/")
    assert POLICY.behaviour(own, TURN) == own
    assert POLICY.behaviour(Sampling(), TURN) == Sampling()


def test_what_a_recipe_cannot_have_is_refused_before_the_first_rollout():
    with pytest.raises(UserError, match="offers no tools"):
        POLICY.behaviour(Sampling(grammar="tool_calls"), POLICY.chat(()))
    with pytest.raises(UserError, match="the grammar cannot be read"):
        POLICY.behaviour(Sampling(grammar="root ::= 1"), TURN)
    with pytest.raises(UserError, match="greedy"):
        POLICY.behaviour(Sampling(top_k=1), TURN)
    large = replace(POLICY, model=builtin.model("tiny", vocabulary=MAX_SUPPORT + 1, seed=0))
    with pytest.raises(UserError, match="can be recorded"):
        large.behaviour(Sampling(grammar="tool_calls"), TURN)
