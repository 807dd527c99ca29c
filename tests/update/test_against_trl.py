"""Our losses beside TRL's own: ``GRPOTrainer._compute_loss`` on the same padded log-probs."""

from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from trl.trainer.grpo_trainer import GRPOTrainer

from hexad.update import correction, kl, ratio, unit
from hexad.update.reduce import Index, Reduction, coefficients
from hexad.update.table import SURROGATES

ROWS, WIDTH = 6, 9
LOW, HIGH = 0.2, 0.28


def batch(seed):
    """Padded log-probs of the roles, an advantage a row, and a mask with holes and padding."""
    random = torch.Generator().manual_seed(seed)

    def draw(scale):
        return scale * torch.randn(ROWS, WIDTH, dtype=torch.float64, generator=random)

    old = -1.5 + draw(0.3)
    acts = torch.rand(ROWS, WIDTH, generator=random) < 0.7
    acts[:, 0], acts[0, 5:] = True, False
    advantage = torch.randn(ROWS, dtype=torch.float64, generator=random)
    return {"old": old, "current": old + draw(0.4), "reference": old + draw(0.3)}, advantage, acts


def trl(roles, advantage, acts, **settings):
    """TRL's loss, and its gradient by the current log-probs."""
    current = roles["current"].clone().requires_grad_()
    args = {"delta": None, "use_bias_correction_kl": False, "steps_per_generation": 1}
    args |= {"sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05}
    args |= {key: settings.pop(key) for key in list(settings) if key in args}
    entropies = torch.zeros_like(current)
    trainer = SimpleNamespace(
        args=SimpleNamespace(**args),
        model=SimpleNamespace(training=True),
        accelerator=SimpleNamespace(
            num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x
        ),
        _get_per_token_logps_and_entropies=lambda *a, **k: (current, entropies, None),
        get_off_policy_mask=GRPOTrainer.get_off_policy_mask,
        _metrics={"train": defaultdict(list)},
        **{
            "aux_loss_enabled": False,
            "top_entropy_quantile": 1.0,
            "off_policy_mask_threshold": None,
            "importance_sampling_level": "token",
            "beta": 0.0,
            "loss_type": "grpo",
            "epsilon_low": LOW,
            "epsilon_high": HIGH,
            "use_vllm": False,
            "vllm_importance_sampling_correction": False,
            "current_gradient_accumulation_steps": 1,
            "max_completion_length": WIDTH,
            "_entropy_bonus_enabled": False,
        }
        | settings,
    )
    whole = torch.ones(ROWS, WIDTH, dtype=torch.int64)
    inputs = {
        **{
            f"{part}_{kind}": whole for part in ("prompt", "completion") for kind in ("ids", "mask")
        },
        "tool_mask": acts.long(),
        "advantages": advantage,
        "old_per_token_logps": roles["old"],
        "ref_per_token_logps": roles["reference"],
        "num_items_in_batch": acts.sum(),
    }
    loss = GRPOTrainer._compute_loss(trainer, None, inputs)
    loss.backward()
    return loss.detach(), current.grad


def ours(roles, advantage, acts, name, numbers, reduction, level="token", more=None):
    """Our loss and gradient: a surrogate's terms, flat, times the reducer's factors."""
    current = roles["current"].clone().requires_grad_()
    flat, valid = current.reshape(-1), acts.reshape(-1)
    row = torch.arange(ROWS).repeat_interleave(WIDTH)
    index = Index(row, torch.zeros_like(row), row, row, valid, valid.float())
    log = ratio.update(current=flat, old=roles["old"].reshape(-1), mask=valid)
    if level == "sequence":
        log = unit.combine(log, unit.of(index, "episode"), valid, "mean", "sequence")
    each = advantage[row]
    tensors = {"log_ratio": log, "current": flat, "advantage": each}
    terms = SURROGATES[name].loss(tensors, numbers)
    if more is not None:
        terms = more(terms, flat, log, index, each)
    loss = (coefficients(index, reduction) * torch.where(valid, terms, 0.0)).sum()
    loss.backward()
    return loss.detach(), current.grad


def penalised(weighted):
    """Our terms with the k3 penalty of the reference, which TRL weighs by current / old."""

    def more(roles):
        def add(terms, flat, log, index, advantage):
            reference = roles["reference"].reshape(-1)
            x = ratio.anchored(current=flat, reference=reference, mask=index.valid)
            away = kl.ESTIMATORS["k3"](x)
            return terms + 0.1 * (kl.weighted(away, log, graph=True) if weighted else away)

        return add

    return more


def masked(roles):
    """Our terms where OPSM keeps them."""

    def keep(terms, flat, log, index, advantage):
        gate = correction.opsm(log, advantage, index.episode, index.valid, 0.05)
        return terms * gate.weight

    return keep


BOUNDS = {"low": LOW, "high": HIGH}
EPISODE, TOKEN = Reduction("episode"), Reduction("token")
CASES = {
    "grpo": ({}, ("clip", BOUNDS, EPISODE)),
    "bnpo": ({"loss_type": "bnpo"}, ("clip", BOUNDS, TOKEN)),
    "dapo": ({"loss_type": "dapo"}, ("clip", BOUNDS, TOKEN)),
    "dr_grpo": ({"loss_type": "dr_grpo"}, ("clip", BOUNDS, Reduction("fixed", length=WIDTH))),
    "gspo": ({"importance_sampling_level": "sequence"}, ("clip", BOUNDS, EPISODE, "sequence")),
    "dual clip": ({"delta": 1.5}, ("clip", {**BOUNDS, "dual": 1.5}, EPISODE)),
    "cispo": (
        {"loss_type": "cispo", "epsilon_high": 1.3},
        ("cispo", {"low": 1.0, "high": 0.3}, TOKEN),
    ),
    "sapo": ({"loss_type": "sapo"}, ("sapo", {"tau": 1.0, "tau_negative": 1.05}, EPISODE)),
    "kl": ({"beta": 0.1}, ("clip", BOUNDS, EPISODE, "token", penalised(False))),
    "weighted kl": (
        {"beta": 0.1, "use_bias_correction_kl": True},
        ("clip", BOUNDS, EPISODE, "token", penalised(True)),
    ),
    "opsm": (
        {"off_policy_mask_threshold": 0.05},
        ("clip", BOUNDS, EPISODE, "token", masked),
    ),
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_are_trls(case, seed):
    theirs, (name, numbers, reduction, *rest) = CASES[case]
    roles, advantage, acts = batch(seed)
    level, more = [*rest, "token", None][:2] if len(rest) < 2 else rest
    more = more(roles) if callable(more) else None
    found = ours(roles, advantage, acts, name, numbers, reduction, level, more)
    expected = trl(roles, advantage, acts, **theirs)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    assert bool((expected[1] != 0).any())


def test_the_cases_differ():
    """Otherwise a case would prove nothing beside another."""
    roles, advantage, acts = batch(0)
    losses = {case: round(float(trl(roles, advantage, acts, **CASES[case][0])[0]), 9)
              for case in CASES if case != "dapo"}  # fmt: skip
    assert len(set(losses.values())) == len(losses)
