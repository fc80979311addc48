"""For all tests: no deadlines, since a speed is never asserted in a test; and where a ledger may be kept."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("scumble", deadline=None)
settings.load_profile("scumble")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a ledger may be kept."""
    return tmp_path / "budget.ledger"
