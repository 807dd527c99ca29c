"""Rows of TRL's formats that are read, and every way in which a row can be bad."""

import json

import pytest

from hexad.contract.faults import UserError
from hexad.contract.messages import Role
from hexad.data_sets import forms, table
from hexad.data_sets.bad import BadRow, Flaw
from hexad.data_sets.gather import gather
from hexad.data_sets.table import open_table
from hexad.recipe.data_set_axis import DataSetSpec

USER = {"role": "user", "content": "2+3"}
ANSWER = {"role": "assistant", "content": "5"}
OTHER = {"role": "assistant", "content": "6"}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "5"}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
GOOD = {"messages": [USER, ANSWER]}


def lines(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    text = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"\n".join(text) + b"\n")
    return DataSetSpec(path=str(path), format="jsonl")


def gathered(spec, bad, form=forms.demonstration):
    rows = open_table(spec, "data.demonstrations").rows()
    return gather(rows, lambda number, row: form(row), bad, spec.path)


BAD = [
    ({"prompt": "2+3"}, Flaw.MISSING_SIDE, "completion is missing"),
    ({"completion": "5"}, Flaw.MISSING_SIDE, "prompt is missing"),
    ({"text": "2+3 is 5"}, Flaw.FORM, "here are text"),
    ({"prompt": "2", "completions": ["3"], "labels": [True]}, Flaw.FORM, "completions: steps"),
    ({**GOOD, "chat_template_kwargs": {"enable_thinking": True}}, Flaw.COLUMN, "chat_template_kwa"),
    ({**GOOD, "images": ["x.png"]}, Flaw.COLUMN, "images would change"),
    ({"messages": "2+3"}, Flaw.FORM, "not a list"),
    ({"messages": ["2+3"]}, Flaw.MESSAGE, r"messages\[0\]"),
    ({**GOOD, "completion": "5"}, Flaw.FORM, "two forms"),
    ({"messages": [ANSWER]}, Flaw.MISSING_SIDE, "nothing comes before"),
    ({"messages": [USER]}, Flaw.EMPTY_TARGET, "no assistant turn"),
    ({"messages": []}, Flaw.EMPTY_TARGET, "no assistant turn"),
    ({"prompt": "2+3", "completion": ""}, Flaw.EMPTY_TARGET, "empty assistant turn"),
    ({"prompt": "2+3", "completion": " \n"}, Flaw.EMPTY_TARGET, "empty assistant turn"),
    ({"prompt": "2+3", "completion": []}, Flaw.EMPTY_TARGET, "no assistant turn"),
    ({"prompt": "", "completion": "5"}, Flaw.MISSING_SIDE, "nothing comes before"),
    ({"messages": [USER, {**ANSWER, "content": None}]}, Flaw.EMPTY_TARGET, r"messages\[1\]"),
    ({"messages": [USER, {**ANSWER, "weight": 0}]}, Flaw.EMPTY_TARGET, "has weight"),
    ({"messages": [USER, {**ANSWER, "weight": -1}]}, Flaw.MESSAGE, "weight is -1"),
    ({"messages": [USER, {**ANSWER, "weight": True}]}, Flaw.MESSAGE, "weight is True"),
    ({"messages": [{**USER, "weight": 1}, ANSWER]}, Flaw.MESSAGE, "only an assistant's"),
    ({"messages": [{**USER, "role": "bot"}, ANSWER]}, Flaw.UNKNOWN_ROLE, "'bot'"),
    ({"messages": [{"content": "hm"}, ANSWER]}, Flaw.UNKNOWN_ROLE, "None"),
    ({"messages": [USER, {**ANSWER, "thinking": "hm"}]}, Flaw.MESSAGE, "thinking would be lost"),
    ({"messages": [{**USER, "content": [{"type": "image"}]}, ANSWER]}, Flaw.MESSAGE, "not text"),
    ({"messages": [{**USER, "content": 3}, ANSWER]}, Flaw.MESSAGE, "neither text nor"),
    ({"prompt": [USER, ANSWER], "completion": [OTHER]}, Flaw.MESSAGE, "ends in an assistant"),
    ({"prompt": [USER], "completion": [USER, ANSWER]}, Flaw.MESSAGE, "begins with a message"),
    ({"messages": [USER, RESULT, ANSWER]}, Flaw.MESSAGE, "answers no call"),
    (
        {"messages": [USER, CALLING, {**RESULT, "tool_call_id": "c2"}]},
        Flaw.MESSAGE,
        "'c2', which is not open",
    ),
    ({"messages": [USER, {**ANSWER, "tool_calls": "add"}]}, Flaw.TOOLS, "not a list"),
    ({"messages": [USER, {**ANSWER, "tool_calls": [{}]}]}, Flaw.TOOLS, "has no name"),
    (
        {"messages": [USER, {**ANSWER, "tool_calls": [{"name": "add", "arguments": "{a: 2}"}]}]},
        Flaw.TOOLS,
        "arguments is not JSON",
    ),
    (
        {"messages": [USER, {**ANSWER, "tool_calls": [{"name": "add", "arguments": [2]}]}]},
        Flaw.TOOLS,
        "not an object",
    ),
    ({"messages": [{**USER, "tool_calls": [CALL]}, ANSWER]}, Flaw.TOOLS, "only an assistant"),
    ({**GOOD, "tools": "[{"}, Flaw.TOOLS, "tools is not JSON"),
    ({**GOOD, "tools": {"name": "add"}}, Flaw.TOOLS, "not a list"),
    ({**GOOD, "tools": [{"description": "Add"}]}, Flaw.TOOLS, r"tools\[0\] has no name"),
    (
        {**GOOD, "tools": [{"name": "add", "parameters": {"type": "numeral"}}]},
        Flaw.TOOLS,
        "no JSON schema",
    ),
    (b'{"messages": [', Flaw.INVALID_JSON, ""),
    (b'{"prompt": "a", "prompt": "b"}', Flaw.INVALID_JSON, "a key appears twice"),
    (b'{"prompt": NaN}', Flaw.INVALID_JSON, "NaN"),
    (b"[1, 2]", Flaw.INVALID_JSON, "not list"),
    (b"[" * 100_000, Flaw.INVALID_JSON, ""),
    (b'{"prompt": "\xff", "completion": "5"}', Flaw.NOT_UTF8, "byte 12"),
    (b'{"prompt": "\\ud800", "completion": "5"}', Flaw.NOT_UTF8, "surrogate"),
]


@pytest.mark.parametrize(("row", "flaw", "detail"), BAD, ids=range(len(BAD)))
def test_a_bad_row_has_its_number_and_reason_and_the_rest_loads(tmp_path, row, flaw, detail):
    spec = lines(tmp_path, GOOD, b"", row, GOOD)
    kept = gathered(spec, "skip")
    assert len(kept.items) == 2 and kept.rows == 3
    (dropped,) = kept.dropped
    assert (dropped.row, dropped.flaw) == (3, flaw)
    with pytest.raises(UserError, match=f"1 of 3 rows are bad\n  row 3: {flaw}: .*{detail}"):
        gathered(spec, "stop")


def test_a_field_over_ten_megabytes_and_an_endless_line(tmp_path, monkeypatch):
    with pytest.raises(BadRow, match="messages holds 10000") as caught:
        forms.demonstration({"messages": [{**USER, "content": "é" * 5_000_001}, ANSWER]})
    assert caught.value.flaw is Flaw.FIELD_SIZE
    forms.demonstration({"messages": [{**USER, "content": "e" * 9_999_900}, ANSWER]})
    long = {"messages": [{**USER, "content": "e" * 10_000_001}, ANSWER]}
    (dropped,) = gathered(lines(tmp_path, long, GOOD), "skip").dropped
    assert (dropped.row, dropped.flaw) == (1, Flaw.FIELD_SIZE)
    monkeypatch.setattr(table, "_LINE_BYTES", 300)
    endless = b'{"prompt": "' + b"a" * 1000 + b'"}'
    kept = gathered(lines(tmp_path, endless, GOOD), "skip")
    assert [(d.row, d.flaw) for d in kept.dropped] == [(1, Flaw.FIELD_SIZE)]
    assert len(kept.items) == 1


def test_nothing_left_is_an_error_also_where_bad_rows_are_skipped(tmp_path):
    with pytest.raises(UserError, match="none of 1 rows can be used\n  row 1: missing_side"):
        gathered(lines(tmp_path, {"prompt": "a"}), "skip")
    with pytest.raises(UserError, match="none of 0 rows can be used"):
        gathered(lines(tmp_path), "skip")


def test_only_a_few_of_many_bad_rows_are_told(tmp_path):
    with pytest.raises(UserError, match=r"9 of 9 rows are bad(?s:.*)row 5: (?s:.*)and 4 more"):
        gathered(lines(tmp_path, *[{"prompt": "a"}] * 9), "stop")


def spoken(dialogue):
    prompt = [(m.role, m.content) for m in dialogue.prompt]
    return prompt, [(s.message.role, s.message.content, s.weight) for s in dialogue.turns]


def test_texts_are_a_question_and_an_answer():
    expected = ([(Role.USER, "2+3")], [(Role.ASSISTANT, "5", 1.0)])
    assert spoken(forms.demonstration({"prompt": "2+3", "completion": "5"})) == expected
    messages = {"prompt": [USER], "completion": [ANSWER], "id": 7}
    assert spoken(forms.demonstration(messages)) == expected
    assert spoken(forms.demonstration({**GOOD, "prompt": "2+3"})) == expected


def test_calls_results_parts_and_weights_are_read():
    parts = {
        "role": "user",
        "content": [{"type": "text", "text": "2+"}, {"type": "text", "text": "3"}],
    }
    row = {"messages": [parts, {**CALLING, "weight": 0.5}, RESULT, ANSWER], "tools": [TOOL]}
    made = forms.demonstration(row)
    assert made.prompt[0].content == "2+3" and made.tools[0].name == "add"
    call, result, answer = made.turns
    assert call.message.tool_calls[0].arguments == {"a": 2} and call.weight == 0.5
    assert result.message.name == "add" and answer.weight == 1.0
    assert forms.demonstration({**row, "tools": json.dumps([TOOL])}) == made
    assert forms.demonstration({**row, "tools": None}).tools is None


def test_results_name_the_call_that_they_answer_by_id_else_in_order():
    other = {"id": "c2", "function": {"name": "mul", "arguments": {}}}
    calling = {"role": "assistant", "tool_calls": [CALL, other]}
    second = {"role": "tool", "tool_call_id": "c2", "content": "6"}
    names = lambda *rest: [  # noqa: E731
        s.message.name
        for s in forms.demonstration({"messages": [USER, calling, *rest]}).turns
        if s.message.role is Role.TOOL
    ]
    assert names(second, RESULT) == ["mul", "add"]
    plain = {"role": "tool", "content": "5"}
    assert names(plain, plain) == ["add", "mul"]
    assert names({**plain, "name": "own"}) == ["own"]


PAIR = ([(Role.USER, "2+3")], [(Role.ASSISTANT, "5", 1.0)], [(Role.ASSISTANT, "6", 1.0)])


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "2+3", "chosen": "5", "rejected": "6"},
        {"prompt": [USER], "chosen": [ANSWER], "rejected": [OTHER]},
        {"chosen": [USER, ANSWER], "rejected": [USER, OTHER]},
        {"prompt": "2+3", "chosen": [USER, ANSWER], "rejected": [USER, OTHER]},
    ],
)
def test_pairs_with_a_prompt_and_with_an_implicit_one(row):
    chosen, rejected = forms.pair(row)
    assert spoken(chosen) == (PAIR[0], PAIR[1]) and spoken(rejected) == (PAIR[0], PAIR[2])


def test_an_implicit_prompt_ends_before_the_last_turn_that_both_take():
    worse = {**RESULT, "content": "error"}
    chosen, rejected = forms.pair(
        {"chosen": [USER, CALLING, RESULT, ANSWER], "rejected": [USER, CALLING, worse, OTHER]}
    )
    assert len(chosen.prompt) == len(rejected.prompt) == 1
    chosen, _ = forms.pair(
        {"chosen": [USER, CALLING, RESULT, ANSWER], "rejected": [USER, CALLING, RESULT, OTHER]}
    )
    assert [m.role for m in chosen.prompt] == [Role.USER, Role.ASSISTANT, Role.TOOL]


BAD_PAIRS = [
    ({"prompt": "a", "chosen": "b"}, Flaw.MISSING_SIDE, "rejected is missing"),
    ({"prompt": "a", "rejected": "b"}, Flaw.MISSING_SIDE, "chosen is missing"),
    ({"prompt": "a", "chosen": "b", "rejected": ""}, Flaw.EMPTY_TARGET, "rejected is an empty"),
    ({"chosen": "a b", "rejected": "a c"}, Flaw.MISSING_SIDE, "inside a text"),
    ({"prompt": "a", "chosen": "b", "rejected": [OTHER]}, Flaw.FORM, "one side is text"),
    ({"prompt": "a", "chosen": "b", "rejected": "b"}, Flaw.EQUAL_SIDES, "say the same"),
    ({"chosen": [ANSWER], "rejected": [OTHER]}, Flaw.MISSING_SIDE, "share no prompt"),
]


@pytest.mark.parametrize(("row", "flaw", "detail"), BAD_PAIRS, ids=range(len(BAD_PAIRS)))
def test_bad_pairs(tmp_path, row, flaw, detail):
    good = {"prompt": "2+3", "chosen": "5", "rejected": "6"}
    (dropped,) = gathered(lines(tmp_path, good, row), "skip", forms.pair).dropped
    assert (dropped.row, dropped.flaw) == (2, flaw) and detail in dropped.detail


def test_labels():
    row = {"prompt": "2+3", "completion": "5", "label": False}
    dialogue, good = forms.labelled(row)
    assert not good and dialogue.turns[0].message.content == "5"
    for label, flaw in ((None, Flaw.MISSING_SIDE), (1, Flaw.FORM)):
        with pytest.raises(Exception, match="label") as caught:
            forms.labelled({**row, "label": label})
        assert caught.value.flaw is flaw
