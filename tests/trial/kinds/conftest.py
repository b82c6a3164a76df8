"""Every test here runs real trials."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder; the hook sees the items of all."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("train")
