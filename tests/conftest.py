"""Settings of all tests."""

import os

import pytest
from hypothesis import settings

settings.register_profile(
    "any machine",
    deadline=None,  # how long an example takes says nothing about it
    derandomize="CI"
    in os.environ,  # what lands must not depend on luck; new examples are looked for elsewhere
)
settings.load_profile("any machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that leave threads behind come last: a process with threads does not fork."""
    items.sort(key=lambda item: item.get_closest_marker("threads") is not None)
