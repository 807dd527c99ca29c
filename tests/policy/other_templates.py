"""Other models' conversation forms, with a small tokenizer each, for tests of ``Chat``."""

from functools import cache

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHATML = """{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}
{%- else %}{{- 'You are a helpful assistant.' }}{%- endif %}
{{- '\\n\\n# Tools\\n\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0]['role'] == 'system' %}
{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}
{%- if message.content %}{{- message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{%- if message.content or not loop.first %}{{- '\\n' }}{%- endif %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}
{{- '<|im_start|>user' }}{%- endif %}
{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

LLAMA = """{{- bos_token }}
{%- if tools %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nTools:\\n' }}
{%- for tool in tools %}{{- tool | tojson }}{{- '\\n' }}{%- endfor %}{{- '<|eot_id|>' }}
{%- endif %}
{%- for message in messages %}
{%- if message.tool_calls %}
{%- if message.tool_calls | length != 1 %}{{- raise_exception('one call only') }}{%- endif %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{{- '{"name": "' + message.tool_calls[0].function.name + '", "parameters": ' }}
{{- message.tool_calls[0].function.arguments | tojson }}{{- '}<|eot_id|>' }}
{%- elif message.role == 'tool' %}
{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + message.content | tojson + '<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
{{- message.content | trim + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""

MISTRAL = """{{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'user' %}
{%- if tools and loop.index0 == (messages | map(attribute='role') | list).index('user') %}
{{- '[AVAILABLE_TOOLS] [' }}
{%- for tool in tools %}{{- tool | tojson }}{{- ', ' if not loop.last }}{%- endfor %}
{{- '][/AVAILABLE_TOOLS]' }}
{%- endif %}
{{- '[INST] ' + message.content + '[/INST]' }}
{%- elif message.tool_calls %}
{{- '[TOOL_CALLS] [' }}
{%- for call in message.tool_calls %}
{%- if call.id | length != 9 %}{{- raise_exception('ids have nine characters') }}{%- endif %}
{{- '{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson }}
{{- ', "id": "' + call.id + '"}' }}{{- ', ' if not loop.last }}
{%- endfor %}
{{- ']' + eos_token }}
{%- elif message.role == 'assistant' %}
{{- ' ' + message.content if false else message.content }}{{- eos_token }}
{%- elif message.role == 'tool' %}
{{- '[TOOL_RESULTS] {"content": ' + message.content + ', "call_id": "' }}
{{- message.tool_call_id + '"}[/TOOL_RESULTS]' }}
{%- else %}{{- raise_exception('only user, assistant and tool') }}
{%- endif %}
{%- endfor %}"""

MISTRAL_LAST_USER = MISTRAL.replace(
    "loop.index0 == (messages | map(attribute='role') | list).index('user')",
    "loop.index0 == (messages | map(attribute='role') | list | length) - 1 - "
    "(messages | map(attribute='role') | list | reverse | list).index('user')",
)
"""Shows the tools before the *last* user message, as the original does."""

_LAST_QUERY = """{%- set ns = namespace(last=0) %}
{%- for message in messages %}
{%- if message.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}
{%- endfor %}"""
_CONTENT = "{%- if message.content %}{{- message.content }}{%- endif %}"

FORGETFUL = _LAST_QUERY + CHATML.replace(
    _CONTENT,
    "{%- if loop.index0 > ns.last %}{{- message.content }}"
    "{%- else %}{{- message.content.split('</think>')[-1].lstrip('\\n') }}{%- endif %}",
)
"""Drops the thinking of turns before the last user message."""

THINKING = _LAST_QUERY + CHATML.replace(
    _CONTENT,
    "{%- if loop.index0 > ns.last %}{%- if '</think>' not in message.content %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{{- message.content }}"
    "{%- else %}{{- message.content.split('</think>')[-1].lstrip('\\n') }}{%- endif %}",
)
"""Drops earlier thinking, and adds an empty thinking block to a last turn that has none."""

TOOLLESS = """{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

BARE = """{%- for message in messages %}{{- message.role + ': ' + message.content + '\\n' }}
{%- endfor %}{%- if add_generation_prompt %}{{- 'assistant: ' }}{%- endif %}"""
"""Ends a turn with a newline, not with a special token."""

_CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CORPUS = [
    '<tool_call>\n{"name": "calculate", "arguments": {"a": 3, "op": "+", "b": 4}}\n</tool_call>',
    "You are a helpful assistant.\n\n# Tools\n\nuser system assistant parameters ipython content",
    "<think>\nhm\n</think>\n\nhello world, what is the answer? \n\n 1234 567 89 error: call id",
] * 4


_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The split of Llama 3."""


@cache
def tokenizer(kind: str, special: tuple[str, ...]) -> Tokenizer:
    """A small tokenizer trained here: ``bytes`` as GPT-2 splits, or ``spaces`` as sentencepiece."""
    built = Tokenizer(models.BPE(byte_fallback=kind == "spaces", unk_token=None))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    extra: list[str] = []
    if kind == "bytes":
        built.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        built.decoder = decoders.ByteLevel()
    else:
        built.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
        built.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        )
        alphabet = []
        extra = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        show_progress=False,
        special_tokens=[*special, *extra],
        initial_alphabet=alphabet,
    )
    built.train_from_iterator(_CORPUS, trainer)
    if extra:
        return _without_special(built, extra)
    return built


def _without_special(built: Tokenizer, names: list[str]) -> Tokenizer:
    """Byte tokens are in the vocabulary, but no text may spell them."""
    import json

    content = json.loads(built.to_str())
    kept = [token for token in content["added_tokens"] if token["content"] not in names]
    content["added_tokens"] = kept
    return Tokenizer.from_str(json.dumps(content))


def chatml(template: str = CHATML) -> PreTrainedTokenizerFast:
    """Qwen2.5-like, but its call tags are ordinary text of several tokens."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer("bytes", _CHATML_TOKENS),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=template,
    )


def llama() -> PreTrainedTokenizerFast:
    """Llama-3-like: header ids, bare JSON calls with ``parameters``."""
    special = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer("bytes", (*special, "<|end_of_text|>")),
        bos_token="<|begin_of_text|>",
        eos_token="<|eot_id|>",
        chat_template=LLAMA,
    )


def mistral(template: str = MISTRAL) -> PreTrainedTokenizerFast:
    """Mistral-like: no generation header, calls in a list, a sentencepiece-like tokenizer."""
    names = ("AVAILABLE_TOOLS", "INST", "TOOL_RESULTS")
    tags = [tag for name in names for tag in (f"[{name}]", f"[/{name}]")]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer("spaces", ("<s>", "</s>", "[TOOL_CALLS]", *tags)),
        bos_token="<s>",
        eos_token="</s>",
        chat_template=template,
    )
