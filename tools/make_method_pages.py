"""Write docs/methods/: one page a method, from its record. ``--check`` fails on a stale page."""

from __future__ import annotations

import sys
from pathlib import Path

from hexad.recipe.methods import METHODS
from hexad.recipe.methods.card import page

FOLDER = Path(__file__).parents[1] / "docs" / "methods"


def pages() -> dict[str, str]:
    """File name -> text."""
    rows = "\n".join(
        f"| [{name}]({name}.md) | {record.title} | {'not yet' if record.missing else 'yes'} |"
        for name, record in METHODS.items()
    )
    head = (
        "# Methods\n\nWritten by `tools/make_method_pages.py` from the records in "
        "`src/hexad/recipe/methods/`; `hexad methods NAME` prints the same card.\n\n"
        f"| method | | runs |\n|---|---|---|\n{rows}\n"
    )
    return {"README.md": head} | {f"{name}.md": page(r) for name, r in METHODS.items()}


def main() -> int:
    """Write the pages, or with ``--check`` name those that differ."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    stale = [
        name
        for name, text in wanted.items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text(encoding="utf-8") != text
    ]
    extra = [path.name for path in FOLDER.glob("*.md") if path.name not in wanted]
    if "--check" in sys.argv:
        for name in (*stale, *extra):
            print(f"docs/methods/{name} is stale: run tools/make_method_pages.py")
        return 1 if stale or extra else 0
    for name in stale:
        (FOLDER / name).write_text(wanted[name], encoding="utf-8")
    for name in extra:
        (FOLDER / name).unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
