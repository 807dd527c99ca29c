"""``hexad report`` and ``hexad view``: a run as a page to keep, or as a local site."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from hexad.contract.durable import disk_errors, write_whole

NAME = "report.html"


def write(run_dir: Path, out: Path | None, episodes: int, console: Console) -> dict[str, Any]:
    """Print every table of ``run_dir`` and write its page to ``out``, or into the run folder.

    The page holds ``episodes`` whole episodes. Raises ``UserError`` when the folder is not a run or
    the page cannot be written.
    """
    from hexad.evidence.summary import render, summarize
    from hexad.view.facts import read
    from hexad.view.pages import report

    path = run_dir / NAME if out is None else out
    with console.status("reading the run"):
        text = report(run_dir, read(run_dir), episodes)
    with disk_errors("write the report", path):
        write_whole(path, text.encode(), "report")
    console.print(render(summarize(run_dir)))
    console.print(f"report: {path}", highlight=False, markup=False, soft_wrap=True)
    return {"run": str(run_dir), "report": str(path), "bytes": len(text.encode())}


def serve(run_dirs: Sequence[Path], port: int, console: Console) -> dict[str, Any]:
    """Show the runs on 127.0.0.1 until Ctrl-C. Raises ``UserError`` for a folder without a run."""
    from hexad.view.server import Server
    from hexad.view.site import Site

    site = Site(run_dirs)
    site.check()
    with Server(site, port) as server:
        try:
            console.print(f"{server.url} (Ctrl-C stops)", highlight=False, markup=False)
            server.serve_forever()
        except KeyboardInterrupt:
            console.print("stopped", highlight=False)
        return {"url": server.url}
