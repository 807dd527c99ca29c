"""Fail when a file or a function of the package outgrows the house's limits."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

FILE_LINES = 500
FUNCTION_LINES = 60


def oversized(path: Path) -> list[str]:
    """Complaints about one file: its length, and the length of each function in it."""
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    found = [f"{path}: {lines} lines, at most {FILE_LINES}"] if lines > FILE_LINES else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            length = node.end_lineno - node.lineno + 1
            if length > FUNCTION_LINES:
                found.append(f"{path}:{node.lineno}: {node.name} has {length} lines, at most 60")
    return found


def main() -> int:
    """Check every Python file below ``src``."""
    complaints = [c for path in sorted(Path("src").rglob("*.py")) for c in oversized(path)]
    print("\n".join(complaints) if complaints else "sizes: clean")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
