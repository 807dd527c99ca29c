"""Who tells of a failure when several processes share a run."""

import socket
from datetime import timedelta

import pytest
from torch.distributed import TCPStore

from hexad.cli import ranks
from hexad.cli.report import conclude
from hexad.contract.faults import FaultRateExceeded, UserError


@pytest.fixture
def shared(monkeypatch):
    """Two processes and a store that outlives them; ``shared(rank)`` makes this one ``rank``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = TCPStore("127.0.0.1", port, is_master=True, timeout=timedelta(seconds=5))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    monkeypatch.setattr(ranks, "_PATIENCE", timedelta(seconds=2))

    def become(rank):
        monkeypatch.setenv("RANK", str(rank))

    yield become
    del store


def fail(error):
    def action():
        raise error

    return action


def test_the_first_to_fail_tells_and_nobody_else(shared, capsys):
    shared(1)
    assert conclude(fail(UserError("rank 1 is wrong")), as_json=False) == 2
    assert "rank 1 is wrong" in capsys.readouterr().err
    shared(0)
    lost = RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer")
    assert conclude(fail(lost), as_json=False) == 1
    streams = capsys.readouterr()
    assert streams.err == "" == streams.out


def test_a_lost_neighbour_is_told_as_such_when_nobody_said_why(shared, capsys, tmp_path):
    shared(0)
    lost = RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer")
    assert conclude(fail(lost), as_json=False, crash_folder=lambda: tmp_path) == 1
    err = capsys.readouterr().err
    assert "another rank ended without a word" in err and "--resume" in err
    assert "gloo" in (tmp_path / "crash.txt").read_text()


@pytest.mark.parametrize(("rank", "shown"), [(0, 1), (1, 0)])
def test_without_a_store_rank_0_tells(monkeypatch, capsys, rank, shown):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.delenv("MASTER_PORT", raising=False)
    assert conclude(fail(UserError("bad")), as_json=False) == 2
    assert capsys.readouterr().err.count("bad") == shown


@pytest.mark.parametrize(("rank", "shown"), [(0, 1), (1, 0)])
def test_one_process_prints_the_document(shared, capsys, rank, shown):
    shared(rank)
    assert conclude(lambda: {"done": True}, as_json=True) == 0
    assert capsys.readouterr().out.count("done") == shown


def test_one_process_alone_speaks(monkeypatch, capsys):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("RANK", "3")
    assert ranks.first()
    gloo = RuntimeError("gloo")
    assert not ranks.lost_neighbour(gloo)
    assert conclude(fail(gloo), as_json=False) == 1 and "gloo" in capsys.readouterr().err


def test_faults_name_the_way_on_and_are_no_bug(capsys, tmp_path):
    error = FaultRateExceeded("3 of 4 episodes faulted")
    assert conclude(fail(error), as_json=False, crash_folder=lambda: tmp_path) == 1
    err = capsys.readouterr().err
    assert "3 of 4" in err and str(tmp_path) in err and "fault of Hexad" not in err
    assert not (tmp_path / "crash.txt").exists()
