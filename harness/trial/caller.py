"""Whether the process that asks for trials is in their way itself, and has what they train with."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from harness.environment import Environment
from harness.errors import EnvironmentProblem
from harness.trial.nvml import meters


def lacking() -> str:
    """What no trial does without and this Python does not have, with what to do; empty where all is there."""
    missing = [name for name in ("torch", "transformers") if not _installed(name)]
    if not missing:
        return ""
    verb = "is" if len(missing) == 1 else "are"
    return (
        f"{' and '.join(missing)} {verb} not installed, without which nothing trains; pip install {' '.join(missing)}"
    )


def _installed(name: str) -> bool:
    return name in sys.modules or find_spec(name) is not None


def able(environment: Environment) -> None:
    """Refuse what would make every trial fail, before any is launched.

    Raises:
        EnvironmentProblem: something is lacking, or the caller is in the way (`keep_off`).
    """
    if missing := lacking():
        raise EnvironmentProblem(missing)
    keep_off(environment)


def keep_off(environment: Environment) -> None:
    """Refuse a caller that has used the GPU, such as a notebook that has trained on it.

    Its context stays on the device until it ends, which makes it a foreign process there and every trial invalid.

    Raises:
        EnvironmentProblem: it has; what to do stands in the message.
    """
    if environment.has_gpu and (_seen_on_device(environment) or _torch_has_a_context()):
        raise EnvironmentProblem(
            f"this process (pid {os.getpid()}) has used the GPU and keeps memory on it, so that every trial would be"
            " judged invalid; restart it (in a notebook: its kernel) and ask before anything uses the GPU, or use the"
            " command `claimbench`"
        )


def _seen_on_device(environment: Environment) -> bool:
    return any(os.getpid() in meter.read().processes for meter in meters(each.uuid for each in environment.devices))


def _torch_has_a_context() -> bool:
    """Also where NVML counts process ids of another namespace."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())
