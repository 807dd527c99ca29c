"""Pages as text: Jinja2 templates with autoescape over what the other modules of this room made."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from hexad.contract.faults import UserError
from hexad.evidence import traces
from hexad.evidence.diagnosis import words
from hexad.evidence.folder import Row
from hexad.evidence.summary import rate
from hexad.view import figures
from hexad.view.charts import Chart, Line, number
from hexad.view.conversation import STORED, conversation, numbers
from hexad.view.facts import Facts
from hexad.view.flow import flows
from hexad.view.index import Index
from hexad.view.lights import lights
from hexad.view.words import Words

KINDS = ("run0", "run1", "run2", "run3", "run4", "run5", "run6", "run7")
"""Colours of runs in a comparison; more runs start over."""


@cache
def asset(name: str) -> str:
    """The text of a packaged style sheet or script."""
    return files("hexad.view").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("hexad.view", "assets"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"number": number, "rate": rate}
    return made


def page(template: str, **values: Any) -> str:
    """The page that ``template`` makes of ``values``."""
    return _environment().get_template(template).render(values)


def stage(facts: Facts) -> Row:
    """What the overview of one stage shows."""
    part = facts.part
    budget = part.recipe.budget.model_dump(exclude_none=True)
    used = {**facts.last.get("consumed", {}), "seconds": facts.last.get("time", {}).get("train", 0)}
    spans = {split: part.on(split) for split in ("hidden", "selection")}
    return {
        "name": part.name,
        "method": part.recipe.method,
        "batches": len(part.metrics),
        "hidden_uses": part.hidden_uses,
        "spans": {k: (rows[0], rows[-1]) for k, rows in spans.items() if rows},
        "budget": [(key, used.get(key, 0), limit) for key, limit in budget.items()],
        "used": facts.last.get("consumed", {}),
        "recent": len(facts.recent),
        "lights": lights(facts),
        "flows": flows(facts),
        "success": figures.success(facts),
        "curves": figures.curves(facts),
        "groups": figures.groups(facts),
        "group_rows": figures.group_rows(facts),
        "lag_rows": figures.lag_rows(facts),
        "lag_names": list(figures.LAG.values()),
        "drop_rows": figures.drop_rows(facts),
        "calibration": figures.calibration(facts),
        "critic_rows": figures.critic_rows(facts),
        "critic": facts.last.get("critic", {}),
    }


def diagnosis(facts: Facts) -> Row:
    """What ``hexad diagnose`` finds in one stage: its probes judge stored episodes again.

    Where they cannot be, ``refused`` says why and nothing else is claimed.
    """
    try:
        found = facts.diagnosis
    except UserError as error:
        return {"refused": error.what, "fix": error.fix}
    rows = words.looked_at(found["facts"])
    return {
        "refused": "",
        "nothing": "" if found["findings"] else words.nothing(found),
        "findings": [{**row, "heading": words.heading(row)} for row in found["findings"]],
        "title": words.title(found["facts"]) if rows else "",
        "rows": rows,
        "not_checked": found["not_checked"],
    }


def comparison(runs: Sequence[tuple[str, Sequence[Facts]]]) -> Row:
    """Several runs side by side: their selection curves in one chart, and a row a stage."""
    lines, rows = [], []
    for place, (name, stages) in enumerate(runs):
        kind = KINDS[place % len(KINDS)]
        for facts in stages:
            part, seen = facts.part, facts.part.on("selection")
            label = name if len(stages) == 1 else f"{name}: {part.name}"
            x = [float(part.episodes_at(row["step"])) for row in seen]
            y, low, high = ([100 * r[key] for r in seen] for key in ("success", "low", "high"))
            if x:
                lines.append(Line(label, kind, x, y, low, high))
            rows.append({"label": label, "kind": kind, **stage(facts)})
    note = "bands: 95 % Wilson intervals over tasks of one run, no spread over seeds"
    chart = Chart("Success on selection tasks", tuple(lines), note, "%", (0.0, 100.0))
    return {"chart": chart if lines else None, "rows": rows}


def episode(index: Index, row: Row, words: Words) -> Row:
    """What the page of one episode shows."""
    found = index.episode(row)
    traced = traces.read(index.folder, row["step"], found.episode_id)
    return {
        "row": row,
        "talk": conversation(found, words, traced),
        "numbers": numbers(found, traced),
        "stored": STORED,
        "tokenizer": words.source,
        "near": index.near(row),
        "members": index.members(row),
    }


def report(run_dir: Path, stages: Sequence[Facts], episodes: int) -> str:
    """One page with everything in it: style, script, pictures, and ``episodes`` whole episodes."""
    shown = []
    for facts in stages:
        weights = facts.part.recipe.feedback.weights
        index, words = Index(facts.part.folder, weights), Words(facts.part.folder)
        index.refresh()
        talks = [episode(index, row, words) for row in index.samples(episodes)]
        shown.append({**stage(facts), "diagnosis": diagnosis(facts), "episodes": talks})
    style, script = asset("view.css"), asset("view.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    names = {"style": style, "script": script, "policy": policy}
    return page("report.html", run=str(run_dir), stages=shown, **names)


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
