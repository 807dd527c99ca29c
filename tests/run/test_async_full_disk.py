"""A worker's disk that is full: one message, nobody left behind, a resume that loses nothing."""

import sys

import pytest
from async_run import MARK, left_behind, require_sound, write_recipe
from tiny import hexad


@pytest.mark.timeout(900)
def test_a_log_that_cannot_be_written_is_one_message_and_the_run_can_be_resumed(
    tmp_path, monkeypatch
):
    recipe, run = (
        write_recipe(tmp_path, **{"budget: {episodes: 24}": "budget: {episodes: 8}"}),
        tmp_path / "run",
    )
    monkeypatch.setenv(MARK, str(run))
    with monkeypatch.context() as patched:
        program = tmp_path / "small_files.sh"
        program.write_text(f'#!/bin/sh\nulimit -f 8\nexec {sys.executable} "$@"\n')  # 4 KiB
        program.chmod(0o755)
        patched.setattr(sys, "executable", str(program))
        code, text = hexad("train", recipe, "--run", run)
    assert code == 2 and text.count("error:") == 1 and "Traceback" not in text, text
    assert all(each in "".join(text.split()) for each in ("Filetoolarge", ".arrows", "--resume"))
    monkeypatch.delenv(MARK)
    assert left_behind(run) == []
    code, text = hexad("train", recipe, "--run", run, "--resume")
    assert code == 0, text
    require_sound(run)
