"""The text of single tokens, by the tokenizer of a run's newest checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

UNKNOWN = "\N{REPLACEMENT CHARACTER}"


class Words:
    """``text`` of an id; ``source`` is the tokenizer's file, ``None`` where the run kept none."""

    def __init__(self, folder: Path) -> None:
        self.source = _newest(folder)
        self._tokenizer = None if self.source is None else Tokenizer.from_file(str(self.source))
        self.text = lru_cache(1 << 16)(self._text)

    def of(self, ids: Iterable[int]) -> list[str]:
        """One text a token. A token that is only a part of a character shows its own name."""
        return [self.text(int(each)) for each in ids]

    def _text(self, number: int) -> str:
        if self._tokenizer is None:
            return f"[{number}]"
        shown: str = self._tokenizer.decode([number], skip_special_tokens=False)
        if shown and UNKNOWN not in shown:
            return shown
        return f"[{self._tokenizer.id_to_token(number) or number}]"


def visible(text: str) -> str:
    """``text`` with control characters as their pictures, so that nothing acts or hides.

    >>> visible("a\\x1b[31mb")
    'a␛[31mb'
    """
    return "".join(_picture(sign) for sign in text)


def _picture(sign: str) -> str:
    code = ord(sign)
    if sign in "\n\t" or 0x20 <= code < 0x7F:
        return sign
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\N{SYMBOL FOR DELETE}"
    # What is neither printable nor a space: C1 controls, direction overrides, zero widths.
    return sign if sign.isprintable() else f"\\u{code:04x}"


def _newest(folder: Path) -> Path | None:
    found = folder.glob("checkpoints/step_*/policy/tokenizer.json")
    return max(found, key=lambda p: int(p.parent.parent.name.removeprefix("step_")), default=None)
