import shutil

import pytest
import tiny


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A run of the tiny recipe that has ended. Do not change it."""
    run = tmp_path_factory.mktemp("finished") / "run"
    code, text = tiny.train(run)
    assert code == 0, text
    return run


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the finished run, to be spoiled."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"
