"""Settings for all tests: no deadlines, since a speed is never asserted in a test."""

from hypothesis import settings

settings.register_profile("scumble", deadline=None)
settings.load_profile("scumble")
