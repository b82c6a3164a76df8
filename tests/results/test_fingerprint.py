"""What makes trials comparable, and what does not."""

from dataclasses import replace

import pytest

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell, Workload
from harness.experiment.study import Arm, Role
from harness.results.fingerprint import fingerprint, fingerprint_parts, packages_used, revisions_of
from harness.results.rounds import parts_of, shared
from harness.techniques.base import Technique
from tests.records import CPU, DEFAULTS, H100
from tests.results.plans import a_block


def of(environment: Environment, *packages: str) -> str:
    return fingerprint(environment, devices=environment.devices, packages=("torch", *packages))


def test_is_16_hexadecimal_digits_and_the_same_every_time() -> None:
    assert of(H100) == of(H100)
    assert len(of(H100)) == 16
    assert int(of(H100), 16) >= 0


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(H100, devices=H100.devices * 2), id="number of devices"),
        pytest.param(replace(H100, devices=(replace(H100.devices[0], name="NVIDIA H200"),)), id="device"),
        pytest.param(replace(H100, devices=(replace(H100.devices[0], power_limit_watts=500.0),)), id="power cap"),
        pytest.param(replace(H100, driver="590.1"), id="driver"),
        pytest.param(replace(H100, packages={**H100.packages, "torch": "2.14.0"}), id="torch"),
        pytest.param(replace(H100, devices=()), id="no device"),
    ],
)
def test_changes_with(other: Environment) -> None:
    assert of(other) != of(H100)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(H100, devices=(replace(H100.devices[0], uuid="GPU-2"),)), id="which card"),
        pytest.param(replace(H100, git_commit="1" * 40, git_dirty=True), id="commit"),
        pytest.param(replace(H100, host="another"), id="host"),
        pytest.param(replace(H100, packages={**H100.packages, "peft": "0.22"}), id="package of an unused technique"),
        pytest.param(replace(H100, cores=128, processor="another"), id="processor, beside a GPU"),
    ],
)
def test_stays_with(other: Environment) -> None:
    assert of(other) == of(H100)


def test_a_package_counts_where_its_technique_is_used() -> None:
    newer = replace(H100, packages={**H100.packages, "peft": "0.22"})
    assert of(newer, "peft") != of(H100, "peft")


def test_installing_an_absent_package_is_a_change() -> None:
    without = replace(H100, packages={name: version for name, version in H100.packages.items() if name != "flash-attn"})
    assert of(without, "flash_attn") != of(H100, "flash-attn")
    assert of(H100, "flash_attn") == of(H100, "flash-attn") == of(H100, "Flash.Attn")
    assert fingerprint_parts(without, devices=without.devices, packages=["flash_attn"])["packages"] == {
        "flash-attn": "absent"
    }


def test_on_the_cpu_the_processor_stands_in_for_the_device() -> None:
    assert of(replace(CPU, cores=4)) != of(CPU)
    assert fingerprint_parts(CPU, devices=())["processor"] == ["Synthetic CPU", 2]
    newer = replace(H100, driver="590.1")
    assert fingerprint(newer, devices=()) == fingerprint(H100, devices=()), "a driver that no trial of it uses"


def test_the_code_that_measures_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = of(H100)
    monkeypatch.setattr("harness.results.fingerprint.MEASURING_VERSION", 999)
    assert of(H100) != before


class _Lora(Technique):
    axes = (Axis(name="lora", default="off", number=int),)
    packages = ("peft",)


def test_packages_of_a_block_are_those_of_any_of_its_cells() -> None:
    off = Cell(workload=Workload(name="w", model="m"), settings=DEFAULTS)
    assert packages_used([_Lora()], [off]) == ("torch", "transformers", "triton")
    assert packages_used([_Lora()], [off, off.but(lora=8)]) == ("peft", "torch", "transformers", "triton")


def test_a_package_that_brings_a_technique_counts_where_that_is_on() -> None:
    technique = _Lora()
    technique.distribution = "my-package"
    off = Cell(workload=Workload(name="w", model="m"), settings=DEFAULTS)
    assert "my-package" not in packages_used([technique], [off])
    assert "my-package" in packages_used([technique], [off, off.but(lora=8)])


def test_installing_a_package_that_no_cell_runs_on_reruns_nothing() -> None:
    # `precision` and `attention` show evidence in every cell, but only two of their settings stand on another package
    from harness.techniques.registry import axis_table, techniques

    settings = axis_table().defaults()
    plain = Cell(workload=Workload(name="w", model="tiny"), settings=settings)
    assert packages_used(techniques(), [plain]) == ("torch", "transformers", "triton")
    assert "deepspeed" in packages_used(techniques(), [plain, plain.but(precision="ds-bf16")])
    assert "flash-attn" in packages_used(techniques(), [plain, plain.but(attention="flash2")])


def test_a_block_stands_on_as_many_devices_as_its_largest_cell_takes() -> None:
    machine, block = replace(H100, devices=H100.devices * 4), a_block()
    pair = Arm(name="devices=2", role=Role.CELL, cell=block.baseline.cell.but(devices=2, parallel="ddp"))
    for one, count in ((block, 1), (replace(block, arms=(*block.arms, pair)), 2)):
        circumstances, devices = shared("full", one, machine)
        assert (len(devices), len(circumstances.environment["devices"])) == (count, count)
        assert len(parts_of(one, machine, devices)["devices"]) == count


def test_a_kind_that_measures_anew_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def now() -> list[str]:
        return [fingerprint(H100, devices=H100.devices, kind=kind) for kind in ("training", "attention-only")]

    before = now()
    monkeypatch.setattr("harness.results.fingerprint.MEASURING_VERSIONS", {"attention-only": 999})
    after = now()
    assert (after[0] == before[0], after[1] == before[1]) == (True, False)


def test_a_technique_that_does_something_else_makes_other_trials_of_its_cells_alone() -> None:
    from harness.techniques.registry import axis_table, techniques

    plain = Cell(workload=Workload(name="w", model="tiny"), settings=axis_table().defaults())
    whole, sharded = plain.but(precision="ds-bf16"), plain.but(precision="ds-bf16", zero=1)
    assert revisions_of(techniques(), [plain, sharded]) == {}
    assert revisions_of(techniques(), [plain, whole]) == {"zero": 2}
    copied, divided = (plain.but(parallel=parallel, devices=2) for parallel in ("ddp", "pipeline"))
    assert revisions_of(techniques(), [plain, copied]) == {}
    assert revisions_of(techniques(), [plain, divided]) == {"parallel": 2}
    first, second = ({"zero": revision} for revision in (2, 3))
    prints = [fingerprint(H100, devices=H100.devices, revisions=each) for each in (None, {}, first, second)]
    assert prints[0] == prints[1], "stored trials stay what they are"
    assert len(set(prints)) == 3


def test_settings_that_do_something_else_to_a_users_step_are_revised_for_such_steps_alone() -> None:
    from harness.techniques.registry import axis_table, techniques

    plain = axis_table().defaults()
    changed = {
        "accumulation": 4, "checkpointing": "full", "compile": "default", "pruning": 0.5, "quantization": "nf4",
        "attention": "eager", "precision": "bf16",
    }  # fmt: skip
    built_in, own = (
        Cell(workload=Workload(name="x", model=model, data="y"), settings={**plain, **changed})
        for model in ("tiny", "my.py:build")
    )
    assert revisions_of(techniques(), [built_in]) == {}
    assert revisions_of(techniques(), [own]) == {"sequence_length": 2, **dict.fromkeys([*changed][1:], 2)}
    unnamed = Cell(workload=own.workload, settings=plain)
    assert revisions_of(techniques(), [unnamed]) == {}
    kernel = Cell(workload=own.workload, settings={**plain, "attention": "sdpa-flash"})
    assert revisions_of(techniques(), [kernel])["attention"] == 2
    compiled = Cell(workload=own.workload, settings={**kernel.settings, "compile": "default"})
    assert revisions_of(techniques(), [compiled])["attention"] == 3
