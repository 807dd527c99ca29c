import sys
from pathlib import Path

import pytest
from plain_episode import build

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS.parent / "benchmarks"), str(TESTS / "run")]
"""For what the benchmarks say of the diagnosis, and for a mapping that real runs are paid by."""


@pytest.fixture
def episode():
    return build
