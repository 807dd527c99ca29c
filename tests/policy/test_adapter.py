"""LoRA adapters: what they add, on what, and that a sampler never keeps an old one."""

import asyncio
import json
import shutil

import numpy as np
import pytest
import torch
from engine_bench import policy_of, qwen, ragged, request, run
from safetensors.torch import load_file, save_file

from hexad.contract.faults import ContractViolation, UserError
from hexad.policy import adapter as adapters
from hexad.policy.adapter import Base
from hexad.policy.load import load_policy
from hexad.policy.local import LocalEngine
from hexad.recipe.axes import AdapterSpec

SPEC = AdapterSpec(rank=4, alpha=8)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "model"
    load_policy("builtin:tiny", seed=5).save(folder)
    return folder


def moved(model, seed=0, size=0.1):
    """The adapter after some training: B is no longer zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, value in adapters.trained(model):
            value.add_(torch.randn(value.shape, generator=generator).to(value) * size)
    return model


def adapted(model, spec=SPEC, seed=0):
    adapters.attach(model, spec, seed)
    return moved(model, seed)


def logits(model):
    with torch.no_grad():
        return model(torch.arange(3, 40)[None]).logits[0]


def test_the_matrix_by_hand():
    """W + alpha / rank B A: rank 1, alpha 2, B = (3, 0)', A = (1, 2) add (6, 12; 0, 0)."""
    model = qwen(hidden_size=32)
    spec = AdapterSpec(rank=1, alpha=2, targets=("q_proj",))
    adapters.attach(model, spec, 0)
    linear = model.model.layers[0].self_attn.q_proj
    before = linear.base_layer.weight.detach().clone()
    with torch.no_grad():
        for name, value in (("lora_A", (1.0, 2.0)), ("lora_B", (3.0, 0.0))):
            weight = getattr(linear, name)["default"].weight
            weight.zero_().view(-1)[:2] = torch.tensor(value)
    added = adapters.whole_weight(linear) - before
    expected = torch.zeros_like(before)
    expected[0, :2] = torch.tensor([6.0, 12.0])
    torch.testing.assert_close(added, expected, atol=1e-5, rtol=0)


def test_a_fresh_adapter_changes_no_number_and_alone_trains(base):
    plain, fresh = load_policy(str(base), seed=0), load_policy(str(base), seed=0, adapter=SPEC)
    assert torch.equal(logits(plain.model), logits(fresh.model))
    names = [name for name, _ in adapters.trained(fresh.model)]
    assert names and all(".lora_" in name for name in names)
    assert sorted(fresh.weights()) == sorted(names)
    assert len(names) == 2 * 7 * len(fresh.model.model.layers)
    assert set(plain.weights()) == set(plain.model.state_dict())


def test_the_seed_alone_draws_it_and_global_random_state_is_left_alone(base):
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    first = load_policy(str(base), seed=3, adapter=SPEC)
    assert torch.equal(torch.rand(2), expected)
    assert first.lineage() == load_policy(str(base), seed=3, adapter=SPEC).lineage()
    assert first.lineage() != load_policy(str(base), seed=4, adapter=SPEC).lineage()


def test_a_saved_adapter_is_the_same_policy_and_peft_opens_it(base, tmp_path):
    from peft import PeftModel

    made = load_policy(str(base), seed=0, adapter=SPEC)
    moved(made.model)
    made.save(tmp_path / "a")
    assert "model.safetensors" not in {path.name for path in (tmp_path / "a").iterdir()}
    again = load_policy(str(tmp_path / "a"), seed=9, adapter=SPEC)
    assert again.lineage() == made.lineage() and again.base == made.base
    assert again.adapter == made.adapter != "none"
    assert torch.equal(logits(again.model), logits(made.model))
    theirs = PeftModel.from_pretrained(load_policy(str(base), seed=0).model, str(tmp_path / "a"))
    torch.testing.assert_close(logits(theirs), logits(made.model))


def test_without_an_adapter_of_its_own_a_recipe_gets_it_merged(base, tmp_path):
    made = load_policy(str(base), seed=0, adapter=SPEC)
    moved(made.model)
    made.save(tmp_path / "a")
    merged = load_policy(str(tmp_path / "a"), seed=0)
    assert merged.adapter == "none" and merged.base is None
    assert not adapters.adapted(merged.model)
    assert all(p.requires_grad for p in merged.model.parameters())
    gap = (logits(merged.model) - logits(made.model)).abs().max()
    assert (
        gap < 2e-5 < (logits(made.model) - logits(load_policy(str(base), seed=0).model)).abs().max()
    )
    merged.save(tmp_path / "whole")
    assert load_policy(str(tmp_path / "whole"), seed=0).lineage() == merged.lineage()


def test_a_merge_that_rounds_the_adapter_away_is_refused(base, tmp_path):
    half = {"seed": 0, "dtype": torch.bfloat16}
    load_policy(str(base), **half, adapter=SPEC).save(tmp_path / "a")
    with pytest.raises(UserError, match="round away") as caught:
        load_policy(str(tmp_path / "a"), **half)
    assert caught.value.where == "system.dtype"
    assert adapters.adapted(load_policy(str(tmp_path / "a"), **half, adapter=SPEC).model)


def test_an_adapter_on_weights_of_another_type_is_refused_as_that(base, tmp_path):
    load_policy(str(base), seed=0, adapter=SPEC).save(tmp_path / "a")
    for spec in (SPEC, None):
        with pytest.raises(UserError, match="on float32 weights, and these are bfloat16") as caught:
            load_policy(str(tmp_path / "a"), seed=0, dtype=torch.bfloat16, adapter=spec)
        assert caught.value.where == "system.dtype"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (AdapterSpec(rank=8, alpha=8), "r: 4 there"),
        (AdapterSpec(rank=4, alpha=16), "lora_alpha: 8 there"),
        (AdapterSpec(rank=4, alpha=8, targets=("q_proj",)), "target_modules"),
    ],
)
def test_another_adapter_than_the_recipe_asks_for_is_refused(base, tmp_path, spec, said):
    load_policy(str(base), seed=0, adapter=SPEC).save(tmp_path / "a")
    with pytest.raises(UserError, match="another adapter") as caught:
        load_policy(str(tmp_path / "a"), seed=0, adapter=spec)
    assert said in str(caught.value)


def test_an_adapter_on_other_weights_than_its_own_is_refused(base, tmp_path):
    """Field case O13's kin: a base that moved on would be another policy without a word."""
    own = shutil.copytree(base, tmp_path / "base")
    load_policy(str(own), seed=0, adapter=SPEC).save(tmp_path / "a")
    weights = load_file(own / "model.safetensors")
    name = next(iter(weights))
    save_file({**weights, name: weights[name] + 1e-3}, own / "model.safetensors", {"format": "pt"})
    for spec in (SPEC, None):
        with pytest.raises(UserError, match="trained on other weights"):
            load_policy(str(tmp_path / "a"), seed=0, adapter=spec)


@pytest.mark.parametrize("targets", [("nope",), ("embed_tokens",), ("lm_head",)])
def test_what_cannot_carry_one_is_refused(base, targets):
    with pytest.raises(UserError, match="cannot be attached"):
        load_policy(str(base), seed=0, adapter=AdapterSpec(targets=targets))


def test_a_model_that_begins_at_random_is_refused():
    with pytest.raises(UserError, match="begins at random"):
        load_policy("builtin:tiny", seed=0, adapter=SPEC)


def broken(folder, how):
    if how == "no weights":
        (folder / adapters.WEIGHTS).unlink()
    elif how == "a pickle in their place":
        torch.save({"x": torch.zeros(1)}, folder / "adapter_model.bin")
        (folder / adapters.WEIGHTS).unlink()
    elif how == "torn":
        data = (folder / adapters.WEIGHTS).read_bytes()
        (folder / adapters.WEIGHTS).write_bytes(data[: len(data) // 2])
    elif how == "one matrix less":
        weights = load_file(folder / adapters.WEIGHTS)
        weights.pop(next(iter(weights)))
        save_file(weights, folder / adapters.WEIGHTS)
    else:
        content = json.loads((folder / adapters.CONFIG).read_text())
        (folder / adapters.CONFIG).write_text(json.dumps({**content, "peft_type": "IA3"}))


@pytest.mark.parametrize(
    "how", ["no weights", "a pickle in their place", "torn", "one matrix less", "no LoRA"]
)
def test_a_broken_one_is_refused_and_never_unpickled(base, tmp_path, how):
    load_policy(str(base), seed=0, adapter=SPEC).save(tmp_path / "a")
    broken(tmp_path / "a", how)
    with pytest.raises(UserError, match=r"cannot be used|another adapter"):
        load_policy(str(tmp_path / "a"), seed=0, adapter=SPEC)
    if how != "one matrix less":
        with pytest.raises(UserError, match="cannot be used"):
            load_policy(str(tmp_path / "a"), seed=0)


def test_a_copy_shares_the_base_and_nothing_that_trains():
    model = adapted(qwen())
    copy = adapters.copied(model)
    mine, its = dict(model.named_parameters()), dict(copy.named_parameters())
    assert mine.keys() == its.keys()
    for name, value in mine.items():
        assert (value is its[name]) == (".lora_" not in name)
    whole = adapters.copied(qwen())
    assert not adapters.adapted(whole) and all(p.requires_grad for p in whole.parameters())


# -- sampling --------------------------------------------------------------------------------------


def forward(model, done, asked):
    """Log-probs of a completion by the Hugging Face forward."""
    ids = torch.from_numpy(np.concatenate((asked.ids, done.ids)).astype(np.int64))
    with torch.no_grad():
        logs = model(ids[None]).logits[0].float().log_softmax(-1)
    first = len(asked.ids) - 1
    return logs[first:-1].gather(1, ids[first + 1 :, None])[:, 0].numpy()


@pytest.mark.parametrize(("dtype", "path"), [("float32", "lean"), ("bfloat16", "generic")])
def test_the_engine_samples_from_the_adapted_policy(dtype, path):
    """In 16 bits a merged weight would lose what little an adapter adds: there it stays apart."""
    model = adapted(qwen().to(getattr(torch, dtype)))
    engine = LocalEngine(policy_of(model), rows=8)
    assert engine.path == path
    asked = ragged(8)
    done = run(engine, asked)
    gap = max(
        np.abs(forward(model, d, a) - d.logprobs).max() for d, a in zip(done, asked, strict=True)
    )
    assert gap < (1e-5 if dtype == "float32" else 0.1)


@pytest.mark.parametrize("bind", [True, False])
@pytest.mark.parametrize("targets", ["all-linear", ("q_proj", "down_proj")])
def test_a_prompt_seen_before_is_sampled_by_the_new_adapter(bind, targets):
    """Field case O15, on the path of an adapter that is loaded again under its name."""
    model = adapted(qwen(), AdapterSpec(rank=4, alpha=8, targets=targets))
    engine = LocalEngine(policy_of(model), rows=4, bind=bind)
    asked = [request(np.arange(2, 60), "a"), request(np.arange(2, 50), "b")]
    run(engine, asked)
    moved(model, seed=7)
    asyncio.run(engine.publish(None if bind else adapters.moving(model), 1))
    before = engine.stats.cached_tokens
    first = run(engine, asked[:1])[0]
    assert engine.stats.cached_tokens == before
    assert np.abs(forward(model, first, asked[0]) - first.logprobs).max() < 1e-5
    assert set(first.versions.tolist()) == {1}


def test_a_publish_of_other_names_is_refused_before_anything_is_touched():
    model = adapted(qwen())
    engine = LocalEngine(policy_of(model), rows=4, bind=False)
    with pytest.raises(ContractViolation, match="differ in"):
        asyncio.run(engine.publish(model.state_dict(), 1))
    assert engine.version == 0


def test_a_base_without_a_recorded_digest_is_taken_as_named(base, tmp_path):
    """A folder that PEFT itself wrote."""
    load_policy(str(base), seed=0, adapter=SPEC).save(tmp_path / "a")
    (tmp_path / "a" / "adapter_base.json").unlink()
    assert adapters.base_of(tmp_path / "a") == Base(str(base))
    assert load_policy(str(tmp_path / "a"), seed=0, adapter=SPEC).base.digest
