import pytest
from plain_episode import build


@pytest.fixture
def episode():
    return build
