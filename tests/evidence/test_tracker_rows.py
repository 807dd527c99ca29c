"""Rows for trackers: the logs merged by step, whatever was written between two looks."""

from hexad.evidence import journal
from hexad.evidence.trackers.book import Book
from hexad.evidence.trackers.rows import BATCHES, Rows, last_step
from hexad.evidence.trackers.tracker import numbers


def batch(folder, step, **more):
    budget = {"budget/episodes": 4 * (step + 1), "budget/rollout_tokens": 40 * (step + 1)}
    journal.append(folder / journal.METRICS, {"step": step, **budget, **more})


def evaluation(folder, step, split="selection", success=0.5):
    row = {"step": step, "split": split, "success": success, "verifier": "abc", "time": {"at": 7.5}}
    journal.append(folder / journal.EVALUATIONS, row)


def seen(rows):
    return [(row.series, row.step) for row in rows.fresh()]


def test_names_stay_and_only_numbers_are_told(tmp_path):
    evaluation(tmp_path, 0, "hidden")
    batch(tmp_path, 0, **{"policy/loss": 0.25, "note": "secret", "flag": True, "list": [1]})
    evaluation(tmp_path, 1)
    first, second, third = Rows(tmp_path).fresh()
    assert first.numbers == {"hidden/success": 0.5, "hidden/time/at": 7.5}
    assert second.numbers == {
        "budget/episodes": 4,
        "budget/rollout_tokens": 40,
        "policy/loss": 0.25,
    }
    assert third.numbers == {
        "selection/success": 0.5,
        "selection/time/at": 7.5,
        "selection/budget/episodes": 4,
        "selection/budget/rollout_tokens": 40,
    }


def test_steps_never_fall_and_no_row_comes_twice(tmp_path):
    rows = Rows(tmp_path)
    assert seen(rows) == []
    evaluation(tmp_path, 0)
    assert seen(rows) == [("selection", 0)]
    batch(tmp_path, 0)
    batch(tmp_path, 1)
    evaluation(tmp_path, 2)
    evaluation(tmp_path, 2, "hidden")
    batch(tmp_path, 2)
    expected = [(BATCHES, 0), (BATCHES, 1), ("selection", 2), ("hidden", 2), (BATCHES, 2)]
    assert seen(rows) == expected and seen(rows) == []
    assert seen(Rows(tmp_path)) == [("selection", 0), *expected]


def test_an_evaluation_waits_for_the_batches_before_it(tmp_path, monkeypatch):
    batch(tmp_path, 0)
    rows, late = Rows(tmp_path), []
    take = Rows._take

    def meanwhile(path, start, into):
        if not late:  # between the two logs a batch and its evaluation are written
            late.append(True)
            batch(tmp_path, 1)
            evaluation(tmp_path, 2)
        return take(path, start, into)

    monkeypatch.setattr(Rows, "_take", staticmethod(meanwhile))
    assert seen(rows) == [(BATCHES, 0)]
    assert seen(rows) == [(BATCHES, 1), ("selection", 2)]


def test_a_torn_row_is_no_row_yet(tmp_path):
    batch(tmp_path, 0)
    path = tmp_path / journal.METRICS
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"step":1')
    rows = Rows(tmp_path)
    assert seen(rows) == [(BATCHES, 0)] and last_step(tmp_path) == 0
    batch(tmp_path, 1)  # the journal cuts the torn row off first
    assert seen(rows) == [(BATCHES, 1)] and last_step(tmp_path) == 1


def test_a_book_wants_what_is_new_and_not_before_the_rest():
    book = Book(told={BATCHES: 5, "selection": 3})
    assert [book.wants(BATCHES, step) for step in (4, 5, 6)] == [False, False, True]
    assert [book.wants("selection", step) for step in (3, 4, 5)] == [False, False, True]
    assert book.wants("hidden", 5) and not book.wants("hidden", 4)
    assert Book().step == -1 and Book().wants(BATCHES, 0)


def test_numbers_of_a_tree():
    tree = {"a": {"b": 1, "c": {"d": 0.5}}, "text": "no", "flag": False, "none": None, "list": [1]}
    assert numbers(tree, "x/") == {"x/a/b": 1, "x/a/c/d": 0.5}
