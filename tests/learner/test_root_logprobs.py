import pytest
import torch
from learner_world import episode, random_episodes, segment, tiny
from torch import nn
from transformers import AutoModelForCausalLM, Gemma2Config, GPT2Config, GraniteConfig

from hexad.learner.assemble import assemble
from hexad.learner.pack import layouts, pack
from hexad.learner.root import Root


class Table(nn.Module):
    """A "language model" whose logits after token i are row i of a table."""

    def __init__(self, table):
        super().__init__()
        self.table = nn.Parameter(torch.tensor(table, dtype=torch.float64))

    def get_output_embeddings(self):
        return None

    def forward(self, input_ids, use_cache):
        return type("Output", (), {"logits": self.table[input_ids]})()


def scored(root, batch, limit=10_000, temperature=1.0):
    found = torch.full((len(batch.ids),), torch.nan, dtype=torch.float64)
    for micro in pack(batch, layouts(batch, batch.action), limit):
        logprob, *_ = root(micro.ids, micro.select, micro.targets, temperature)
        found[micro.tokens] = logprob.detach().double()
    return found[batch.action]


def test_a_two_token_row_by_hand():
    """ids 1, 0: the logits of token 1 predict the action 0."""
    batch = assemble([episode("a", [segment([1, 0], [0, 1])])])
    root = Root(Table([[9.0, 9.0], [1.0, 3.0]]))
    assert scored(root, batch).tolist() == pytest.approx([-2.126928], abs=1e-6)


def test_field_case_o04_temperature():
    batch = assemble([episode("a", [segment([0, 1], [0, 1])])])
    model = Table([[2.0, 1.0, 0.0]] * 3)
    (micro,) = pack(batch, layouts(batch, batch.action), 100)
    logprob, entropy, *_ = Root(model)(micro.ids, micro.select, micro.targets, 0.5)
    assert logprob.item() == pytest.approx(-2.142932, abs=1e-6)
    (gradient,) = torch.autograd.grad(logprob.sum(), model.table)
    assert gradient[0].tolist() == pytest.approx([-1.73363, 1.76538, -0.03175], abs=1e-5)
    p = torch.softmax(torch.tensor([4.0, 2.0, 0.0], dtype=torch.float64), -1)
    assert entropy.item() == pytest.approx(float(-(p * p.log()).sum()))
    assert not entropy.requires_grad
    raw, *_ = Root(model)(micro.ids, micro.select, micro.targets, 1.0)
    assert raw.item() == pytest.approx(-1.407606, abs=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_selected_log_probs_equal_a_full_forward_of_each_row(temperature):
    model = tiny().model
    batch = assemble(random_episodes(1))
    expected = []
    for row in range(len(batch.offsets) - 1):
        start, end = batch.offsets[row : row + 2].tolist()
        ids, action = batch.ids[start:end], batch.action[start:end]
        logs = torch.log_softmax(model(ids[None]).logits[0] / temperature, -1)
        expected.append(logs[:-1].gather(1, ids[1:, None])[:, 0][action[1:]])
    found = scored(Root(model), batch, temperature=temperature)
    assert torch.allclose(found, torch.cat(expected).detach(), atol=1e-12)


@pytest.mark.parametrize("limit", [1, 30, 90])
def test_padding_and_split_change_no_log_prob(limit):
    root = Root(tiny().model)
    batch = assemble(random_episodes(2))
    assert torch.allclose(scored(root, batch, limit), scored(root, batch), atol=1e-12)


@pytest.mark.parametrize(
    "config",
    [
        Gemma2Config(
            final_logit_softcapping=1.5, head_dim=8, sliding_window=8, attn_logit_softcapping=5.0
        ),
        GraniteConfig(logits_scaling=3.0),
        GPT2Config(n_layer=2, n_embd=16, n_head=2, attn_pdrop=0.3, resid_pdrop=0.3),
    ],
    ids=["soft cap", "logit scale", "gpt2"],
)
def test_whatever_a_model_does_to_its_logits_still_applies(config):
    shape = {
        "vocab_size": 32,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    }
    for name, value in shape.items():
        if config.model_type != "gpt2" or name == "vocab_size":
            setattr(config, name, value)
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        setattr(config, name, None)
    if config.model_type == "gemma2":
        config.layer_types = ["sliding_attention", "full_attention"]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float64).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(20.0) if parameter.ndim == 2 else None
    batch = assemble([episode("a", [segment(range(1, 20), [0] * 12 + [1] * 7)])])
    logs = torch.log_softmax(model(batch.ids[None]).logits[0].double(), -1)
    expected = logs[11:18].gather(1, batch.ids[12:, None])[:, 0].detach()
    found = scored(Root(model), batch)
    assert torch.allclose(found, expected, atol=1e-9)
    assert expected.std() > 0.01


def test_logits_exist_only_at_selected_positions():
    policy = tiny()
    shapes = []
    head = policy.model.get_output_embeddings()
    head.register_forward_hook(lambda module, args, output: shapes.append(tuple(output.shape)))
    batch = assemble([episode("a", [segment(range(20), [0] * 18 + [1] * 2)])])
    scored(Root(policy.model), batch)
    assert shapes == [(1, 2, 32)]
    assert not head._forward_pre_hooks


def test_the_softmax_is_in_float32_under_bfloat16():
    batch = assemble(random_episodes(1, groups=1))
    root = Root(tiny(dtype=torch.bfloat16).model)
    (micro,) = pack(batch, layouts(batch, batch.action), 10_000)
    logprob, entropy, *_ = root(micro.ids, micro.select, micro.targets, 1.0)
    assert logprob.dtype == entropy.dtype == torch.float32
    exact = Root(tiny(dtype=torch.float64).model)(micro.ids, micro.select, micro.targets, 1.0)[0]
    assert exact.dtype == torch.float64
    # Rounded to bfloat16, a log-prob near -3 would be a multiple of 1/64.
    assert (logprob * 64 % 1 != 0).float().mean() > 0.9
