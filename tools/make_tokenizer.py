"""Train the tokenizer of the built-in models: deterministic, from text made here.

Usage: ``python tools/make_tokenizer.py [FOLDER]``; without a folder it rewrites the shipped asset.
Byte-level, so any text encodes. The pieces that BPE may merge inside are the point:

- a digit and an operator is always a token of its own;
- the frame before a JSON value, ``{"a": `` or ``", "op": "``, is one piece, so a tool call costs a
  token a key and no value ever shares a token with its frame;
- a newline belongs to a token of its neighbours only directly after or before a special token, so
  text can follow a generation header without changing the header's tokens.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

ASSETS = Path(__file__).resolve().parents[1] / "src" / "hexad" / "policy" / "assets"
VOCABULARY = 512
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

_KEY = r'"[A-Za-z_]+": (?:\["|"(?![A-Za-z_]+": ))?'
PIECES = "|".join(
    (
        r"\A(?:system|user|assistant)\n",  # the role after <|im_start|>
        r"\A\n" + r"\{" + _KEY,  # the frame after <tool_call>
        r"[\"}\]]+\n\z",  # the end of the JSON before </tool_call>
        r"[\"},\]\[{]*[ {\[]*" + _KEY,  # the frame before a JSON value
        r"\"[}\]]*(?:, \{?\")?",  # the frame between JSON strings
        r"</?[a-z_]+>",  # markup
        r"\n",
        r"\p{N}",
        r"[-+*/=<>^%]",
        r"[ ]?[\p{L}_]+",
        r"[^\s\p{L}\p{N}_+*/=<>^%-]+",
        r"\s",
    )
)

_ENGLISH = """
To call a tool, write its name and its arguments. The result of the tool comes back as a response.
Do one operation at a time, from left to right, and then answer with just the number.
This is a small model of a language: it reads what a user asks and says what it will do next.
error: the tool is unknown. error: the arguments are not valid JSON; op must be one of + - * and
the numbers must be integers. a is missing; b is unknown. expected an integer but got a string.
You are a helpful agent. When you are done, say so. If there is an error, read it and try again.
"""


def _schema(properties: dict[str, str], name: str, description: str) -> dict[str, object]:
    parameters = {
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
        "type": "object",
    }
    return {"name": name, "description": description, "parameters": parameters}


_CALCULATE = {"a": "integer", "op": "string", "b": "integer"}
_TOOLS = (
    _schema(_CALCULATE, "calculate", "Do one operation: + - *"),
    _schema(_CALCULATE, "calculate", "Do one operation: + - * /"),
    _schema({"query": "string", "limit": "number"}, "search", "Find text and read it"),
    _schema({"path": "string"}, "read", "Read the text of a file"),
    _schema({"items": "array", "all": "boolean"}, "list", "List the items with this name"),
)


def _conversations() -> Iterator[dict[str, object]]:
    draw = random.Random(0)
    for number in range(2000):
        a, b, op = draw.randrange(-400, 400), draw.randrange(1, 21), draw.choice("+-*/")
        tool = _TOOLS[number % 2]
        call = {"function": {"name": "calculate", "arguments": {"a": a, "op": op, "b": b}}}
        messages = [
            {"role": "user", "content": f"{a}{op}{b}{draw.choice('+-*')}{draw.randrange(1, 21)}"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": str(a + b), "name": "calculate"},
            {"role": "assistant", "content": str(a * b)},
        ]
        yield {"messages": messages, "tools": [{"type": "function", "function": tool}]}


def corpus() -> list[str]:
    """Rendered calculator conversations, other tools' schemas and calls, and plain English."""
    environment = ImmutableSandboxedEnvironment()
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string((ASSETS / "chat_template.jinja").read_text())
    rendered = [template.render(**conversation) for conversation in _conversations()]
    schemas = [json.dumps(tool) for tool in _TOOLS] * 200
    others = [json.dumps({"name": "search", "arguments": {"query": "a file", "limit": 3}})] * 100
    return rendered + schemas + others + [_ENGLISH] * 100


def train() -> Tokenizer:
    """The tokenizer: every byte, the special tokens, and merges up to :data:`VOCABULARY`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        show_progress=False,
        special_tokens=[*CONTROL, *TAGS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(_between_special_tokens(corpus()), trainer)
    content = json.loads(tokenizer.to_str())
    for token in content["added_tokens"]:  # tags are the policy's text: decoding keeps them
        token["special"] = token["content"] in CONTROL
    return Tokenizer.from_str(json.dumps(content))


def _between_special_tokens(texts: list[str]) -> Iterator[str]:
    """What is left for BPE: the tokenizer cuts special tokens out before it splits."""
    cut = re.compile("|".join(map(re.escape, (*CONTROL, *TAGS))))
    for text in texts:
        yield from (part for part in cut.split(text) if part)


def main() -> None:
    """Write ``tokenizer.json``."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ASSETS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(train().to_str(pretty=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
