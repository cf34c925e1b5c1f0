"""Settings of all tests."""

from hypothesis import settings

settings.register_profile("any machine", deadline=None)  # how long an example takes says nothing about it
settings.load_profile("any machine")
