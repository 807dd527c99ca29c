"""What one tracker is told over kills, failures and resumes, by a library that is recorded."""

import json
from pathlib import Path

import pytest
from test_tracker_rows import batch, evaluation

from hexad.evidence import journal
from hexad.evidence.trackers import book as books
from hexad.evidence.trackers.follow import Follower
from hexad.evidence.trackers.rows import last_step
from hexad.evidence.trackers.tracker import Subject


class Library:
    """What a library was asked to do, over all sessions, and what it refuses."""

    def __init__(self, rewinds=False):
        self.calls, self.broken = [], set()
        library = self

        class Session:
            def __init__(self, subject, known, first):
                library.call("open", known, first)
                self.known = {"id": "run-1"}

            def tell(self, numbers, step):
                library.call("tell", step)

            def flush(self):
                library.call("flush")

            def end(self, summary, step, *, done):
                library.call("end", summary, step, done)

        Session.rewinds = rewinds
        self.session = Session

    def call(self, *what):
        if what[0] in self.broken:
            raise ConnectionError("nobody answers")
        self.calls.append(what)

    def told(self):
        """Steps that were told, and the calls forgotten."""
        steps = [what[1] for what in self.calls if what[0] == "tell"]
        self.calls.clear()
        return steps

    def follow(self, folder):
        return Follower(self.session, "lib", Subject(folder, "run", "", {}), last_step(folder))


@pytest.fixture
def library():
    return Library()


def book(folder):
    return books.load(books.place(folder, "lib", "json"))


def killed(folder, kept):
    """Cut the logs to ``kept`` batches, as a resume does."""
    for name, limit in ((journal.METRICS, kept), (journal.EVALUATIONS, kept + 1)):
        path = folder / name
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if json.loads(line)["step"] < limit))


def trained(folder, first, last):
    for step in range(first, last):
        batch(folder, step)
    evaluation(folder, last)


def test_every_row_is_told_once_and_the_summary_last(library, tmp_path):
    follower = library.follow(tmp_path)
    trained(tmp_path, 0, 3)
    follower.catch_up()
    follower.catch_up()
    batch(tmp_path, 3)
    follower.end({"updates": 4})
    assert library.calls == [
        ("open", None, 0),
        *[("tell", step) for step in (0, 1, 2, 3)],
        ("flush",),
        ("tell", 3),
        ("flush",),
        ("end", {"summary/updates": 4}, 3, True),
    ]
    kept = book(tmp_path)
    assert (kept.known, kept.rows, kept.failures, kept.missed) == ({"id": "run-1"}, 5, 0, 0)
    assert kept.done and kept.told == {"batches": 3, "selection": 3, "summary": 3}


def test_a_kill_that_undid_nothing_goes_on_where_it_was(library, tmp_path):
    trained(tmp_path, 0, 2)
    library.follow(tmp_path).end(None)
    assert library.calls[-1] == ("end", {}, 2, False) and library.told() == [0, 1, 2]
    trained(tmp_path, 2, 4)
    library.follow(tmp_path).end({})
    assert library.calls[0] == ("open", {"id": "run-1"}, 3) and library.told() == [2, 3, 4]
    assert book(tmp_path).rewound == []


def test_what_a_kill_undid_stays_and_is_said_where_nothing_is_taken_back(library, tmp_path):
    trained(tmp_path, 0, 6)
    library.follow(tmp_path).end(None)
    library.told()
    killed(tmp_path, 4)
    follower = library.follow(tmp_path)
    trained(tmp_path, 4, 8)  # before the process has looked at the logs for the first time
    library.broken = {"open"}
    follower.catch_up()
    library.broken = set()
    follower.end(None)
    assert library.told() == [6, 7, 8]
    assert book(tmp_path).rewound == [[4, 5]] and book(tmp_path).missed == 0


def test_what_a_kill_undid_is_taken_back_where_that_is_possible(tmp_path):
    library = Library(rewinds=True)
    trained(tmp_path, 0, 6)
    library.follow(tmp_path).end(None)
    library.told()
    killed(tmp_path, 4)
    evaluation(tmp_path, 4, "hidden")
    follower = library.follow(tmp_path)
    follower.catch_up()
    assert library.calls[0] == ("open", {"id": "run-1"}, 4) and library.told() == [4]
    trained(tmp_path, 4, 6)
    library.broken = {"tell"}
    follower.catch_up()  # the next session takes nothing back
    library.broken = set()
    follower.end(None)
    assert library.calls[0] == ("open", {"id": "run-1"}, 5)
    assert library.told() == [4, 5, 6] and book(tmp_path).rewound == []


@pytest.mark.parametrize("where", ["open", "tell", "flush"])
def test_a_failure_is_counted_and_what_it_missed_is_told_later(library, tmp_path, where):
    follower = library.follow(tmp_path)
    trained(tmp_path, 0, 2)
    library.broken = {where}
    follower.catch_up()
    follower.catch_up()
    assert book(tmp_path).failures == 2 and follower.pause == 4.0
    assert "nobody answers" in book(tmp_path).error
    library.broken = set()
    library.told()
    trained(tmp_path, 2, 3)
    follower.end(None)
    steps = library.told()
    assert steps == [0, 1, 2, 2, 3] and follower.pause == 1.0
    assert book(tmp_path).missed == 0 and book(tmp_path).failures == 2


def test_pauses_grow_up_to_a_limit(library, tmp_path):
    library.broken = {"open"}
    follower = library.follow(tmp_path)
    for _ in range(9):
        follower.catch_up()
    assert follower.pause == 60.0


def test_what_was_never_told_is_counted(library, tmp_path):
    trained(tmp_path, 0, 3)
    library.broken = {"open"}
    library.follow(tmp_path).end({"updates": 1})
    kept = book(tmp_path)
    assert (kept.missed, kept.failures, kept.rows, kept.known) == (4, 1, 0, None)
    library.broken = {"end"}
    library.follow(tmp_path).end({"updates": 1})
    assert book(tmp_path).missed == 0 and book(tmp_path).failures == 2


def test_a_finished_run_is_not_summed_up_twice(library, tmp_path):
    trained(tmp_path, 0, 2)
    library.follow(tmp_path).end({"updates": 1})
    library.calls.clear()
    library.follow(tmp_path).end({"updates": 1})
    assert library.calls == [("open", {"id": "run-1"}, 3), ("end", {}, 2, True)]


def test_a_book_is_whole_or_the_one_before(tmp_path):
    path = books.place(tmp_path, "lib", "json")
    books.save(books.Book(rows=3), path)
    assert books.load(path) == books.Book(rows=3) and Path(path).name == "lib.json"
    assert [each.name for each in path.parent.iterdir()] == ["lib.json"]
