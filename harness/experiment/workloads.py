"""The models and data that a matrix can name: built-in words, and files beside the matrix."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import suggestion
from harness.experiment.step_source import function_problem

#: Built-in shapes; `trial.shapes` holds what stands behind each.
BUILT_IN_MODELS = ("tiny", "tiny-gpt2", "gpt2-124m", "gpt2-124m-padded", "gpt2-350m", "qwen2-0.5b", "llama-1b")
#: Built-in data; `trial.corpus` prepares it.
BUILT_IN_DATA = ("stdlib", "stdlib-bpe", "synthetic")

#: Far more than any has.
LARGEST_CONFIG_BYTES = 1 << 20

#: 256 MiB are read in a fifth of a second; of more, half of that at each end.
SAMPLED_BYTES = 1 << 28

_STEP = re.compile(r"(?P<file>.+\.py):(?P<function>[^\W\d]\w*)")


def model_problem(model: str, folder: Path) -> str | None:
    """Why `model` cannot be used, or None. Paths count from `folder`, the folder of the matrix."""
    if model in BUILT_IN_MODELS:
        return None
    step = _STEP.fullmatch(model)
    path = step["file"] if step else model
    file, colon, _ = model.rpartition(":")
    if not step and colon and file.endswith(".py"):
        return f"model {model!r}: name one function of the file after the colon, as in {file}:build"
    if not step and "/" not in model and not model.endswith((".json", ".py")) and not os.path.exists(folder / model):
        return (
            f"unknown model {model!r}{suggestion(model, BUILT_IN_MODELS)} (or a config.json, a folder, file.py:build)"
        )
    problem = _outside(path, folder) or _file_problem(model, path, folder, is_step=step is not None)
    return problem and f"model {model!r}: {problem}"


def _file_problem(model: str, path: str, folder: Path, *, is_step: bool) -> str | None:
    """Why the file that a model names cannot be used, or None."""
    full = folder / path
    if os.path.isdir(full):
        full = full / "config.json"
    elif path.endswith(".py") and not is_step:
        return f"name the function too, as in {model}:build"
    name = os.path.relpath(full, folder)
    if not os.path.isfile(full):
        return f"there is no file {name} beside the matrix"
    if not os.access(full, os.R_OK):
        return f"{name} cannot be read; check its permissions"
    if is_step:
        return _step_problem(full, model.rpartition(":")[2])
    if not name.endswith(".json"):
        return f"{name} is no config.json; give one, or a folder that has one, or file.py:build"
    _, problem = read_config(Path(full))
    return problem and f"{name}: {problem}"


def _step_problem(file: Path, function: str) -> str | None:
    try:
        return function_problem(file.read_bytes(), function)
    except OSError as error:
        return f"it cannot be read ({error.strerror})"


def read_config(path: Path) -> tuple[dict[str, Any], str | None]:
    """The values of a transformers `config.json`, and why it cannot be used, or None."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_CONFIG_BYTES + 1)
        if len(content) > LARGEST_CONFIG_BYTES:
            return {}, f"it is larger than {LARGEST_CONFIG_BYTES >> 20} MiB, which no configuration is"
        values = json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        return {}, f"it cannot be read as JSON ({error}); mend the file"
    if not isinstance(values, dict) or not isinstance(values.get("model_type"), str):
        return {}, "no `model_type`; it must be a transformers configuration (a JSON object)"
    code = next((key for key, value in _entries(values) if _names_code(key, value)), None)
    remedy = "which is never done; use a model built into transformers"
    return values, None if code is None else f"`{code}` names code to run, {remedy}"


def _entries(values: object) -> Iterator[tuple[str, object]]:
    """Every key with its value, those of nested configurations too."""
    if isinstance(values, dict):
        yield from values.items()
    for each in values.values() if isinstance(values, dict) else values if isinstance(values, list) else ():
        yield from _entries(each)


def _names_code(key: str, value: object) -> bool:
    """Classes in files beside the configuration, or an attention kernel in somebody's repository (`owner/name`)."""
    return (key == "auto_map" and bool(value)) or (key.endswith("_implementation") and "/" in str(value))


def is_step(model: str) -> bool:
    """Whether a model is a training step of the user's own, `file.py:build`."""
    return _STEP.fullmatch(model) is not None


def data_problem(data: str, folder: Path) -> str | None:
    """Why `data` cannot be used, or None."""
    if data in BUILT_IN_DATA:
        return None
    if outside := _outside(data, folder):
        return f"data {data!r}: {outside}"
    if os.path.isfile(folder / data):
        return None if os.access(folder / data, os.R_OK) else f"data {data!r} cannot be read; check its permissions"
    return f"data {data!r}: there is no such file beside the matrix{suggestion(data, BUILT_IN_DATA)}"


def located(name: str, folder: str) -> str:
    """The model or data as it can be opened from the current folder: a built-in word, or a path joined to `folder`."""
    if name in BUILT_IN_MODELS or name in BUILT_IN_DATA or not folder:
        return name
    return os.path.join(folder, name)


def contents_of(model: str, data: str, folder: Path) -> str:
    """16 hexadecimal digits of what the files hold that a workload names; empty where both words are built in.

    Of a model's folder the configuration counts with its bytes and every other file with its name and size, of a step
    its own file, not what it imports. Of files larger than `SAMPLED_BYTES` the ends and the size count.
    """
    step = _STEP.fullmatch(model)
    named = [step["file"] if step else model] if model not in BUILT_IN_MODELS else []
    named += [data] if data not in BUILT_IN_DATA else []
    digest = hashlib.sha256()
    for path in (folder / name for name in named):
        files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        for file in files:
            whole = file is path or file.name == "config.json"
            name = file.relative_to(path).as_posix() if file is not path else ""
            digest.update(f"{name}\0{file.stat().st_size}\0{_digest(file) if whole else ''}\0".encode())
    return digest.hexdigest()[:16] if named else ""


def change_problem(model: str, data: str, folder: Path, contents: str) -> str | None:
    """Why the files that a workload names are not those whose `contents_of` a plan has taken, or None.

    Trials of an edited file must not stand under the key of the file that it was.
    """
    if not contents:
        return None
    try:
        found = contents_of(model, data, folder)
    except OSError as error:
        found = f"{error.filename}: {error.strerror}"
    if found == contents:
        return None
    named = " or ".join(os.path.basename(name) for name in (model, data) if name not in BUILT_IN_MODELS + BUILT_IN_DATA)
    return (
        f"{named} was changed while the run went on, and its trials would be of two workloads; start the command "
        "again, which measures the file as it is then: what is stored is kept"
    )


def _digest(file: Path) -> str:
    size = file.stat().st_size
    with file.open("rb") as opened:
        if size <= SAMPLED_BYTES:
            return hashlib.file_digest(opened, "sha256").hexdigest()
        ends = hashlib.sha256(opened.read(SAMPLED_BYTES // 2))
        opened.seek(size - SAMPLED_BYTES // 2)
        ends.update(opened.read())
        return ends.hexdigest()


def _outside(path: str, folder: Path) -> str | None:
    """A matrix that came from elsewhere must not read files all over the machine."""
    full = os.path.abspath(folder / path)
    for allowed in (os.path.abspath(folder), os.getcwd()):
        if os.path.commonpath([full, allowed]) == allowed:
            return None
    return "the path leaves the folder of the matrix; put the file, or a link to it, beside the matrix"
