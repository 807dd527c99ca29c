"""The example that people read first runs as it stands, in short form."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_loop.py"


def test_the_example_imitates_reinforces_and_examines():
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--quick"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("reinforce ") == 2
    assert "hidden success after imitation:" in done.stdout
    assert "hidden success after reinforcement:" in done.stdout
