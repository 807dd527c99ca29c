"""LoRA adapters through peft: attached, opened, merged and saved, each on the base it grew on.

The adapter's matrices stand inside the Hugging Face model, which keeps its class; nothing is ever
switched on or off. A second role (reference, snapshot, critic) is a copy of the adapter on the same
base, so no forward pass can leave the wrong one active (field case O13).
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from hexad.contract.digest import digest
from hexad.contract.faults import UserError
from hexad.policy.quiet import quiet

if TYPE_CHECKING:
    from hexad.recipe.axes import AdapterSpec

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""PEFT's layout."""
_BASE = "adapter_base.json"
EXACT = 4
"""Bytes of a number in which an adapter may be added to the weights: fewer round most of it away.
"""
_MARK = ".lora_"
_PREFIX = "base_model.model."
"""What PEFT writes before a parameter's name."""
_SAME = ("peft_type", "r", "lora_alpha", "use_rslora", "use_dora", "bias", "rank_pattern")
"""What an adapter is, beside the modules that it changes."""
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class Base:
    """What an adapter adds to: ``model`` opens it, ``digest`` is of its weights in ``precision``.

    Both are "" where nobody recorded them.
    """

    model: str
    digest: str = ""
    precision: str = ""


def holds(folder: Path) -> bool:
    """Whether ``folder`` is an adapter in PEFT's layout."""
    return (folder / CONFIG).is_file()


def base_of(folder: Path) -> Base:
    """The base that the adapter in ``folder`` names. Raises ``UserError`` for a broken one."""
    try:
        if (folder / _BASE).is_file():
            found = json.loads((folder / _BASE).read_text(encoding="utf-8"))
            return Base(*(str(found[name]) for name in ("model", "digest", "precision")))
        name = json.loads((folder / CONFIG).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _broken(folder, f"its base is not named: {error}") from error
    if not isinstance(name, str) or not name:
        raise _broken(folder, "its base is not named")
    return Base(name)


def require_base(folder: Path, wanted: Base, found: Base) -> None:
    """Raise ``UserError`` unless the base that was ``found`` is the one recorded, where one is."""
    if wanted.precision and wanted.precision != found.precision:
        raise UserError(
            f"the adapter was trained on {wanted.precision} weights, and these are "
            f"{found.precision}",
            where="system.dtype",
            fix=f"use {wanted.precision}: rounded, its base is another policy",
        )
    if wanted.digest and wanted.digest != found.digest:
        raise UserError(
            f"the adapter was trained on other weights than {wanted.model} holds now",
            where=str(folder / _BASE),
            fix="put the base's weights back: an adapter means nothing on another base",
        )


def attach(model: Any, spec: AdapterSpec, seed: int) -> str:
    """Put a fresh adapter into ``model``: the same function, and only the adapter trains.

    Returns the digest of what it is (not of its weights). ``seed`` draws the matrices A; B is zero.
    Raises ``UserError`` when no linear map fits ``spec.targets``.
    """
    from peft import LoraConfig, inject_adapter_in_model

    names = spec.targets if isinstance(spec.targets, str) else list(spec.targets)
    config = LoraConfig(
        r=spec.rank, lora_alpha=spec.alpha, target_modules=names, task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(seed)
        try:
            inject_adapter_in_model(config, model)
        except ValueError as error:
            raise _unfit(str(error).splitlines()[0]) from error
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(_MARK in name)
    # Tied to each other, one of them would be changed and the other not.
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    if any(hasattr(end, "base_layer") for end in ends):
        raise _unfit("embeddings have no adapter")
    return digest(_facts(model.peft_config["default"].to_dict()))


def resume(model: Any, folder: Path) -> None:
    """Load the weights of the adapter in ``folder`` into the fresh one of ``model``.

    Raises ``UserError`` when it is an adapter of another rank, scale or set of modules.
    """
    from peft import set_peft_model_state_dict

    kept, mine = _facts(_config(folder)), _facts(model.peft_config["default"].to_dict())
    if kept != mine:
        other = ", ".join(f"{k}: {kept[k]} there" for k in mine if kept[k] != mine[k])
        raise UserError(
            f"{folder} holds another adapter than the recipe asks for ({other})",
            where="policy.adapter",
            fix="use the rank, alpha and targets that it was made with, or leave policy.adapter "
            "out: the adapter is then merged, and all weights train",
        )
    weights = {n.removeprefix(_PREFIX): value for n, value in _weights(folder).items()}
    done = set_peft_model_state_dict(model, weights)
    lost = [name for name in done.missing_keys if _MARK in name]
    if lost or done.unexpected_keys:
        raise _broken(folder, f"its weights do not fit: {[*lost, *done.unexpected_keys][:3]}")


def merged(model: Any, folder: Path) -> Any:
    """``model`` with the adapter in ``folder`` added into its weights, of 32 bits or more.

    Raises ``UserError`` for fewer bits: what is left would be another policy than was trained.
    """
    from peft import PeftModel

    _config(folder), _weights(folder)  # refused here, in our words, and never unpickled
    if not exact(model):
        raise UserError(
            f"the adapter in {folder} cannot be merged into {model.dtype}: the sum would round "
            "away most of what was learned",
            where="system.dtype",
            fix="use float32, or train the adapter itself with policy.adapter",
        )
    try:
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by an old name
            outer = PeftModel.from_pretrained(model, str(folder))
            plain: Any = outer.merge_and_unload(safe_merge=True)
        return plain.requires_grad_(True)  # peft froze the base
    except (ValueError, RuntimeError) as error:
        raise _broken(folder, str(error).splitlines()[0]) from error


def save(model: Any, folder: Path, base: Base) -> None:
    """Write the adapter in PEFT's layout, and the base that it belongs to."""
    from peft import get_peft_model_state_dict

    folder.mkdir(parents=True, exist_ok=True)
    config = copy.copy(model.peft_config["default"])
    config.base_model_name_or_path, config.inference_mode = base.model, True
    config.save_pretrained(str(folder))
    kept = get_peft_model_state_dict(model)
    plain = {f"{_PREFIX}{name}": value.detach().contiguous() for name, value in kept.items()}
    save_file(plain, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / _BASE).write_text(json.dumps(asdict(base)) + "\n", encoding="utf-8")


# -- what moves ------------------------------------------------------------------------------------


def adapted(model: nn.Module) -> bool:
    """Whether ``model`` carries an adapter: all else of it stays as it is."""
    return any(_MARK in name for name, _ in model.named_parameters())


def moving(model: nn.Module) -> dict[str, Tensor]:
    """What training may change, live, by name: the whole state dict, or the adapter's part."""
    whole: dict[str, Tensor] = model.state_dict()
    mine = {name: tensor for name, tensor in whole.items() if _MARK in name}
    return mine or whole


def trained(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters that an optimiser may step, by name."""
    return ((n, p) for n, p in model.named_parameters() if p.requires_grad)


def load(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Take in ``weights``, all of :func:`moving`."""
    model.load_state_dict(weights, strict=not adapted(model))


def copied(model: M) -> M:
    """A copy that shares the tensors which no training changes: those of an adapter's base."""
    shared: dict[int, Any] = {}
    if adapted(model):
        shared = {id(p): p for name, p in model.named_parameters() if _MARK not in name}
    return copy.deepcopy(model, shared)


def exact(model: nn.Module) -> bool:
    """Whether its weights have bits enough for an adapter to be added into them."""
    return all(p.itemsize >= EXACT for p in model.parameters())


def is_adapted(module: nn.Module) -> bool:
    """Whether ``module`` is a linear map with an adapter's part beside it, and nothing more."""
    kind = type(module)
    return (kind.__module__, kind.__name__) == ("peft.tuners.lora.layer", "Linear")


def whole_weight(linear: Any) -> Tensor:
    """The matrix that ``linear`` multiplies by, its adapter's part added; no gradient."""
    if not is_adapted(linear):
        weight: Tensor = linear.weight
        return weight.detach()
    with torch.no_grad():
        total: Tensor = linear.base_layer.weight + linear.get_delta_weight("default")
    return total.detach()


# -- reading ---------------------------------------------------------------------------------------


def _config(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _broken(folder, str(error)) from error
    if not isinstance(found, dict) or found.get("peft_type") != "LORA":
        raise _broken(folder, "it is no LoRA adapter")
    return found


def _weights(folder: Path) -> dict[str, Tensor]:
    try:
        return load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise _broken(folder, f"{WEIGHTS}: {error}") from error


def _facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """What an adapter is, of PEFT's configuration."""
    targets = config.get("target_modules") or ()
    facts: dict[str, Any] = {name: config.get(name) for name in _SAME}
    facts["peft_type"] = str(getattr(facts["peft_type"], "value", facts["peft_type"]))
    facts["target_modules"] = targets if isinstance(targets, str) else sorted(targets)
    return facts


def _unfit(why: str) -> UserError:
    return UserError(
        f"the adapter cannot be attached: {why}",
        where="policy.adapter.targets",
        fix='use "all-linear", or names of linear maps of the model (q_proj, v_proj, ...)',
    )


def _broken(folder: Path, why: str) -> UserError:
    return UserError(
        f"the adapter in {folder} cannot be used: {why}",
        where=str(folder),
        fix=f"use a LoRA adapter in PEFT's layout ({CONFIG}, {WEIGHTS})",
    )
