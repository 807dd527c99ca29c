"""The one module through which the learner calls the model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hexad.contract.faults import ContractViolation
from hexad.learner.pack import Sets


class Root(nn.Module):
    """Wraps a Hugging Face causal LM; the place where DDP, FSDP, LoRA and compile attach.

    Logits exist only at the selected positions: a hook selects the hidden states on their way into
    the model's output embeddings, so whatever the model does to its logits afterwards (scale,
    soft cap) still applies. A model without output embeddings computes them all.
    """

    model: Any

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        ids: Tensor,
        select: Tensor,
        targets: Tensor,
        temperature: float,
        sets: Sets | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Log-probs [N] of ``targets`` and entropies [N], of ``softmax(logits / temperature)``.

        ids int64 [B, L], right-padded; select int64 [N] indexes the flattened [B * L] positions;
        targets int64 [N]. The softmax is over the recorded ``sets``, or over the whole vocabulary
        without them, in float32 (float64 for a float64 model). The entropy, in nats, is a
        statistic: it carries no gradient.
        """
        logits = self._logits(ids, select)
        if temperature != 1.0:
            logits = logits / temperature
        if sets is not None:
            return over_sets(logits, sets)
        logs = torch.log_softmax(logits, dim=-1)
        logprob = logs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        with torch.no_grad():
            entropy = -(logs.exp() * logs).sum(-1)
        return logprob, entropy

    def _logits(self, ids: Tensor, select: Tensor) -> Tensor:
        """Logits [N, V] at the selected positions, float32 or float64."""
        fired: list[bool] = []

        def pick(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            fired.append(True)
            hidden = args[0].reshape(-1, args[0].shape[-1]).index_select(0, select)
            return (hidden.unsqueeze(0), *args[1:])

        head = self.model.get_output_embeddings()
        handle = head.register_forward_pre_hook(pick) if head is not None else None
        try:
            logits = self.model(input_ids=ids, use_cache=False).logits
        finally:
            if handle is not None:
                handle.remove()
        flat: Tensor = logits.reshape(-1, logits.shape[-1])
        if not fired:
            flat = flat.index_select(0, select)
        if len(flat) != len(select):
            raise ContractViolation(f"{len(flat)} rows of logits for {len(select)} positions")
        return flat.to(torch.promote_types(flat.dtype, torch.float32))


def over_sets(logits: Tensor, sets: Sets) -> tuple[Tensor, Tensor]:
    """Log-probs [N] of the targets and entropies [N], each normalised over its own recorded set.

        log p(a) = z_a - log sum_{b in S} exp z_b,    gradient on z_b: 1[b = a] - p(b), b in S

    ``logits`` z [N, V]. The set is a fact of the sample: it stays what it was however the weights
    move, so only differences inside it matter, and mass that the policy moves out of it neither
    raises nor lowers the result. No -inf is ever formed: memory and time are those of the sets'
    own sizes. A set of one gives exactly 0, with gradient exactly 0.
    """
    owner = torch.repeat_interleave(sets.lengths)
    picked = logits.reshape(-1).gather(0, owner * logits.shape[-1] + sets.ids)
    highest = torch.segment_reduce(picked.detach(), "max", lengths=sets.lengths)
    shifted = picked - highest[owner]
    total = torch.segment_reduce(shifted.exp(), "sum", lengths=sets.lengths)
    logs = shifted - total.log()[owner]
    with torch.no_grad():
        entropy = -torch.segment_reduce(logs.exp() * logs, "sum", lengths=sets.lengths)
    return logs[sets.place], entropy
