"""Where a sample's tokens come from. Every stream gives the same tokens for the same positions, at another cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from harness.trial.corpus import read_about


class Stream(Protocol):
    """One way to get at tokens."""

    def tokens(self, start: int, length: int) -> np.ndarray[Any, Any]:
        """`length` tokens from position `start` of the whole corpus."""
        ...


class _Corpus:
    """What every stream knows of a prepared folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.about = read_about(folder)
        self.documents: np.ndarray[Any, Any] = np.load(folder / "documents.npy")
        self.lines: np.ndarray[Any, Any] = np.load(folder / "lines.npy")


class CachedStream(_Corpus):
    """All tokens in memory, tokenised once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._all = np.fromfile(folder / "tokens.bin", dtype=self.about.dtype)

    def tokens(self, start: int, length: int) -> np.ndarray[Any, Any]:
        return self._all[start : start + length]


class MappedStream(_Corpus):
    """Tokens in a memory-mapped file: the pages that are read are the pages that are loaded."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._all: np.ndarray[Any, Any] = np.memmap(folder / "tokens.bin", dtype=self.about.dtype, mode="r")

    def tokens(self, start: int, length: int) -> np.ndarray[Any, Any]:
        return self._all[start : start + length]


class ParsingStream(_Corpus):
    """Reads each document's line, parses and tokenises it, for every sample anew."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._tokenise = _load_tokeniser(folder, self.about.tokeniser)

    def tokens(self, start: int, length: int) -> np.ndarray[Any, Any]:
        first = int(np.searchsorted(self.documents, start, side="right")) - 1
        last = int(np.searchsorted(self.documents, start + length, side="left")) - 1
        ids = np.concatenate([self._document(document) for document in range(first, last + 1)])
        offset = start - int(self.documents[first])
        return ids[offset : offset + length]

    def _document(self, index: int) -> np.ndarray[Any, Any]:
        with (self.folder / "corpus.jsonl").open("rb") as file:
            file.seek(int(self.lines[index]))
            return self._parse(file.readline())

    def _parse(self, line: bytes) -> np.ndarray[Any, Any]:
        content = json.loads(line)
        return np.asarray(content["tokens"]) if "tokens" in content else self._tokenise(content["text"])


class ReopeningStream(ParsingStream):
    """Opens the file for every document and reads it line by line up to the one that is wanted, as D3's reader does."""

    def _document(self, index: int) -> np.ndarray[Any, Any]:
        with (self.folder / "corpus.jsonl").open("rb") as file:
            for number, line in enumerate(file):
                if number == index:
                    return self._parse(line)
        raise IndexError(index)


STREAMS: Mapping[str, type[CachedStream | MappedStream | ParsingStream]] = {
    "parse": ParsingStream,
    "cached": CachedStream,
    "reopen": ReopeningStream,
    "mmap": MappedStream,
}


def _load_tokeniser(folder: Path, name: str) -> Any:
    if name != "bpe":
        return lambda text: np.frombuffer(text.encode(), dtype=np.uint8)
    from tokenizers import Tokenizer

    bpe = Tokenizer.from_file(str(folder / "tokeniser.json"))
    return lambda text: np.asarray(bpe.encode(text).ids)
