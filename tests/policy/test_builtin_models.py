"""The built-in models: size, seed, tokenizer, and the folder that others can open."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from hexad.contract.faults import UserError
from hexad.contract.messages import AssistantTurn, Message, Role, ToolCall
from hexad.environments.calculator import CalculatorFamily
from hexad.policy import builtin
from hexad.policy.load import load_policy

ROOT = Path(__file__).resolve().parents[2]
SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
TOKENIZER = builtin.tokenizer()


def ids_of(text: str) -> list[int]:
    return TOKENIZER(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize(("name", "millions"), [("tiny", 0.16), ("small", 0.9)])
def test_the_models_have_their_declared_size(name, millions):
    model = load_policy(f"builtin:{name}", seed=0).model
    assert model.num_parameters() / 1e6 == pytest.approx(millions, rel=0.06)
    assert model.config.max_position_embeddings >= 1024
    assert model.lm_head.weight is model.get_input_embeddings().weight


def test_the_seed_alone_decides_the_weights_and_global_state_is_untouched():
    torch.manual_seed(7)
    expected = torch.rand(4)
    torch.manual_seed(7)
    first = load_policy("builtin:tiny", seed=3)
    assert torch.equal(torch.rand(4), expected)
    torch.manual_seed(8)
    assert load_policy("builtin:tiny", seed=3).lineage() == first.lineage()
    assert load_policy("builtin:tiny", seed=4).lineage() != first.lineage()


def test_the_first_model_is_close_to_uniform_and_trainable():
    model = load_policy("builtin:tiny", seed=0).model
    loss = model(torch.arange(64)[None], labels=torch.arange(64)[None]).loss
    assert loss.item() == pytest.approx(torch.log(torch.tensor(512.0)).item(), abs=0.3)
    loss.backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


def test_an_unknown_builtin_names_the_known_ones():
    with pytest.raises(UserError, match="builtin:tiny, builtin:small"):
        load_policy("builtin:huge", seed=0)


def test_the_type_of_the_weights_is_chosen():
    policy = load_policy("builtin:tiny", seed=0, dtype=torch.bfloat16)
    assert policy.model.dtype == torch.bfloat16
    assert policy.precision == "bfloat16"


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40))
def test_any_text_survives_the_tokenizer(text):
    assert TOKENIZER.decode(ids_of(text), skip_special_tokens=False) == text


@pytest.mark.parametrize("token", SPECIAL)
def test_special_tokens_are_one_id(token):
    assert ids_of(f"a{token}7") == [*ids_of("a"), *ids_of(token), *ids_of("7")]
    assert len(ids_of(token)) == 1


def test_digits_and_operators_are_always_tokens_of_their_own():
    texts = [TOKENIZER.decode([token]) for token in range(len(TOKENIZER))]
    mixed = [t for t in texts if len(t) > 1 and any(c in "0123456789+-*/=" for c in t)]
    assert set(mixed) <= {*SPECIAL, "</tools>", "/tools>"}
    assert [TOKENIZER.decode([t]) for t in ids_of('{"a": -12, "op": "+"}')] == [
        '{"a": ',
        "-",
        "1",
        "2",
        ', "op": "',
        "+",
        '"}',
    ]


def test_the_calculator_is_short_in_tokens():
    policy = load_policy("builtin:tiny", seed=0)
    chat = policy.chat(CalculatorFamily().tools)
    turn = AssistantTurn("", (ToolCall("calculate", {"a": 3, "op": "+", "b": 4}),))
    ids = chat.encode(turn)
    assert len(chat.prompt([Message(Role.USER, "3")]).ids) <= 60
    assert len(ids) == 13
    assert len(chat.follow(ids, [Message(Role.TOOL, "7", "calculate")]).ids) == 12


def test_the_shipped_tokenizer_is_what_its_script_makes(tmp_path):
    script = ROOT / "tools" / "make_tokenizer.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True)
    made = (tmp_path / "tokenizer.json").read_bytes()
    assert made == (builtin.ASSETS / "tokenizer.json").read_bytes()


def test_a_saved_policy_opens_with_transformers_and_gives_equal_logits(tmp_path):
    policy = load_policy("builtin:tiny", seed=1)
    policy.save(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    prompt = policy.chat(CalculatorFamily().tools).prompt([Message(Role.USER, "3")])
    ids = torch.from_numpy(prompt.ids.astype("int64"))[None]
    with torch.no_grad():
        assert torch.equal(model(ids).logits, policy.model(ids).logits)
    text = "<|im_start|>user\nünï 3+4<|im_end|>\n"
    assert tokenizer(text)["input_ids"] == ids_of(text)
    assert tokenizer.chat_template == policy.tokenizer.chat_template
    assert model.generation_config.eos_token_id == list(policy.stop_ids) == [0, 2]
    assert {path.suffix for path in tmp_path.iterdir()} <= {".json", ".jinja", ".safetensors"}


def test_the_digests_name_the_parts():
    policy = load_policy("builtin:tiny", seed=0)
    other = load_policy("builtin:tiny", seed=1)
    assert policy.tokenizer_digest == other.tokenizer_digest
    assert policy.template_digest == other.template_digest
    other.tokenizer.chat_template += " "
    changed = load_policy("builtin:tiny", seed=0)
    changed.tokenizer.chat_template += " "
    assert changed.template_digest != policy.template_digest
    changed.tokenizer.add_tokens(["new"])
    assert changed.tokenizer_digest != policy.tokenizer_digest


def test_the_lineage_follows_every_bit_of_the_weights():
    policy = load_policy("builtin:tiny", seed=0)
    before = policy.lineage()
    with torch.no_grad():
        weight = policy.model.model.norm.weight
        weight[3] = torch.nextafter(weight[3], torch.tensor(2.0))
    assert policy.lineage() != before
    assert load_policy("builtin:tiny", seed=0, dtype=torch.bfloat16).lineage() != before
