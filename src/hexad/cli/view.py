"""``hexad report`` and ``hexad view``: a run as a page to keep, or as a local site."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from hexad.contract.durable import disk_errors, write_whole

NAME = "report.html"


def write(run_dir: Path, out: Path | None, episodes: int, console: Console) -> dict[str, Any]:
    """Write the page of ``run_dir`` to ``out``, or into the run folder, with some whole episodes.

    Raises ``UserError`` when the folder is not a run or the page cannot be written.
    """
    from hexad.view.facts import read
    from hexad.view.pages import report

    path = run_dir / NAME if out is None else out
    with console.status("reading the run"):
        text = report(run_dir, read(run_dir), episodes)
    with disk_errors("write the report", path):
        write_whole(path, text.encode(), "report")
    console.print(f"report: {path}", highlight=False, markup=False, soft_wrap=True)
    return {"run": str(run_dir), "report": str(path), "bytes": len(text.encode())}


def states(run_dir: Path) -> Text:
    """A line an axis and stage: its state, and the finding that decides it."""
    from hexad.view.facts import read
    from hexad.view.lights import decisive, lights

    lines = []
    for facts in read(run_dir):
        for light in lights(facts):
            finding = decisive(light)
            told = f"{finding.name} {finding.value}".rstrip()
            lines.append(f"{facts.part.name}  {light.axis:<9} {light.state:<8} {told}")
    return Text("\n".join(lines))


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
