"""What the coverage-guided fuzzers share: atheris, a dictionary of the format's words, and where seeds lie.

atheris (https://pypi.org/project/atheris) is for this alone and no dependency of the tests: `pip install atheris`.
"""

from __future__ import annotations

import string
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.fuzz.oracles import Oracle

_PLAIN = frozenset(string.ascii_letters + string.digits + "-_:., ")
CORPUS = Path(__file__).parent / "corpus"


def fuzz(oracle: Oracle, *, seeds: str, words: Iterable[str]) -> None:
    """Run libFuzzer until it finds something or its time is over. Its options stand on the command line."""
    import atheris

    def test_one_input(content: bytes) -> None:
        oracle(content)

    with tempfile.NamedTemporaryFile("w", suffix=".dict") as dictionary:
        dictionary.writelines(f"{entry}\n" for entry in map(_quoted, sorted(set(words))))
        dictionary.flush()
        own, folders = _arguments(sys.argv[1:])
        arguments = [sys.argv[0], f"-dict={dictionary.name}", *own, *folders, str(CORPUS / seeds)]
        atheris.Setup(arguments, test_one_input)
        atheris.Fuzz()


def _arguments(given: list[str]) -> tuple[list[str], list[str]]:
    """Options and folders, with defaults: texts of a few kilobytes, no input may take half a minute or 2 GiB."""
    options = [each for each in given if each.startswith("-")]
    defaults = ["-max_len=4096", "-timeout=30", "-rss_limit_mb=2048", "-print_final_stats=1"]
    return [*defaults, *options], [each for each in given if not each.startswith("-")]


def _quoted(word: str) -> str:
    """An entry of libFuzzer's dictionary."""
    letters = (chr(byte) if chr(byte) in _PLAIN else f"\\x{byte:02x}" for byte in word.encode())
    return f'"{"".join(letters)}"'
