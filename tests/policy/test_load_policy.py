"""Loading from folders, runs and checkpoints; what is missing or broken is named."""

import json
import shutil
from pathlib import Path

import other_templates as others
import pytest
import torch
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM

from hexad.contract.faults import UserError
from hexad.contract.messages import Message, Role, ToolSchema
from hexad.policy.load import load_policy
from hexad.policy.policy import Policy

TOOL = ToolSchema("look_up", "Look up a word", {"type": "object", "properties": {}})


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "model"
    load_policy("builtin:tiny", seed=5).save(folder)
    return folder


@pytest.fixture
def model(saved, tmp_path) -> Path:
    """A copy that a test may break."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def edit(path: Path, **changes) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | changes))


def same(left: Policy, right: Policy) -> bool:
    parts = ("stop_ids", "max_context", "tokenizer_digest", "template_digest", "precision")
    equal = all(getattr(left, part) == getattr(right, part) for part in parts)
    return equal and left.lineage() == right.lineage()


def test_a_saved_folder_loads_as_the_same_policy(saved):
    loaded = load_policy(str(saved), seed=0)
    assert same(loaded, load_policy("builtin:tiny", seed=5))
    assert loaded.name == str(saved)
    assert not loaded.model.training
    assert loaded.model.config._attn_implementation == "sdpa"


def test_loading_touches_no_global_random_state(saved):
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    load_policy(str(saved), seed=0)
    assert torch.equal(torch.rand(2), expected)


def test_the_type_of_the_weights_is_chosen_when_loading(saved):
    assert load_policy(str(saved), seed=0, dtype=torch.bfloat16).precision == "bfloat16"


def test_a_run_gives_its_newest_whole_checkpoint(saved, tmp_path):
    run = tmp_path / "run"
    for step, whole in ((2, True), (10, True), (30, False)):
        policy = load_policy("builtin:tiny", seed=step)
        folder = run / "checkpoints" / f"step_{step}"
        policy.save(folder / "policy")
        if whole:
            (folder / "manifest.json").write_text("{}")
    (run / "checkpoints" / "step_99.tmp").mkdir()
    newest = load_policy("builtin:tiny", seed=10)
    assert same(load_policy(str(run), seed=0), newest)
    assert same(load_policy(str(run / "checkpoints" / "step_10"), seed=0), newest)
    with pytest.raises(UserError, match="not whole"):
        load_policy(str(run / "checkpoints" / "step_30"), seed=0)


def test_a_run_without_a_whole_checkpoint_says_so(tmp_path):
    (tmp_path / "checkpoints" / "step_3").mkdir(parents=True)
    with pytest.raises(UserError, match="no whole checkpoint"):
        load_policy(str(tmp_path), seed=0)


@pytest.mark.parametrize("name", ["./nothing", "/nothing/here", "~/nothing", "a/b/c", "a b"])
def test_a_missing_folder_is_named_with_what_was_tried(name):
    with pytest.raises(UserError, match="there is no model") as caught:
        load_policy(name, seed=0)
    assert name in str(caught.value) and "tried the folder" in caught.value.fix


def test_a_missing_folder_beside_others_is_never_looked_up_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(UserError, match="there is no model runs/one"):
        load_policy("runs/one", seed=0)


def test_a_missing_id_names_what_was_tried():
    with pytest.raises(UserError, match="nobody/nothing-at-all cannot be loaded") as caught:
        load_policy("nobody/nothing-at-all", seed=0)
    assert "local Hugging Face cache" in caught.value.fix


class _Unreachable(Exception):
    pass


def test_an_id_that_the_hub_cannot_give_is_not_tried_for_long(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    asked = []

    def unreachable(self, name, timeout):
        asked.append((name, timeout))
        raise _Unreachable("no route")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", unreachable)
    with pytest.raises(UserError, match="does not give it: no route") as caught:
        load_policy("nobody/nothing-at-all", seed=0)
    assert asked == [("nobody/nothing-at-all", 10.0)]
    assert "cache, then the hub" in caught.value.fix


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot be loaded"):
        load_policy(str(tmp_path), seed=0)


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "generation_config.json"]
)
@pytest.mark.parametrize("content", [b"", b"{broken", b"[]", b"\xff\xfe"])
def test_a_broken_file_is_one_clear_error(model, name, content):
    (model / name).write_bytes(content)
    with pytest.raises(UserError, match="cannot be loaded"):
        load_policy(str(model), seed=0)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_an_empty_description_is_one_clear_error(model, name):
    (model / name).write_text("{}")
    with pytest.raises(UserError, match="cannot be loaded"):
        load_policy(str(model), seed=0)


def test_a_tokenizer_of_an_unknown_kind_is_one_clear_error(model):
    (model / "tokenizer.json").write_text('{"added_tokens": [], "model": {"type": "Nope"}}')
    with pytest.raises(UserError, match="cannot be loaded"):
        load_policy(str(model), seed=0)


def test_a_half_written_weights_file_is_one_clear_error(model):
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(UserError, match="cannot be loaded"):
        load_policy(str(model), seed=0)


def test_missing_weights_are_never_initialised_at_random(model):
    edit(model / "config.json", num_hidden_layers=4, layer_types=["full_attention"] * 4)
    with pytest.raises(UserError, match=r"its weights lack model\.layers\.3"):
        load_policy(str(model), seed=0)


def test_weights_of_another_shape_are_refused(model):
    edit(model / "config.json", intermediate_size=192)
    with pytest.raises(UserError, match="cannot be loaded"):
        load_policy(str(model), seed=0)


def test_pickled_weights_are_not_read(model):
    (model / "model.safetensors").unlink()
    torch.save({}, model / "pytorch_model.bin")
    with pytest.raises(UserError, match="cannot be loaded"):
        load_policy(str(model), seed=0)


def test_code_of_a_model_is_not_run(model):
    marker = model / "ran"
    (model / "own.py").write_text(f"open({str(marker)!r}, 'w')\n")
    edit(
        model / "config.json",
        model_type="own",
        auto_map={"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"},
    )
    with pytest.raises(UserError, match="cannot be loaded"):
        load_policy(str(model), seed=0)
    assert not marker.exists()


def test_all_stop_ids_of_the_generation_config_count(model):
    edit(model / "generation_config.json", eos_token_id=[0, 9])
    assert load_policy(str(model), seed=0).stop_ids == (0, 2, 9)
    edit(model / "generation_config.json", eos_token_id=9)
    assert load_policy(str(model), seed=0).stop_ids == (2, 9)


def test_a_repetition_penalty_of_the_generation_config_is_refused(model):
    edit(model / "generation_config.json", repetition_penalty=1.1)
    with pytest.raises(UserError, match=r"repetition_penalty = 1\.1"):
        load_policy(str(model), seed=0)


def test_a_model_without_a_chat_template_is_refused(model):
    (model / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match="no chat template"):
        load_policy(str(model), seed=0)


def test_a_template_without_tools_is_refused_when_tools_are_needed(model):
    (model / "chat_template.jinja").write_text(others.TOOLLESS)
    policy = load_policy(str(model), seed=0)
    assert len(policy.chat(()).prompt([Message(Role.USER, "hi")]).ids)
    with pytest.raises(UserError, match="a template without tools"):
        policy.chat((TOOL,))


def test_a_tokenizer_larger_than_the_model_is_refused(model):
    policy = load_policy(str(model), seed=0)
    policy.tokenizer.add_tokens(["new"])
    policy.tokenizer.save_pretrained(model)
    with pytest.raises(UserError, match="513 ids, the model 512"):
        load_policy(str(model), seed=0)


def test_another_model_with_another_tokenizer_makes_the_round_trip(tmp_path):
    tokenizer = others.llama()
    config = LlamaConfig(
        vocab_size=len(tokenizer) + 16,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=256,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    policy = load_policy(str(tmp_path), seed=0)
    assert policy.max_context == 256
    assert tokenizer.eos_token_id in policy.stop_ids
    text = "<|begin_of_text|>héllo {3+4}\n\n"
    assert (
        policy.tokenizer(text, add_special_tokens=False)["input_ids"]
        == (tokenizer(text, add_special_tokens=False)["input_ids"])
    )
    policy.save(tmp_path / "again")
    assert same(policy, load_policy(str(tmp_path / "again"), seed=0))
    assert AutoConfig.from_pretrained(tmp_path / "again").model_type == "llama"
