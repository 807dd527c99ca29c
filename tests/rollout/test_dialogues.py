"""Recorded conversations as episodes: exactly the assistant's tokens are actions."""

from dataclasses import replace

import numpy as np
import pytest
from calculator_world import make_world
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexad.contract.admission import admit, admit_group
from hexad.contract.faults import UserError
from hexad.contract.needs import Needs
from hexad.contract.segment import SpanKind
from hexad.data_sets.bad import BadRow, Flaw
from hexad.data_sets.forms import demonstration, pair
from hexad.policy.load import load_policy
from hexad.policy.template import Template
from hexad.rollout.dialogues import Chats, Scribe
from hexad.rollout.imitate import weighed

POLICY = load_policy("builtin:tiny", seed=0)
WORLD = make_world(POLICY)
WORLD = replace(WORLD, limits=WORLD.limits.model_copy(update={"context_tokens": 2048}))
SCRIBE = Scribe(WORLD, Chats(POLICY.chat), "data")
TOOL = {"name": "look_up", "description": "Look", "parameters": {"type": "object"}}

text = st.text(st.characters(codec="utf-8", categories=("L", "Nd", "Po", "Zs")), max_size=9)
TAME = text.map(lambda each: "a" + each.replace("\\", "").replace('"', ""))
WEIGHT = st.sampled_from([0, 1, 0.5, None])


@st.composite
def rows(draw):
    """A row of messages, with and without tools."""
    tools = draw(st.booleans())
    messages = [{"role": "system", "content": draw(TAME)}] if draw(st.booleans()) else []
    messages.append({"role": "user", "content": draw(TAME)})
    for _ in range(draw(st.integers(0, 3))):
        if tools and draw(st.booleans()):
            value = draw(st.dictionaries(TAME, st.integers() | TAME, max_size=2))
            calls = [{"name": "look_up", "arguments": value}] * draw(st.integers(1, 2))
            messages.append({"role": "assistant", "tool_calls": calls, "weight": draw(WEIGHT)})
            messages += [{"role": "tool", "content": draw(TAME)} for _ in calls]
        else:
            said = {"role": "assistant", "content": draw(TAME), "weight": draw(WEIGHT)}
            messages += [said, {"role": "user", "content": draw(TAME)}]
    messages.append({"role": "assistant", "content": draw(TAME)})
    trailing = [{"role": "user", "content": draw(TAME)}] if draw(st.booleans()) else []
    return {"messages": messages + trailing, **({"tools": [TOOL]} if tools else {})}


def assistant_tokens(ids):
    """The turn of every token of ``ids``, -1 outside assistant turns, read off the ids alone.

    An assistant's turn is what stands between its header and the next ``<|im_end|>``, that too.
    """
    tokenizer = POLICY.tokenizer
    header = tokenizer("<|im_start|>assistant\n", add_special_tokens=False)["input_ids"]
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    owner, at, turn = np.full(len(ids), -1), 0, 0
    while at < len(ids):
        if ids[at : at + len(header)] == header:
            start = at + len(header)
            at = ids.index(end, start) + 1
            owner[start:at], turn = turn, turn + 1
        else:
            at += 1
    return owner


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(row=rows())
def test_masks_cover_exactly_the_assistants_tokens_of_the_one_shot_render(row):
    dialogue = demonstration(row)
    (segment,) = SCRIBE.episode(dialogue, "row-1").segments
    said = [*dialogue.prompt, *(each.message for each in dialogue.turns)]
    template = Template(POLICY.tokenizer, dialogue.tools or ())
    whole = template.ids(template.text(said, header=False)).tolist()
    owner = assistant_tokens(segment.ids.tolist())
    # A conversation that ends in a turn keeps no separator behind it.
    assert whole[: len(segment)] == segment.ids.tolist() and len(whole) - len(segment) <= 1
    assert segment.action.tolist() == (owner >= 0).tolist()
    weights = [each.weight for each in dialogue.turns if each.acts]
    expected = [weights[turn] if turn >= 0 else 0.0 for turn in owner]
    assert segment.weight.tolist() == expected
    assert segment.turn[segment.action].tolist() == owner[owner >= 0].tolist()


def test_a_row_is_admitted_for_imitation_and_named_by_its_prompt():
    row = {"prompt": "2+3", "completion": "5"}
    one, two = (SCRIBE.episode(demonstration(row), name) for name in ("row-1", "row-2"))
    assert admit(one, Needs.for_sft()) == [] and admit_group([one, two], Needs.for_sft()) == []
    assert one.task_id == two.task_id and one.costs.sampled_tokens == 0
    other = SCRIBE.episode(demonstration({**row, "prompt": "2+4"}), "row-3")
    assert other.task_id != one.task_id


def test_rows_with_other_tools_stand_in_one_batch():
    plain = {"prompt": "2+3", "completion": "5"}
    episodes = [
        SCRIBE.episode(demonstration(row), f"row-{i}")
        for i, row in enumerate([plain, {**plain, "tools": [TOOL]}, {**plain, "tools": []}])
    ]
    assert admit_group(episodes, Needs.for_sft()) == []
    lengths = [len(episode.segments[0]) for episode in episodes]
    assert lengths[0] == lengths[2] < lengths[1]


def test_the_environments_tools_may_be_offered_in_every_row():
    shown = replace(SCRIBE, own_tools=False).episode(
        demonstration({"prompt": "2+3", "completion": "5", "tools": [TOOL]}), "row-1"
    )
    text = POLICY.tokenizer.decode(shown.segments[0].ids)
    assert "calculate" in text and "look_up" not in text


def test_history_in_a_prompt_is_no_action():
    user, answer = {"role": "user", "content": "q"}, {"role": "assistant", "content": "history"}
    row = {"prompt": [user, answer, user], "completion": [{**answer, "content": "5"}]}
    (segment,) = SCRIBE.episode(demonstration(row), "row-1").segments
    assert POLICY.tokenizer.decode(segment.ids[segment.action]) == "5<|im_end|>"
    assert {s.turn for s in segment.spans if s.kind is SpanKind.TEXT} == {0}


def test_a_pair_begins_in_one_state():
    sides = pair({"prompt": "2+3", "chosen": "5", "rejected": "6"})
    chosen, rejected = (SCRIBE.episode(side, f"r-{i}") for i, side in enumerate(sides))
    assert chosen.initial_state == rejected.initial_state and chosen.task_id == rejected.task_id


def test_what_cannot_be_rendered_or_is_too_long_is_a_bad_row():
    long = {"prompt": "a " * 3000, "completion": "5"}
    with pytest.raises(BadRow, match=r"task\.limits\.context_tokens is 2048") as caught:
        SCRIBE.episode(demonstration(long), "row-1")
    assert caught.value.flaw is Flaw.TOO_LONG

    class Picky:
        def prompt(self, messages):
            raise UserError("the chat template cannot render it")

    picky = replace(SCRIBE, chats=Chats(lambda tools: Picky()))
    with pytest.raises(BadRow, match="cannot render it") as caught:
        picky.episode(demonstration({"prompt": "2+3", "completion": "5"}), "row-1")
    assert caught.value.flaw is Flaw.TEMPLATE


def test_weights_are_by_turn_and_on_actions_only():
    row = {
        "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}] * 2
    }
    (segment,) = SCRIBE.episode(demonstration(row), "row-1").segments
    found = weighed(segment, [0.0, 2.0])
    assert set(found.weight[found.action & (found.turn == 0)]) == {0.0}
    assert set(found.weight[found.action & (found.turn == 1)]) == {2.0}
    assert not found.weight[~found.action].any()
