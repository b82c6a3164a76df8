"""The ordinary kind: build, warm up, time a window, prove what was in effect."""

from __future__ import annotations

import gc
import math
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.experiment.axes import show_settings
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Technique
from harness.techniques.registry import BUILT_IN, techniques
from harness.trial import arithmetic, estimator, gradients, memory, own_gradients, own_step
from harness.trial import ranks as group
from harness.trial.breakdown import breakdown
from harness.trial.corpus import prepare, read_about
from harness.trial.host import held_up
from harness.trial.measure import REPLAYED, Measured, graph_breaks, measure
from harness.trial.model import dropout_of
from harness.trial.outcome import Outcome, is_out_of_memory
from harness.trial.parameters import shapes_of
from harness.trial.profile import profile_step
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult, TrialSpec
from harness.trial.training import TrainingRun, build

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Outcomes of a trial that ran to its end, each worse than the one before.
_WORSE = (Outcome.OK, Outcome.INERT, Outcome.INVALID)


def run(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    """One training trial on this rank. Rank 0's result holds all ranks'."""
    trial = TrainingRun(spec, ranks, environment)
    with trial.held:
        build(trial, techniques())
        started = seconds_since_request()
        measured = measure(trial)
        result = TrialResult(outcome=Outcome.OK, window=measured.window)
        result.measured["startup_seconds"] = started
        fill_result(trial, measured, result)
        prove(trial, techniques(), result)
        _check_gradient(trial, measured, result)
    return result


def seconds_since_request() -> float | None:
    """Seconds since the launcher was asked for this process (its variable holds that moment, on the same clock)."""
    asked = os.environ.get("CLAIMBENCH_REQUESTED_AT")
    return None if asked is None else time.monotonic() - float(asked)


def fill_result(trial: TrainingRun, measured: Measured, result: TrialResult) -> None:
    """Speed, memory and losses into the result."""
    assert measured.times is not None
    peaks, missing = memory.read_peaks(trial.device)
    result.missing.update({**missing, **measured.missing})
    mine = {
        "rank": trial.ranks.rank, "window_seconds": measured.times.window_seconds, **peaks,
        "model_state_bytes": measured.model_state, "allocator_retries": measured.figures.get("allocator_retries", 0),
        "allocated_growth_bytes": measured.figures.get("allocated_growth_bytes"), **_work(trial),
    }  # fmt: skip
    everyone = group.gather(mine, trial.ranks)
    # the job is as fast as its slowest rank
    window = max(each["window_seconds"] for each in everyone)
    tokens = sum(each["tokens"] for each in everyone)
    result.ranks = everyone if len(everyone) > 1 else []
    result.measured.update(
        tokens_per_second=tokens / window,
        samples_per_second=sum(each["samples"] for each in everyone) / window,
        step_seconds=measured.times.step_seconds,
        phases=measured.times.phases,
        model_state_bytes=measured.model_state,
        parameters=trial.parameter_counts,
        losses=_mean_losses(everyone),
        gradient_norms=measured.gradient_norms,
        compile_seconds=_compile_seconds(trial, measured),
        **{name: max(each[name] for each in everyone) for name in peaks},
    )
    useful = sum(each["useful_tokens"] for each in everyone)
    result.measured["figures"] = {
        **measured.figures, "allocator_retries": max(each["allocator_retries"] for each in everyone),
        **_largest_growth(everyone),
        "useful_tokens_per_second": useful / window, "useful_share": useful / tokens,
        "warmup_seconds": sum(measured.warmup_seconds), **_data(trial),
        **_state_per_parameter(trial, everyone), **(estimator.estimates(trial) if trial.own is None else {}),
    }  # fmt: skip
    trial.facts["compiled"] = measured.compiled
    trial.facts["tokens_a_step"] = trial.tokens // trial.spec.steps
    trial.facts["samples_a_step"] = trial.samples / trial.spec.steps
    _judge_window(trial, measured, result, everyone)


def _largest_growth(everyone: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """What is allocated grows on the rank where it grows most; nothing where no allocator counts."""
    grown = [each.get("allocated_growth_bytes") for each in everyone]
    counted = [each for each in grown if each is not None]
    return {"allocated_growth_bytes": max(counted)} if counted else {}


def _work(trial: TrainingRun) -> dict[str, Any]:
    """What this rank computed. Ranks that share a batch with another one leave the counting to it."""
    if not trial.reports_work:
        return {"tokens": 0, "samples": 0, "useful_tokens": 0, "losses": []}
    return {
        "tokens": trial.tokens, "samples": trial.samples, "useful_tokens": trial.useful_tokens(),
        "losses": [float(loss) for loss in trial.losses],
    }  # fmt: skip


def _mean_losses(everyone: list[dict[str, Any]]) -> list[float]:
    """Each step's loss, the mean over the ranks that have one."""
    curves = [each["losses"] for each in everyone if each["losses"]]
    return [sum(step) / len(curves) for step in zip(*curves, strict=True)]


def _state_per_parameter(trial: TrainingRun, everyone: list[dict[str, Any]]) -> dict[str, float]:
    """Bytes of model state per parameter of the whole model on the fullest rank, before and after the step."""
    moments = {"bytes_per_parameter": "before_step", "bytes_per_parameter_after_step": "after_step"}
    states = [each["model_state_bytes"] for each in everyone]
    return {
        name: max(state[moment] for state in states) / trial.parameter_counts["total"]
        for name, moment in moments.items()
        if all(moment in state for state in states)
    }


def prove(trial: TrainingRun, all_techniques: Iterable[Technique], result: TrialResult) -> None:
    """One profiled step, every active technique's evidence, and what the device's peak makes of the speed.

    Evidence that does not hold makes the trial inert.
    """
    trial.profile = profile_step(trial.step, trial.device, ranks=trial.ranks.world_size)
    # whoever captured them: a user's step may have graphs of its own
    if trial.profile.matching("cudaGraphLaunch") and result.measured["model_state_bytes"].pop("activations", None):
        result.missing["activations"] = REPLAYED
    steps = result.measured["step_seconds"]
    result.measured["figures"]["breakdown"] = breakdown(trial.profile, math.fsum(steps) / len(steps))
    if trial.own is None:
        if dropout_of(trial.plain_model):
            result.measured["figures"][own_step.DRAWS] = True
        gather_evidence(trial, all_techniques, result)
    else:
        gather_evidence(trial, own_step.provable(trial, all_techniques), result)
        own_step.prove(trial, result)
        own_step.judge(trial, result)
    arithmetic.fill(trial, result)
    judge_together(trial, result)


def judge_together(trial: TrainingRun, result: TrialResult) -> None:
    """What other ranks say of their own window and evidence: one that compiles, or does not do what the cell asks for,
    spoils the whole job. The worst outcome counts, and what comes from another rank names it."""
    failed = {axis: proof for axis, proof in result.evidence.items() if not proof["holds"]}
    everyone = group.gather((result.outcome, result.reason, result.warnings, failed), trial.ranks)
    said = {_numberless(each) for each in result.warnings}
    for rank, (outcome, reason, warnings, proofs) in enumerate(everyone):
        if rank == trial.ranks.rank:
            continue
        if _WORSE.index(outcome) > _WORSE.index(result.outcome):
            result.outcome, result.reason = outcome, f"rank {rank}: {reason}"
        result.warnings += [f"rank {rank}: {each}" for each in warnings if _numberless(each) not in said]
        said.update(map(_numberless, warnings))
        for axis, proof in proofs.items():
            if result.evidence.get(axis, {}).get("holds", True):
                result.evidence[axis] = {**proof, "reason": f"rank {rank}: {proof['reason']}"}
    group.settle(trial.ranks)


def _numberless(warning: str) -> str:
    """A warning by which ranks that say the same with other numbers are known to agree."""
    return re.sub(r"\d+", "", warning)


def gather_evidence(trial: TrainingRun, some_techniques: Iterable[Technique], result: TrialResult) -> None:
    """Ask each technique that the cell asks for; the one-step profile is there already."""
    failed = []
    for technique in some_techniques:
        if not technique.active(trial.cell):
            continue
        evidence = technique.evidence(trial.cell, trial) or _none_given(technique, trial.cell)
        if evidence is not None:
            result.evidence[technique.axes[0].name] = as_json(evidence)
            result.warnings += evidence.warnings
            if not evidence.holds:
                failed.append(evidence.reason)
    if failed and result.outcome is Outcome.OK:
        result.outcome = Outcome.INERT
        result.reason = "; ".join(failed)


def _none_given(technique: Technique, cell: Cell) -> Evidence | None:
    """What an outside technique owes for a setting of its own: of the built-in ones some have nothing to prove."""
    asked = {axis.name: cell[axis.name] for axis in technique.axes if cell[axis.name] != axis.default}
    if type(technique) in BUILT_IN or not asked:
        return None
    silent = f"the technique {type(technique).__name__} gave no evidence of it; its evidence() must return an Evidence"
    return Evidence(holds=False, word="no evidence", reason=f"{show_settings(asked)} was set, but {silent}")


def as_json(evidence: Evidence) -> dict[str, Any]:
    """Evidence as it stands in a record."""
    return {
        "holds": evidence.holds, "word": evidence.word, "facts": evidence.facts,
        "reason": "" if evidence.holds else evidence.reason,
    }  # fmt: skip


def _check_gradient(trial: TrainingRun, measured: Measured, result: TrialResult) -> None:
    if not trial.spec.gradient_check:
        result.missing["gradient_check"] = "it is compared once a cell, in the first of its rounds that ends ok"
        return
    skipped = gradients.why_skipped(trial)
    if skipped is None and measured.first_gradient is None:
        skipped = "there was no warm-up step to take it from"
    if skipped is not None:
        result.measured["gradient_check"] = {"skipped": skipped}
        return
    assert measured.first_gradient is not None
    shapes = shapes_of(trial.plain_model)
    if trial.ranks.first and trial.own is not None:
        free(trial)
        result.measured["gradient_check"] = own_gradients.compare(trial, trial.own, measured.first_gradient, shapes)
    elif trial.ranks.first:
        folder = prepare(trial.spec.data, int(trial.config.vocab_size), Path(trial.spec.data_directory))
        free(trial)
        try:
            result.measured["gradient_check"] = gradients.compare(trial, measured.first_gradient, shapes, folder)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            result.measured["gradient_check"] = {"skipped": "fp32 eager does not fit in this device's memory"}


def free(trial: TrainingRun) -> None:
    """Give the model's and the optimizer's memory back."""
    trial.let_go()
    gc.collect()
    memory.reset_peaks(trial.device)


def _compile_seconds(trial: TrainingRun, measured: Measured) -> float | None:
    """What the first warm-up steps took beyond the time of a step in the window: compilation, warm-up of graphs."""
    if trial.cell["compile"] == "off":
        return None
    assert measured.times is not None
    steady = measured.times.window_seconds / len(measured.times.step_seconds)
    return float(sum(max(seconds - steady, 0.0) for seconds in measured.warmup_seconds))


def _data(trial: TrainingRun) -> dict[str, Any]:
    if trial.own is not None:
        return {}
    about = read_about(trial.loader.dataset.folder)
    return {"data_sha256": about.sha256, "data_tokeniser": about.tokeniser}


def _judge_window(
    trial: TrainingRun, measured: Measured, result: TrialResult, everyone: list[dict[str, Any]]
) -> None:  # fmt: skip
    """What spoils the window's numbers, as far as this rank sees; `everyone`: what each rank measured."""
    compiled = measured.compile_in_window
    if compiled.get("graphs") or compiled.get("frames"):
        result.outcome = Outcome.INVALID
        result.reason = (
            f"{compiled['graphs']} graphs were compiled inside the window; "
            f"raise warmup_steps (it is {trial.spec.warmup_steps})"
        )
    if recorded := compiled.get("recordings"):
        result.warnings.append(
            f"CUDA graphs were recorded {recorded} times inside the window, which holds the time of that; one is of "
            "one shape: give batches of one length, use compile=default, or raise warmup_steps"
        )
    if trial.spec.warmup_steps == 0 and trial.cell["compile"] == "off":
        result.warnings.append("no warm-up steps: the first step's start-up costs lie inside the window")
    if measured.compiled.get("graph_breaks"):
        result.warnings.append(f"{measured.compiled['graph_breaks']} graph breaks: {'; '.join(graph_breaks())}")
    if not all(math.isfinite(loss) for loss in result.measured["losses"]):
        result.warnings.append("the loss is not finite")
    if words := held_up(measured.figures.get("host", {})):
        result.warnings.append(words)
    most = max(everyone, key=lambda each: int(each["allocator_retries"]))
    if retries := most["allocator_retries"]:
        where = f" on rank {most['rank']}" if len(everyone) > 1 else ""
        result.warnings.append(f"the allocator had to empty its cache {retries} times inside the window{where}")
