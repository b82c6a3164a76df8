"""The models and data that a matrix can name: built-in words, and files beside the matrix."""

from __future__ import annotations

import os
import re
from pathlib import Path

from harness.errors import suggestion

#: Built-in shapes; `trial.shapes` holds what stands behind each.
BUILT_IN_MODELS = ("tiny", "tiny-gpt2", "gpt2-124m", "gpt2-124m-padded", "gpt2-350m", "qwen2-0.5b", "llama-1b")
#: Built-in data; `trial.corpus` prepares it.
BUILT_IN_DATA = ("stdlib", "stdlib-bpe", "synthetic")

_STEP = re.compile(r"(?P<file>.+\.py):(?P<function>[^\W\d]\w*)")


def model_problem(model: str, folder: Path) -> str | None:
    """Why `model` cannot be used, or None. Paths count from `folder`, the folder of the matrix."""
    if model in BUILT_IN_MODELS:
        return None
    step = _STEP.fullmatch(model)
    path = step["file"] if step else model
    if not step and "/" not in model and not model.endswith((".json", ".py")) and not os.path.exists(folder / model):
        return (
            f"unknown model {model!r}{suggestion(model, BUILT_IN_MODELS)} (or a config.json, a folder, file.py:build)"
        )
    if outside := _outside(path, folder):
        return f"model {model!r}: {outside}"
    full = folder / path
    if os.path.isdir(full):
        full = full / "config.json"
    elif path.endswith(".py") and not step:
        return f"model {model!r}: name the function too, as in {model}:build"
    if os.path.isfile(full):
        return None
    return f"model {model!r}: there is no file {os.path.relpath(full, folder)} beside the matrix"


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
        return None
    return f"data {data!r}: there is no such file beside the matrix{suggestion(data, BUILT_IN_DATA)}"


def located(name: str, folder: str) -> str:
    """The model or data as it can be opened from the current folder: a built-in word, or a path joined to `folder`."""
    if name in BUILT_IN_MODELS or name in BUILT_IN_DATA or not folder:
        return name
    return os.path.join(folder, name)


def _outside(path: str, folder: Path) -> str | None:
    """A matrix that came from elsewhere must not read files all over the machine."""
    full = os.path.abspath(folder / path)
    for allowed in (os.path.abspath(folder), os.getcwd()):
        if os.path.commonpath([full, allowed]) == allowed:
            return None
    return "the path leaves the folder of the matrix; put the file, or a link to it, beside the matrix"
