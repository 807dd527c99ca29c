"""The local site: which address shows what. No sockets here; see ``server.py``."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from hexad.contract.faults import UserError
from hexad.view import pages
from hexad.view.facts import Facts, read, stamp
from hexad.view.index import ORDERS, Index, Query
from hexad.view.words import Words

_T = TypeVar("_T")
HTML, JSON = "text/html; charset=utf-8", "application/json"
_ASSETS = {"view.css": "text/css; charset=utf-8", "view.js": "text/javascript; charset=utf-8"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to the browser."""

    body: str
    kind: str = HTML
    status: HTTPStatus = HTTPStatus.OK


class Run:
    """One run folder, read again whenever its logs have changed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name or str(folder)
        self._seen, self._stages = "", list[Facts]()
        self._indices: dict[Path, tuple[Index, Words]] = {}

    @property
    def stamp(self) -> str:
        """Changes when the run does."""
        return stamp(self.folder)

    @property
    def stages(self) -> list[Facts]:
        """The stages as they are now. Raises ``UserError`` when the folder is not a run."""
        if not self._stages or self._seen != self.stamp:
            self._seen, self._stages = self.stamp, read(self.folder)
        return self._stages

    def stored(self, facts: Facts) -> tuple[Index, Words]:
        """The stored episodes of a stage, up to date, and the texts of its tokens."""
        folder = facts.part.folder
        if folder not in self._indices:
            self._indices[folder] = (
                Index(folder, facts.part.recipe.feedback.weights),
                Words(folder),
            )
        index, words = self._indices[folder]
        if words.source is None or not words.source.exists():
            self._indices[folder] = index, words = index, Words(folder)
        index.refresh()
        return index, words


class Site:
    """Answers for several runs. One request at a time is worked on; the rest wait."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.runs = [Run(folder) for folder in folders]
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raise ``UserError`` for a folder that is not a run."""
        for run in self.runs:
            run.stages  # noqa: B018 - reading them is the check

    def answer(self, address: str) -> Answer:
        """The answer to a request for ``address``, a path with its query."""
        split = urlsplit(address)
        words = dict(parse_qsl(split.query))
        path = [part for part in split.path.split("/") if part]
        with self._lock:
            try:
                return self._route(path, words)
            except _Missing:
                return self._wrong("There is no such page.", "", HTTPStatus.NOT_FOUND)
            except UserError as error:
                return self._wrong(error.what, error.fix, HTTPStatus.BAD_REQUEST)

    def _route(self, path: list[str], words: dict[str, str]) -> Answer:
        if not path:
            return self._home()
        if path[0] == "assets" and len(path) == 2 and path[1] in _ASSETS:
            return Answer(pages.asset(path[1]), _ASSETS[path[1]])
        if path == ["compare"]:
            return self._compare()
        if path == ["compare", "stamp"]:
            return self._stamps()
        if path[0] != "run" or len(path) < 2:
            raise _Missing
        run = _at(self.runs, path[1])
        if path[2:] == ["stamp"]:
            return Answer(json.dumps({"stamp": run.stamp}), JSON)
        facts = _at(run.stages, path[2] if len(path) > 2 else "0")
        views: dict[str, Callable[[], Answer]] = {
            "": lambda: self._overview(run, facts),
            "diagnosis": lambda: self._diagnosis(run, facts),
            "episodes": lambda: self._episodes(run, facts, Query.of(words)),
            "episode": lambda: self._episode(run, facts, words.get("id", "")),
        }
        rest = "/".join(path[3:])
        if rest not in views:
            raise _Missing
        return views[rest]()

    def _home(self) -> Answer:
        """The run itself, its newest stage first; several runs side by side."""
        if len(self.runs) > 1:
            return self._compare()
        stages = self.runs[0].stages
        return self._overview(self.runs[0], _at(stages, str(len(stages) - 1)))

    def _overview(self, run: Run, facts: Facts) -> Answer:
        return self._page("run.html", run, facts, stage=pages.stage(facts))

    def _diagnosis(self, run: Run, facts: Facts) -> Answer:
        found = pages.diagnosis(facts)
        return self._page("diagnosis.html", run, facts, stage=facts.part.name, found=found)

    def _compare(self) -> Answer:
        named = [(run.name, run.stages) for run in self.runs]
        return self._page("compare.html", None, None, **pages.comparison(named))

    def _stamps(self) -> Answer:
        """Changes when any of the runs does."""
        return Answer(json.dumps({"stamp": "".join(run.stamp for run in self.runs)}), JSON)

    def _episodes(self, run: Run, facts: Facts, query: Query) -> Answer:
        index, _ = run.stored(facts)
        found = index.find(query)
        address = f"/run/{self.runs.index(run)}/{run.stages.index(facts)}/episodes"

        def at(page: int) -> str:
            return f"{address}?{urlencode({**query.words, 'page': page})}"

        return self._page(
            "episodes.html",
            run,
            facts,
            found=found,
            choices=index.choices(),
            orders=list(ORDERS),
            at=at,
        )

    def _episode(self, run: Run, facts: Facts, episode_id: str) -> Answer:
        index, words = run.stored(facts)
        shown = pages.episode(index, index.row(episode_id), words)
        return self._page("episode.html", run, facts, shown=shown)

    def _page(
        self, template: str, run: Run | None, facts: Facts | None, **values: object
    ) -> Answer:
        """A page with the navigation above it."""
        here = None
        if run is not None and facts is not None:
            number, stage = self.runs.index(run), run.stages.index(facts)
            here = {"run": number, "stage": stage, "base": f"/run/{number}/{stage}"}
        tree = [
            (number, each.name, [facts.part.name for facts in each.stages])
            for number, each in enumerate(self.runs)
        ]
        return Answer(pages.page(template, tree=tree, here=here, **values))

    def _wrong(self, what: str, fix: str, status: HTTPStatus) -> Answer:
        return Answer(
            pages.page("wrong.html", tree=[], here=None, what=what, fix=fix), HTML, status
        )


class _Missing(Exception):
    """The address names nothing."""


def _at(items: Sequence[_T], place: str) -> _T:
    if not place.isdecimal() or len(place) > 6 or int(place) >= len(items):
        raise _Missing
    return items[int(place)]
