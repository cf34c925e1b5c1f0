"""Settings of all tests."""

import os

from hypothesis import settings

settings.register_profile(
    "any machine",
    deadline=None,  # how long an example takes says nothing about it
    derandomize="CI"
    in os.environ,  # what lands must not depend on luck; new examples are looked for elsewhere
)
settings.load_profile("any machine")
