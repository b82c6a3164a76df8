"""Text for training: prepared once by the parent (numpy, no torch), read by every trial.

A prepared folder holds
    corpus.jsonl   one document a line, {"text": …} (or {"tokens": […]} for synthetic data)
    tokens.bin     all tokens one after another, uint16 or uint32
    documents.npy  (documents + 1,) int64: where each document's tokens begin
    lines.npy      (documents + 1,) int64: where each line of corpus.jsonl begins, in bytes
    about.json     kind, vocabulary, dtype, hash
so that every loader stream (parse, cached, reopen, mmap) draws the same tokens from another place.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import DataTooShortError, WorkloadError

#: Enough that a run never repeats a batch, small enough to prepare in seconds.
LARGEST_CORPUS_BYTES = 16 << 20
BPE_VOCABULARY = 4096
#: Longer pieces are cut at a line's end: one class of a hundred kilobytes would make its sample's cost a lottery.
LARGEST_PIECE = 4096
SYNTHETIC_TOKENS = 4 << 20
BUILT_IN = ("stdlib", "stdlib-bpe", "synthetic")

Tokenise = Callable[[str], list[int]]


@dataclass(frozen=True, kw_only=True)
class About:
    """What a prepared folder holds."""

    data: str
    tokeniser: str
    """`bytes`, `bpe`, or `none` (synthetic)."""
    vocabulary: int
    dtype: str
    tokens: int
    documents: int
    sha256: str
    """Of tokens.bin: two trials with the same hash saw the same data."""


def prepare(data: str, vocabulary: int, directory: Path) -> Path:
    """Prepare `data` for a model with `vocabulary` tokens under `directory`, unless it is there already.

    Safe to call from several processes at once. Returns the prepared folder.

    Raises:
        WorkloadError: no such data, a file that cannot be read, or no text in it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    name = _folder_name(data, vocabulary)
    folder = directory / name
    with (directory / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "about.json").exists():
            shutil.rmtree(folder, ignore_errors=True)
            partial = directory / f"{name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            _write(data, vocabulary, partial)
            partial.rename(folder)
    return folder


def read_about(folder: Path) -> About:
    """What `prepare` wrote about a folder."""
    return About(**json.loads((folder / "about.json").read_text(encoding="utf-8")))


def require_length(about: About, *, batching: str, sequence_length: int) -> None:
    """See that samples can be drawn: windows cut anywhere need more tokens than one holds, whole documents need two.

    Raises:
        DataTooShortError: they cannot.
    """
    holds = f"data {about.data!r} holds {about.tokens} tokens"
    if batching == "fixed" and about.tokens <= sequence_length:
        raise DataTooShortError(
            f"{holds}, and windows of sequence_length={sequence_length} can be cut from more than {sequence_length} "
            "only; give more text or a shorter sequence_length"
        )
    if about.tokens < 2:
        raise DataTooShortError(
            f"{holds}, and a sample of sequence_length={sequence_length} needs at least 2, one to learn from and one "
            "to learn; give more text"
        )


def _readable(data: str) -> Path:
    """The file that `data` names. A matrix says so with its place; this is for whoever starts a trial without one."""
    path = Path(data)
    if not path.is_file():
        raise WorkloadError(
            f"data {data!r}: there is no such file; give {', '.join(BUILT_IN)} or a path to text, JSONL or parquet"
        )
    if not os.access(path, os.R_OK):
        raise WorkloadError(f"data {data!r}: the file cannot be read; check its permissions")
    return path


def _folder_name(data: str, vocabulary: int) -> str:
    if data in BUILT_IN:
        # byte tokens do not depend on the model's vocabulary; random ones do
        return f"synthetic-{vocabulary}" if data == "synthetic" else data
    path = Path(data)
    stamp = f"{path.resolve()}:{path.stat().st_size}:{path.stat().st_mtime_ns}" if path.exists() else data
    return f"file-{hashlib.sha256(stamp.encode()).hexdigest()[:12]}"


def _write(data: str, vocabulary: int, folder: Path) -> None:
    if data == "synthetic":
        _write_tokens(folder, data, "none", vocabulary, _synthetic(vocabulary))
        return
    texts = list(_documents(data))
    if not texts:
        raise WorkloadError(f"data {data!r}: no text in it; give a file with at least one document")
    tokenise, name, size = _tokeniser(data, texts, folder)
    if size > vocabulary:
        raise WorkloadError(
            f"data {data!r} has {size} tokens but the model's vocabulary holds {vocabulary}; use `stdlib` (bytes)"
        )
    _write_tokens(folder, data, name, size, ((json.dumps({"text": text}), tokenise(text)) for text in texts))


def _write_tokens(folder: Path, data: str, name: str, size: int, documents: Iterable[tuple[str, list[int]]]) -> None:
    dtype = np.uint16 if size <= 1 << 16 else np.uint32
    token_starts, line_starts = [0], [0]
    digest = hashlib.sha256()
    with (folder / "corpus.jsonl").open("wb") as lines, (folder / "tokens.bin").open("wb") as tokens:
        for line, ids in documents:
            packed = np.asarray(ids, dtype=dtype).tobytes()
            digest.update(packed)
            tokens.write(packed)
            token_starts.append(token_starts[-1] + len(ids))
            line_starts.append(line_starts[-1] + lines.write(line.encode() + b"\n"))
    np.save(folder / "documents.npy", np.asarray(token_starts, dtype=np.int64))
    np.save(folder / "lines.npy", np.asarray(line_starts, dtype=np.int64))
    about = About(
        data=data, tokeniser=name, vocabulary=size, dtype=np.dtype(dtype).name, tokens=token_starts[-1],
        documents=len(token_starts) - 1, sha256=digest.hexdigest(),
    )  # fmt: skip
    (folder / "about.json").write_text(json.dumps(asdict(about), indent=1), encoding="utf-8")


def _synthetic(vocabulary: int) -> Iterator[tuple[str, list[int]]]:
    random = np.random.default_rng(20260101)
    left = SYNTHETIC_TOKENS
    while left > 0:
        length = min(left, int(random.integers(64, 1024)))
        ids = random.integers(0, vocabulary, length).tolist()
        yield json.dumps({"tokens": ids}), ids
        left -= length


def _tokeniser(data: str, texts: list[str], folder: Path) -> tuple[Tokenise, str, int]:
    if data != "stdlib-bpe":
        return lambda text: list(text.encode()), "bytes", 256
    bpe = _trained_bpe(texts)
    bpe.save(str(folder / "tokeniser.json"))
    return lambda text: bpe.encode(text).ids, "bpe", BPE_VOCABULARY


def _trained_bpe(texts: list[str]) -> Any:
    try:
        from tokenizers import ByteLevelBPETokenizer
    except ImportError:
        raise WorkloadError(
            "data 'stdlib-bpe' needs the package tokenizers; pip install tokenizers, or use `stdlib`"
        ) from None
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(texts[: 1 << 13], vocab_size=BPE_VOCABULARY, show_progress=False)
    return bpe


def _documents(data: str) -> Iterator[str]:
    if data in ("stdlib", "stdlib-bpe"):
        yield from _standard_library()
        return
    path = _readable(data)
    readers = {".jsonl": _json_lines, ".parquet": _parquet}
    try:
        yield from _up_to_size(readers.get(path.suffix, _plain_text)(path))
    except UnicodeDecodeError as error:
        raise WorkloadError(
            f"data {data!r}: not UTF-8 text ({error.reason} at byte {error.start}); convert the file"
        ) from None


def _standard_library() -> Iterator[str]:
    """Functions and classes of the standard library: real text of uneven lengths that every machine has."""
    root = Path(sysconfig.get_paths()["stdlib"])
    skipped = {"test", "tests", "site-packages", "dist-packages", "lib2to3", "idlelib", "__pycache__"}
    files = sorted(path for path in root.rglob("*.py") if not skipped & set(path.relative_to(root).parts))
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in files)
    pieces = (piece for text in texts for piece in re.split(r"(?m)^(?=def |class |async def )", text))
    yield from _up_to_size(part for piece in pieces for part in _cut(piece) if len(part) > 32)


def _cut(piece: str) -> Iterator[str]:
    while len(piece) > LARGEST_PIECE:
        end = piece.rfind("\n", 1, LARGEST_PIECE) + 1 or LARGEST_PIECE
        yield piece[:end]
        piece = piece[end:]
    yield piece


def _up_to_size(texts: Iterable[str]) -> Iterator[str]:
    left = LARGEST_CORPUS_BYTES
    for text in texts:
        if left <= 0:
            return
        left -= len(text)
        yield text


def _plain_text(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        block: list[str] = []
        for line in file:
            if line.strip():
                block.append(line)
            elif block:
                yield "".join(block)
                block = []
        if block:
            yield "".join(block)


def _json_lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                content = json.loads(line)
                text = content["text"]
            except (ValueError, KeyError, TypeError):
                raise WorkloadError(
                    f'{path}:{number}: not a JSON object with a "text"; mend or remove the line'
                ) from None
            yield str(text)


def _parquet(path: Path) -> Iterator[str]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise WorkloadError("parquet data needs the package pyarrow; pip install pyarrow") from None
    file = parquet.ParquetFile(path)
    if "text" not in file.schema_arrow.names:
        raise WorkloadError(f'{path}: no column "text"; it has {", ".join(file.schema_arrow.names)}')
    for batch in file.iter_batches(columns=["text"]):
        yield from (str(text) for text in batch.column("text").to_pylist())
