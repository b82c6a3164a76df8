"""The process that is forked for every trial: what it imports, what it must not do, and that it can be forked."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from harness.errors import LaunchError
from harness.trial import preload
from harness.trial.helper import Helper
from harness.trial.launch import LocalLauncher
from harness.trial.outcome import Outcome
from tests.trial.test_launch import a_spec


def start(*modules: str, log: Path | None = None) -> Helper:
    return Helper.start(modules=modules, gpu=False, log=log)


def test_it_says_what_it_imported_and_what_is_not_installed() -> None:
    helper = start("json", "no_such_package_anywhere")
    try:
        assert helper.preloaded["modules"] == ["json"]
        assert list(helper.preloaded["missing"]) == ["no_such_package_anywhere"]
        assert "ModuleNotFoundError" in helper.preloaded["missing"]["no_such_package_anywhere"]
    finally:
        helper.close()


def test_a_module_that_leaves_cuda_initialised_is_refused_and_nothing_is_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("class cuda:\n    is_initialized = staticmethod(lambda: True)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(LaunchError, match=r"importing left torch.cuda initialised; use --isolation spawn"):
        start("json", "torch")


def test_a_module_that_starts_a_thread_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "busy_module.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    helper = start("json", "busy_module")
    helper.close()
    assert helper.preloaded["notes"] == ["importing busy_module started 1 thread(s)"]


def test_a_module_that_raises_at_import_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module.py").write_text("raise OSError('libsomething.so: not found')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    helper = start("broken_module", "json")
    helper.close()
    assert helper.preloaded["missing"] == {"broken_module": "OSError: libsomething.so: not found"}


def test_it_ends_with_the_run(tmp_path: Path) -> None:
    helper = start("json")
    helper.close()
    assert not helper.alive


def test_packages_that_initialise_cuda_at_import_are_left_to_the_children() -> None:
    every_module = preload.modules_for(
        [{"zero": 2, "attention": "flash2", "lora": 8, "quantization": "nf4", "compile": "default"}]
    )
    assert not {"peft", "bitsandbytes"} & {name.partition(".")[0] for name in every_module}


INDUCTOR = "torch._inductor.compile_fx"


@pytest.mark.parametrize(
    ("cell", "further"),
    [
        ({}, ()),
        ({"zero": "off", "precision": "bf16"}, ()),
        ({"zero": 1}, (INDUCTOR, "deepspeed")),
        ({"precision": "ds-bf16"}, (INDUCTOR, "deepspeed")),
        ({"attention": "flash2"}, ("flash_attn",)),
        ({"compile": "off", "lora": "off"}, ()),
        ({"compile": "reduce-overhead"}, (INDUCTOR,)),
        ({"lora": 8}, (INDUCTOR,)),
    ],
)
def test_slow_packages_are_imported_only_for_a_plan_that_uses_them(
    cell: dict[str, object], further: tuple[str, ...]
) -> None:
    assert preload.modules_for([cell]) == (*preload.MODULES, *further)


def test_the_environment_of_training_processes() -> None:
    made = preload.base_environment({"HOME": "/home/me", "PYTHONHASHSEED": "7", "WANDB_MODE": "online"}, gpu=False)
    assert made["HOME"] == "/home/me"
    assert made["PYTHONHASHSEED"] == "0", "two trials must not differ by the order of a set"
    assert made["WANDB_MODE"] == "online", "the user's own choice"
    assert made["DS_ACCELERATOR"] == "cpu"
    assert preload.base_environment({}, gpu=True)["DS_ACCELERATOR"] == "cuda"


@pytest.mark.train
def test_the_real_preload_can_be_forked_and_its_children_compute(
    tmp_path: Path, session_launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_launcher, "entry", "tests.trial.child:main")
    spec = a_spec(tmp_path / "trial", "compute")
    finished = session_launcher.run(spec, ranks=2, wall_limit_seconds=120, environment={})
    assert session_launcher._helper is not None
    preloaded = session_launcher._helper.preloaded
    assert finished.outcome is Outcome.OK, finished.reason
    assert preloaded["problems"] == []
    assert {"torch", "transformers.models.gpt2.modeling_gpt2", "torch._inductor.compile_fx"} <= set(
        preloaded["modules"]
    )
    assert finished.result is not None
    assert finished.result.measured == {"value": 512.0**3, "imported_after_fork": []}


def test_a_forked_child_says_why_it_could_not_compute(tmp_path: Path) -> None:
    def refused() -> None:
        raise RuntimeError("CUDA error: out of memory\nCompile with ...")

    def killed_at_first() -> None:
        if not (tmp_path / "once").exists():
            (tmp_path / "once").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    assert preload.failure_of_a_child(lambda: None) == ""
    assert preload.failure_of_a_child(refused) == "RuntimeError: CUDA error: out of memory"
    assert preload.failure_of_a_child(killed_at_first) == ""
    assert (tmp_path / "once").exists()
    assert preload.failure_of_a_child(lambda: os.kill(os.getpid(), signal.SIGKILL)) == "it was ended by SIGKILL"
    assert preload.failure_of_a_child(lambda: os.kill(os.getpid(), signal.SIGUSR1)) == "it was ended by SIGUSR1"
    assert preload.failure_of_a_child(lambda: os._exit(3)) == "it exited with 3"
    assert preload.failure_of_a_child(lambda: time.sleep(60), limit_seconds=0.2) == "it did not end within 0.2 s"
