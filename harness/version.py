"""The version of this code; that of the distribution, which may not be installed (`tests/test_contracts.py`)."""

VERSION = "0.1.0"
