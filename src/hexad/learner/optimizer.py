"""AdamW, its learning rate, and the gradient that it steps on."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from hexad.recipe.update_axis import OptimizerSpec

_HALF = (torch.bfloat16, torch.float16)


def learning_rate(spec: OptimizerSpec, steps: int, progress: float) -> float:
    """Rate of the optimiser step after ``steps`` others, at ``progress`` in [0, 1] of the budget.

    Linear warm-up over ``warmup_steps`` times the schedule: ``constant``, or a ``linear`` or
    ``cosine`` fall from ``lr`` to ``floor * lr``.
    """
    used = min(max(progress, 0.0), 1.0)
    fall = {"constant": 0.0, "linear": used, "cosine": 0.5 * (1.0 - math.cos(math.pi * used))}
    warmup = min((steps + 1) / spec.warmup_steps, 1.0) if spec.warmup_steps else 1.0
    return spec.lr * warmup * (1.0 - (1.0 - spec.floor) * fall[spec.schedule])


class Stepper:
    """AdamW on the parameters of ``module``; weight decay on matrices only.

    Parameters of 16 bits get a float32 master copy: micro-batch gradients add up in float32, the
    step is made there and rounded into the parameter. Parameters of 32 and 64 bits are stepped on
    directly. A gradient that is all zero is still a gradient: the moments decay and move.
    """

    def __init__(self, module: nn.Module, spec: OptimizerSpec) -> None:
        self.spec = spec
        self.steps = 0
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.parameters: dict[str, nn.Parameter] = dict(named)
        self.masters: dict[str, Tensor] = {name: _master(p) for name, p in named}
        values = list(self.masters.values())
        groups = [
            {"params": [v for v in values if v.ndim >= 2], "weight_decay": spec.weight_decay},
            {"params": [v for v in values if v.ndim < 2], "weight_decay": 0.0},
        ]
        self.adam = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=spec.lr,
            betas=spec.betas,
            eps=spec.eps,
            fused=True,
        )

    def zero(self) -> None:
        """Set every gradient to zeros."""
        for master in self.masters.values():
            if master.grad is None:
                master.grad = torch.zeros_like(master)
            else:
                master.grad.zero_()

    def gradients(self) -> list[Tensor]:
        """The accumulated gradients, in parameter order."""
        return [m.grad for m in self.masters.values() if m.grad is not None]

    def norm(self) -> Tensor:
        """Global 2-norm of the gradient, on one tensor."""
        return torch.nn.utils.get_total_norm(self.gradients())

    def step(self, norm: Tensor, progress: float, scale: float = 1.0) -> float:
        """Clip the gradient by its global ``norm``, step, and return the learning rate.

        ``scale`` multiplies the rate of the schedule.
        """
        if self.spec.clip_norm is not None:
            factor = (self.spec.clip_norm / norm).clamp(max=1.0)
            torch._foreach_mul_(self.gradients(), factor)
        rate = scale * learning_rate(self.spec, self.steps, progress)
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                if self.masters[name] is not parameter:
                    parameter.copy_(self.masters[name])
        self.steps += 1
        return rate

    def state(self) -> dict[str, Any]:
        """A copy of weights, moments and the step count, flat and keyed by parameter name."""
        state: dict[str, Any] = {"steps": self.steps}
        for name, master in self.masters.items():
            state[f"parameter/{name}"] = master.detach().clone()
            for key, value in self.adam.state.get(master, {}).items():
                state[f"{key}/{name}"] = value.detach().clone()
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken. Raises ``KeyError`` on other names."""
        self.steps = state["steps"]
        self.adam.state.clear()
        with torch.no_grad():
            for name, master in self.masters.items():
                master.copy_(state[f"parameter/{name}"])
                if self.masters[name] is not self.parameters[name]:
                    self.parameters[name].copy_(master)
                if f"exp_avg/{name}" in state:
                    self.adam.state[master] = {
                        key: state[f"{key}/{name}"].to(master.device).clone()
                        for key in ("step", "exp_avg", "exp_avg_sq")
                    }


def _master(parameter: nn.Parameter) -> Tensor:
    """The tensor that is stepped on, fed with the gradients of ``parameter``."""
    if parameter.dtype not in _HALF:
        return parameter
    master = parameter.detach().to(torch.float32)

    def fold(source: Tensor) -> None:
        assert source.grad is not None and master.grad is not None
        master.grad.add_(source.grad)
        source.grad = None

    parameter.register_post_accumulate_grad_hook(fold)  # type: ignore[no-untyped-call]
    return master
