"""A disk that is full from some moment on: one message, and a resume that loses nothing."""

import errno
import os

import pytest
from tiny import train, weights


def full_from(monkeypatch, allowed):
    """Let ``allowed`` files reach the disk; every later one meets ENOSPC. Returns the count."""
    real, calls = os.fsync, []

    def fsync(descriptor):
        calls.append(1)
        if len(calls) > allowed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return calls


@pytest.fixture(scope="module")
def syncs(tmp_path_factory):
    """How often a whole run forces a file to disk."""
    with pytest.MonkeyPatch.context() as patched:
        calls = full_from(patched, 10**9)
        assert train(tmp_path_factory.mktemp("counted") / "run")[0] == 0
    return len(calls)


@pytest.mark.parametrize("share", [0.02, 0.2, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9])
def test_a_full_disk_is_one_message_and_costs_only_what_was_not_committed(
    tmp_path, monkeypatch, finished, syncs, share
):
    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        full_from(patched, int(share * syncs))
        code, text = train(run)
    assert code == 2 and text.count("error:") == 1 and "Traceback" not in text
    assert "No space left" in text and "where:" in text and "fix:" in text
    begun = (run / "checkpoints").is_dir()
    code, text = train(run, *(["--resume"] if begun else []))
    assert code == 0 and weights(run) == weights(finished), text
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2
