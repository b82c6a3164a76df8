"""FLOPs a token, MFU and HFU of a training trial, after its window: from the shape, the lengths and what was seen.

MFU  useful tokens per second · model FLOPs of one, over the peak: padding is no use
HFU  positions per second, padding included · hardware FLOPs of one, over the peak
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from harness.techniques.precision import BETWEEN_FP32_AND_TF32, inner_dtypes, product_error
from harness.techniques.quantization import packed_weights
from harness.trial import flops
from harness.trial import ranks as group
from harness.trial.data import Samples
from harness.trial.flops import Lengths, UnknownShape, count_weights
from harness.trial.model import head_of
from harness.trial.outcome import Outcome, is_out_of_memory
from harness.trial.peaks import Peak, peak_for, why_unknown

if TYPE_CHECKING:
    from harness.trial.batching import Batch
    from harness.trial.spec import TrialResult
    from harness.trial.training import TrainingRun

_WORDS = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}
_MIXED = "its 4-bit layers multiply in another data type than the rest, and make less than half of its operations"


def fill(trial: TrainingRun, result: TrialResult) -> None:
    """Put FLOPs, MFU and HFU into a result that has its speed and its evidence; what is not known stays null, and
    `missing` says why. An MFU above 1 makes the trial invalid."""
    try:
        model, hardware = _flops_per_token(trial, result)
    except UnknownShape as reason:
        unknown = ("model_flops_per_token", "hardware_flops_per_token", "mfu", "hfu")
        result.missing.update(dict.fromkeys(unknown, f"the shape of this model is not known: {reason}"))
        return
    result.measured.update(model_flops_per_token=model, hardware_flops_per_token=hardware)
    peak = _peak(trial, result.evidence, model)
    if not isinstance(peak, Peak):
        result.missing.update(mfu=peak, hfu=peak, peak_flops=peak)
        return
    devices = max(trial.ranks.world_size, trial.devices_fed)
    mfu = result.measured["figures"]["useful_tokens_per_second"] / devices * model / peak.value
    hfu = result.measured["tokens_per_second"] / devices * hardware / peak.value
    peak_flops = {"value": peak.value, "dtype": peak.dtype, "source": peak.source}
    result.measured.update(peak_flops=peak_flops, mfu=mfu, hfu=hfu)
    if mfu > 1 and result.outcome in (Outcome.OK, Outcome.INERT):
        result.outcome = Outcome.INVALID
        name = device_name(trial.device)
        result.reason = f"MFU {mfu:.2f} is above 1: the peak on file for {name} ({peak.dtype}) cannot be right"


def device_name(device: torch.device) -> str:
    """As the driver gives it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"


def _flops_per_token(trial: TrainingRun, result: TrialResult) -> tuple[float, float]:
    """Model FLOPs of a token that is not padding, and hardware FLOPs of a position.

    Raises:
        UnknownShape: they cannot be counted.
    """
    beside = [count_weights(each, head_of(each), trial.config) for each in trial.forward_only]
    for weights in (trial.weights, *beside):
        if weights.unknown:
            raise UnknownShape(weights.unknown)
    documents, rows = _lengths(trial, result)
    model = flops.model_flops_per_token(trial.weights, flops.attention_of(trial.config, documents))
    computed = flops.attention_of(trial.config, rows)
    recomputes = trial.cell["checkpointing"] != "off"
    hardware = flops.hardware_flops_per_token(trial.weights, computed, recompute_blocks=recomputes)
    return model, hardware + sum(flops.forward_flops_per_token(weights, computed) for weights in beside)


def _lengths(trial: TrainingRun, result: TrialResult) -> tuple[Lengths, Lengths]:
    """Sequences of the window by length: as they are, and as the device computes them. Asked on every rank.

    Of a user's batches the mean is known: their documents may lie in a batch in any way.
    """
    if trial.own is not None:
        row = result.measured["tokens_per_second"] / result.measured["samples_per_second"]
        return {row * result.measured["figures"]["useful_share"]: 1}, {row: 1}
    if trial.cell["batching"] == "fixed":
        both: Lengths = {trial.cell.number("sequence_length"): 1}
        return both, both
    documents: Counter[float] = Counter()
    rows: Counter[float] = Counter()
    for mine, computed in group.gather(_seen_again(trial), trial.ranks):
        documents.update(mine)
        rows.update(computed)
    # flash-attn is told where documents end and leaves the rest of a packed row out; others compute it and mask it
    skips = trial.cell["batching"] == "packed" and trial.cell["attention"] == "flash2"
    return documents, documents if skips else rows


def _seen_again(trial: TrainingRun) -> tuple[Counter[float], Counter[float]]:
    """Documents and rows of this rank's window by length. The batches are drawn again: within it nothing is counted."""
    documents: Counter[float] = Counter()
    rows: Counter[float] = Counter()
    if trial.reports_work:
        for batch in _batches_of_the_window(trial):
            documents.update(document_lengths(batch))
            rows.update([batch["input_ids"].shape[1]] * len(batch["input_ids"]))
    return documents, rows


def _batches_of_the_window(trial: TrainingRun) -> Iterator[Batch]:
    settings = replace(trial.loader_settings(), stream="cached", cost_per_sample_seconds=0.0)
    first, last = (steps * trial.accumulation for steps in (
        trial.spec.warmup_steps, trial.spec.warmup_steps + trial.spec.steps,
    ))  # fmt: skip
    folder = trial.loader.dataset.folder
    samples = Samples(folder, settings, seed=trial.spec.seed, rank=trial.data_rank, batches=last)
    return (samples[index] for index in range(first, last))


def document_lengths(batch: Batch) -> list[int]:
    """Tokens of each document of a built-in batch: by its mask, by positions that begin anew, else a row each."""
    if "attention_mask" in batch:
        return [int(count) for count in batch["attention_mask"].sum(1)]
    rows, length = batch["input_ids"].shape
    if "position_ids" not in batch:
        return [length] * rows
    starts = np.flatnonzero(batch["position_ids"].numpy() == 0)
    return [int(count) for count in np.diff([*starts, rows * length])]


def _peak(trial: TrainingRun, evidence: Mapping[str, Mapping[str, Any]], model: float) -> Peak | str:
    """The denominator, or why there is none: that of the type in which the device was seen to multiply.

    4-bit layers have a type of their own, whatever the setting says (bf16 in a trial in fp32). Where they make most of
    the `model` FLOPs of a token theirs is the one, and never one that their speed could pass.
    """
    name = device_name(trial.device)
    if unknown := why_unknown(name):
        return unknown
    try:
        dtype = _products_in(trial, evidence.get("precision", {}).get("facts", {}))
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return "the step that would show the data type of its matrix products does not fit in memory uncompiled"
    if dtype is None:
        return "the data type of its matrix products could not be seen, and peaks differ by it"
    if dtype in ("fp32", "tf32") and (packed := packed_weights(trial.plain_model)):
        # frozen: 2 operations a weight forward, and 2 for the gradient of what comes in
        most = max(packed, key=packed.__getitem__)
        if 4 * packed[most] <= model / 2:
            return _MIXED
        dtype = _WORDS.get(most, dtype)
    return peak_for(name, dtype)


def _products_in(trial: TrainingRun, facts: Mapping[str, Any]) -> str | None:
    """The type of the inner matrix products: as the precision's evidence has seen it, else looked at now.

    The setting does not say it where the question does not name it: a user's step may enter autocast by itself.
    """
    seen = facts.get("inner_activation") or str(inner_dtypes(trial)[0])
    word = _WORDS.get(seen)
    if word != "fp32" or trial.device.type != "cuda":
        return word
    error = facts.get("product_error") or product_error(trial.device)
    return "tf32" if error > BETWEEN_FP32_AND_TF32 else "fp32"
