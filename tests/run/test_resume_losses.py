"""Two kills in a row lose two batches of work, and the ledger says so."""

import json
import signal

import pytest
from short_run import finish, start
from tiny import write_recipe

BATCH = 4


def killed(run):
    return json.loads((run / "ledger.jsonl").read_text().splitlines()[-1])["killed"]


@pytest.mark.parametrize("point", ["loop:after-store:1", "resume:booked", "resume:dropped"])
def test_a_second_kill_hides_nothing(tmp_path, point):
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    for words, crash in (((), "loop:after-store:2"), (("--resume",), point)):
        process = start(recipe, run, *words, HEXAD_CRASH_AT=crash)
        output, _ = process.communicate(timeout=240)
        assert process.returncode == -signal.SIGKILL, output
    finish(start(recipe, run, "--resume"))
    again = point.startswith("loop")
    assert killed(run)["episodes"] == BATCH * (2 if again else 1)
    rows = [json.loads(line) for line in (run / "lost.jsonl").read_text().splitlines()]
    assert sum(row.get("episodes", 0) for row in rows) == killed(run)["episodes"]
    assert killed(run)["sampled_tokens"] == sum(row.get("sampled_tokens", 0) for row in rows)
