"""Our preference losses beside TRL's own: ``DPOTrainer._compute_loss`` on the same log-probs."""

from collections import defaultdict
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from trl.trainer.dpo_trainer import DPOTrainer

from hexad.update import preference

PAIRS, WIDTH = 4, 11


def batch(seed):
    """Padded log-probs of both roles, chosen sides first, and their completions."""
    random = torch.Generator().manual_seed(seed)

    def draw(scale):
        return scale * torch.randn(2 * PAIRS, WIDTH, dtype=torch.float64, generator=random)

    reference = -1.5 + draw(0.3)
    lengths = torch.randint(1, WIDTH, (2 * PAIRS, 1), generator=random)
    prompt = torch.randint(0, 3, (2 * PAIRS, 1), generator=random).clamp(max=lengths - 1)
    place = torch.arange(WIDTH)
    return reference + draw(0.4), reference, (place >= prompt) & (place < lengths)


def trl(current, reference, acts, **settings):
    """TRL's loss, and its gradient by the current log-probs."""
    current = current.clone().requires_grad_()

    def says(logprobs):
        zeros = torch.zeros_like(logprobs).detach()
        # As its fused head: a log-prob only where there is a label.
        said = {"log_probs": torch.where(acts, logprobs, 0.0), "entropy": zeros}
        told = SimpleNamespace(**said, mean_logits=zeros, is_top1=zeros.bool())
        return lambda **_: told

    accelerator = SimpleNamespace(
        device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x, unwrap_model=lambda x: x
    )
    trainer = SimpleNamespace(
        model=torch.nn.Identity().eval(),
        ref_model=says(reference),
        accelerator=accelerator,
        args=SimpleNamespace(gradient_checkpointing_kwargs=None),
        _metrics={"eval": defaultdict(list)},
        **{
            "aux_loss_enabled": False,
            "ld_alpha": None,
            "precompute_ref_logps": False,
            "f_divergence_type": "reverse_kl",
            "loss_types": ["sigmoid"],
            "loss_weights": [1.0],
            "beta": 0.1,
            "label_smoothing": 0.0,
            "use_weighting": False,
            "_total_train_tokens": 0,
            "_tp_size": 1,
        }
        | settings,
    )
    first = torch.zeros(len(acts), 1, dtype=torch.int64)
    inputs = {
        "input_ids": torch.zeros(len(acts), WIDTH + 1, dtype=torch.int64),
        "attention_mask": torch.ones(len(acts), WIDTH + 1, dtype=torch.int64),
        "completion_mask": torch.cat([first, acts.long()], 1),
    }
    loss = DPOTrainer._compute_loss(trainer, says(current), inputs, False)
    loss.backward()
    return loss.detach(), current.grad


def ours(current, reference, acts, name, reduction, **numbers):
    """Our loss, the mean over pairs, and its gradient."""
    current = current.clone().requires_grad_()
    side = torch.arange(2 * PAIRS)[:, None].expand_as(acts)[acts]
    share = torch.ones(int(acts.sum()), dtype=torch.float64)
    if (alpha := numbers.pop("excess", None)) is not None:
        share = preference.beyond(side, side % PAIRS, alpha)
    log = (current - reference)[acts]
    score = preference.scores(log, side, share, 2 * PAIRS, reduction)
    terms = preference.LOSSES[name].function(score[:PAIRS] - score[PAIRS:], **numbers)
    terms.mean().backward()
    return terms.mean().detach(), current.grad


CASES = {
    "dpo": (("dpo", "sum", {"beta": 0.3}), {"beta": 0.3}),
    "length-normalised dpo": (
        ("dpo", "mean", {"beta": 0.3}),
        {"beta": 0.3, "loss_types": ["sigmoid_norm"]},
    ),
    "ipo": (("ipo", "mean", {"beta": 0.2}), {"beta": 0.2, "loss_types": ["ipo"]}),
    "ld-dpo": (("dpo", "sum", {"beta": 0.3, "excess": 0.4}), {"beta": 0.3, "ld_alpha": 0.4}),
}


@pytest.fixture(autouse=True)
def _no_checkpointing(monkeypatch):
    """The model is a function here: there is nothing to switch off."""
    module = "trl.trainer.dpo_trainer.disable_gradient_checkpointing"
    monkeypatch.setattr(module, lambda *_args: nullcontext())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_are_those_of_trl(case, seed):
    (name, reduction, numbers), settings = CASES[case]
    facts = batch(seed)
    mine, gradient = ours(*facts, name, reduction, **numbers)
    theirs, its = trl(*facts, **settings)
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, its, rtol=1e-12, atol=1e-12)
    assert gradient.abs().max() > 1e-4
