"""D1 imports the model's attention class and takes FlashAttention to be on from then. Is it?

In a fresh interpreter, so that nothing was imported before: build the model with no attention named and profile a step,
import the class, build and profile again.

    python -m harness.trial.kinds.flash_by_import SPEC
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.environment import Environment
from harness.techniques.attention import SIGNS
from harness.techniques.precision import Precision
from harness.trial.outcome import Outcome
from harness.trial.processes import interpreter
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult, TrialSpec, write_json

_FLASH = ("flash2", "sdpa-flash")


def run(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    """Look in a process of its own, and give its answer."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spec.write(folder / "spec.json")
        command = [*interpreter("harness.trial.kinds.flash_by_import"), str(folder / "spec.json")]
        # its words go to the trial's own standard error, where the parent keeps them
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
        answer = folder / "answer.json"
        if not answer.exists():
            reason = f"the interpreter that looked ended with status {ended.returncode} and no answer"
            return TrialResult(outcome=Outcome.CRASH, reason=reason)
        figures = json.loads(answer.read_text(encoding="utf-8"))
    result = TrialResult(outcome=Outcome.OK, window=(begun, time.monotonic()))
    result.measured["figures"] = figures
    return result


def look(spec: TrialSpec) -> dict[str, Any]:
    """Attention in use before and after the import."""
    before = attention_in_use(spec)
    imported = import_as_printed()
    after = attention_in_use(spec)
    return {
        "turned_on": before != after and after["flash_kernel"],
        "implementation_before": before["implementation"], "implementation_after": after["implementation"],
        "flash_kernel_before": before["flash_kernel"], "flash_kernel": after["flash_kernel"],
        "kernels": after["kernels"], "import_succeeded": imported,
        "flash_attn_installed": find_spec("flash_attn") is not None,
    }  # fmt: skip


def import_as_printed() -> bool:
    """The import by which D1 decides that FlashAttention is on."""
    try:
        from transformers.models.qwen2.modeling_qwen2 import Qwen2Attention  # noqa: F401
    except ImportError:
        return False
    return True


def attention_in_use(spec: TrialSpec) -> dict[str, Any]:
    """transformers' word for the attention of a model that names none, and the flash kernels in a step of it."""
    from harness.techniques.registry import this_machine
    from harness.trial.kinds.training import free
    from harness.trial.profile import profile_step
    from harness.trial.training import TrainingRun, build

    trial = TrainingRun(spec, Ranks(), this_machine())
    trial.attention = None
    with trial.held:
        build(trial, (Precision(),))
        for _ in range(spec.warmup_steps):
            trial.step()
        profile = profile_step(trial.step, trial.device)
        implementation = str(trial.config._attn_implementation)
        free(trial)
    kernels = [name[:120] for each in _FLASH for name in profile.matching(*SIGNS[each])]
    return {"implementation": implementation, "flash_kernel": bool(kernels), "kernels": kernels}


if __name__ == "__main__":
    told = Path(sys.argv[1])
    write_json(told.with_name("answer.json"), look(TrialSpec.read(told)))
