"""From a name to a policy: built-in, a Hugging Face folder or id, a run, or a checkpoint."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import HfApi
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hexad.contract.faults import UserError
from hexad.contract.sampling import Sampling
from hexad.policy import adapter as adapters
from hexad.policy import builtin
from hexad.policy.adapter import Base
from hexad.policy.policy import Policy, weights_digest
from hexad.policy.quiet import quiet
from hexad.policy.seams import Seams
from hexad.policy.template import Template
from hexad.policy.transforms import require_replayable

if TYPE_CHECKING:
    from hexad.recipe.axes import AdapterSpec

_WHERE = "policy.model"
_UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    RuntimeError,
    ImportError,
    SafetensorError,
)
"""What transformers raises for a model that it cannot open."""
_HUB_SECONDS = 10.0
_CHOICES = (
    "give a folder with config.json, safetensors and tokenizer.json, a Hugging Face id, "
    "a Hexad run, builtin:tiny or builtin:small"
)
_DESCRIPTIONS = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
_STEP = re.compile(r"step_(\d+)")
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


def load_policy(
    model: str,
    *,
    seed: int,
    dtype: torch.dtype = torch.float32,
    adapter: AdapterSpec | None = None,
) -> Policy:
    """Load ``model``: ``builtin:tiny``, ``builtin:small``, a folder, or a Hugging Face id.

    A folder is a Hugging Face model, a LoRA adapter in PEFT's layout, a Hexad run (its newest whole
    checkpoint) or one checkpoint. With ``adapter`` only a LoRA adapter trains: that of the folder,
    or a fresh one; without, a folder's adapter is merged into the weights. ``seed`` initialises a
    built-in model or a fresh adapter and touches no global random state; ``dtype`` is the type of
    the weights. Nothing but safetensors is read and no code of a model is run. Raises
    ``UserError`` for a model that is missing, broken, without a usable chat template, or whose
    ``generation_config`` cannot be replayed.
    """
    if model.startswith(builtin.PREFIX):
        if adapter is not None:
            raise UserError(
                f"{model} begins at random: there is nothing for an adapter to add to",
                where="policy.adapter",
                fix="leave it out, or name a trained model",
            )
        tokenizer = builtin.tokenizer()
        shape = model.removeprefix(builtin.PREFIX)
        network = builtin.model(shape, vocabulary=len(tokenizer), seed=seed).to(dtype)
        ends, known, base = [tokenizer.convert_tokens_to_ids(builtin.END_OF_TEXT)], "none", None
    else:
        tokenizer, network, known, base = _opened(model, seed, dtype, adapter)
        ends = _stop_ids(network.generation_config)
    rows = network.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise UserError(
            f"the tokenizer has {len(tokenizer)} ids, the model {rows}",
            where=model,
            fix="use the tokenizer that the model was trained with",
        )
    require_replayable(Sampling(), network.generation_config)
    stop_ids = sorted({*ends, _turn_end(tokenizer, model)})
    network.generation_config = GenerationConfig(
        eos_token_id=stop_ids, pad_token_id=tokenizer.pad_token_id
    )
    context = _max_context(network, model)
    return Policy(network.eval(), tokenizer, model, tuple(stop_ids), context, known, base)


def _opened(
    model: str, seed: int, dtype: torch.dtype, adapter: AdapterSpec | None
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel, str, Base | None]:
    """Tokenizer, network, and the adapter's digest and base, of a folder or a hub id."""
    source, local = _source(model)
    folder = Path(source) if local and adapters.holds(Path(source)) else None
    if folder is None:
        tokenizer, network = _open(source, local, model, dtype)
        base = Base(str(Path(source).absolute()) if local else source)
    else:
        base = adapters.base_of(folder)
        tokenizer, network, _, _ = _opened(base.model, seed, dtype, None)
        adapters.require_base(folder, base, _base(base.model, network))
        if (folder / "tokenizer.json").is_file():
            tokenizer = _tokenizer(source, only_local=True)
    if adapter is None:
        return (
            tokenizer,
            network if folder is None else adapters.merged(network, folder),
            "none",
            None,
        )
    base = _base(base.model, network)
    known = adapters.attach(network, adapter, seed)
    if folder is not None:
        adapters.resume(network, folder)
    return tokenizer, network, known, base


def _base(model: str, network: PreTrainedModel) -> Base:
    precision = str(network.dtype).removeprefix("torch.")
    return Base(model, weights_digest(network), precision)


def _max_context(network: PreTrainedModel, model: str) -> int:
    positions = getattr(network.config.get_text_config(), "max_position_embeddings", None)
    if positions is None:
        raise UserError(
            f"the model {model} does not say how long its context may be",
            where="config.json: max_position_embeddings",
            fix="use a model with a declared number of positions",
        )
    return int(positions)


def _source(model: str) -> tuple[str, bool]:
    """Where to load from, and whether it is a folder here."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return str(inside(folder)), True
    parent_here = len(folder.parts) > 1 and folder.parent.is_dir()
    if model.startswith((".", "/", "~")) or parent_here or not _HUB_ID.fullmatch(model):
        raise UserError(
            f"there is no model {model}",
            where=_WHERE,
            fix=f"tried the folder {folder.absolute()}; {_CHOICES}",
        )
    return model, False


def inside(folder: Path) -> Path:
    """The Hugging Face folder that ``folder`` (a run, a checkpoint or a model) stands for."""
    if (folder / "checkpoints").is_dir():
        steps = {
            int(match[1]): path
            for path in (folder / "checkpoints").iterdir()
            if (match := _STEP.fullmatch(path.name)) and (path / "manifest.json").is_file()
        }
        if not steps:
            raise UserError(
                f"the run {folder} has no whole checkpoint",
                where=f"{_WHERE}: looked for {folder}/checkpoints/step_*/manifest.json",
                fix="let the run reach its first checkpoint",
            )
        return steps[max(steps)] / "policy"
    if (folder / "policy").is_dir() and not (folder / "config.json").exists():
        if not (folder / "manifest.json").is_file():
            raise UserError(
                f"the checkpoint {folder} is not whole: it has no manifest.json",
                where=_WHERE,
                fix="use another checkpoint of the run, or the run folder itself",
            )
        return folder / "policy"
    return folder


def _open(
    source: str, local: bool, model: str, dtype: torch.dtype
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """Open a folder, or an id: first from the local cache, then from the hub."""
    offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    tries = (True,) if local or offline else (True, False)
    last: Exception
    for only_local in tries:
        try:
            if not only_local:
                _ask_hub(source)
            return _pretrained(source, only_local, dtype)
        except Exception as error:
            # The tokenizers library raises the bare class, so it cannot be caught by name alone.
            if type(error) is not Exception and not isinstance(error, _UNREADABLE):
                raise
            last = error
    place = f"the folder {Path(source).absolute()}" if local else "the local Hugging Face cache"
    tried = place if len(tries) == 1 else f"{place}, then the hub"
    said = str(last).strip().splitlines() or [type(last).__name__]
    raise UserError(
        f"the model {model} cannot be loaded: {said[0]}",
        where=_WHERE,
        fix=f"tried {tried}; {_CHOICES}",
    ) from last


def _ask_hub(model: str) -> None:
    """Raise ``OSError`` unless the hub has ``model``: one try, where loading tries for a minute.

    The client's errors are classes of whichever HTTP library its version uses.
    """
    try:
        HfApi().model_info(model, timeout=_HUB_SECONDS)
    except Exception as error:
        raise OSError(f"the hub does not give it: {error}") from error


def _pretrained(
    source: str, only_local: bool, dtype: torch.dtype
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    _require_json(Path(source))
    safe: dict[str, Any] = {"local_files_only": only_local, "trust_remote_code": False}
    tokenizer = _tokenizer(source, only_local)
    with quiet(), torch.random.fork_rng(devices=[]):
        network, report = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=dtype,
            attn_implementation="sdpa",
            use_safetensors=True,
            output_loading_info=True,
            **safe,
        )
    if report["missing_keys"]:
        missing = ", ".join(sorted(report["missing_keys"])[:3])
        raise ValueError(f"its weights lack {missing}")
    return tokenizer, network


def _tokenizer(source: str, only_local: bool) -> PreTrainedTokenizerBase:
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        source, local_files_only=only_local, trust_remote_code=False
    )
    if not tokenizer.is_fast:
        raise ValueError("its tokenizer has no fast (tokenizer.json) form")
    return tokenizer


def _require_json(folder: Path) -> None:
    """Raise ``ValueError`` for a broken description; transformers ignores some silently."""
    for path in (folder / name for name in _DESCRIPTIONS if (folder / name).is_file()):
        try:
            content = json.loads(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path.name} is not JSON: {error}") from error
        if not isinstance(content, dict):
            raise ValueError(f"{path.name} is not a JSON object")


def _stop_ids(generation_config: Any) -> list[int]:
    ends = getattr(generation_config, "eos_token_id", None)
    if ends is None:
        return []
    return [int(end) for end in ends] if isinstance(ends, list | tuple) else [int(ends)]


def _turn_end(tokenizer: PreTrainedTokenizerBase, model: str) -> int:
    if not tokenizer.chat_template:
        raise UserError(
            f"the model {model} has no chat template",
            where=_WHERE,
            fix="put the chat_template.jinja of its instruction-tuned form into its folder",
        )
    return Seams(Template(tokenizer, ())).turn_end
