"""How samples of uneven length become a batch. `harness.trial.batching` has the four ways; here is what proves each."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun

#: Batches that are looked at for one with padding, or with two documents in a row.
_LOOKED_AT = 32
#: A document's logits may move by this much of what the changed document's own move, where nothing is attended across.
_LEAK_AT_MOST = 1e-3


class Batching(Technique):
    """Windows cut anywhere, or whole documents: padded, packed, or taken by a budget of tokens."""

    axes = (
        Axis(
            name="batching",
            default="fixed",
            settings={
                "fixed": "windows of the whole length, cut anywhere: no padding",
                "padded": "whole documents, each filled up to the longest of the batch",
                "packed": "documents end to end in full rows, with no attention across",
                "token-budget": "documents up to a budget of unpadded tokens (batch size times length), padded (D3)",
            },
            meaning="how samples become a batch",
            documents=("D3",),
        ),
    )
    stage = Stage.STEP
    requirement = "padded, packed, token-budget: an attention that takes a mask (not sdpa-flash on a GPU)"
    proof = (
        "padded: padding and its mask; packed: positions start anew, and changing a document leaves the logits of the "
        "others in its row alone; token-budget: unpadded tokens within the budget"
    )

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        setting = cell["batching"]
        if setting != "fixed" and cell["attention"] == "sdpa-flash" and environment.has_gpu:
            return f"attention=sdpa-flash takes no mask on a GPU, and batching={setting} needs one; use sdpa or flash2"
        if setting != "fixed" and cell.settings.get("parallel") == "pipeline":
            return f"parallel=pipeline takes token ids alone, batching={setting} adds a mask or positions; use fixed"
        return None

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        setting = str(cell["batching"])
        samples = run.loader.dataset
        batches = [samples[index] for index in range(min(_LOOKED_AT, len(samples)))]
        if setting == "packed":
            return _packed(run, batches)
        loader = run.loader_settings()
        budget = loader.batch_size * loader.sequence_length if setting == "token-budget" else None
        return _padded(setting, batches, budget)


def _padded(setting: str, batches: list[dict[str, Any]], budget: int | None) -> Evidence:
    masks = [batch["attention_mask"] for batch in batches if "attention_mask" in batch]
    if len(masks) < len(batches):
        reason = f"batching={setting} was set, but batches have no mask that tells padding apart"
        return Evidence(holds=False, word="no mask", reason=reason)
    positions = [int(mask.numel()) for mask in masks]
    unpadded = [int(mask.sum()) for mask in masks]
    share = 1 - sum(unpadded) / sum(positions)
    facts: dict[str, Any] = {"padded_share": share, "batches": len(masks), "samples": [len(mask) for mask in masks]}
    if budget is None:
        reason = f"batching={setting} was set, but none of {len(masks)} batches holds padding"
        return Evidence(holds=share > 0, word=f"{share:.0%} padding", facts=facts, reason=reason)
    # what the printed sampler counts, and what the device then computes
    facts |= {"budget": budget, "unpadded_tokens": unpadded, "positions": positions}
    facts["positions_over_budget"] = max(positions) / budget
    within = all(count <= budget or len(mask) == 1 for count, mask in zip(unpadded, masks, strict=True))
    return Evidence(
        holds=within, word=f"{max(unpadded)} of {budget} tokens, {share:.0%} padding", facts=facts,
        reason=f"a batch holds {max(unpadded)} unpadded tokens, above its budget of {budget}",
    )  # fmt: skip


def _packed(run: TrainingRun, batches: list[dict[str, Any]]) -> Evidence:
    found = next((batch for batch in batches if "position_ids" in batch and _second_document(batch)), None)
    if found is None:
        reason = f"batching=packed was set, but positions never start anew within a row of {len(batches)} batches"
        return Evidence(holds=False, word="one document a row", reason=reason)
    row, start = _second_document(found) or (0, 0)
    own, others = _moved(run, found, row, start)
    leak = others / own if own else float("inf")
    facts = {
        "documents": int((found["position_ids"] == 0).sum()), "rows": len(found["position_ids"]),
        "own_logits_moved": own, "other_documents_moved": others,
    }  # fmt: skip
    return Evidence(
        holds=leak <= _LEAK_AT_MOST, word=f"{facts['documents']} documents apart", facts=facts,
        reason=f"changing a document moved the logits of the next in its row by {leak:.1%} of its own",
    )  # fmt: skip


def _second_document(batch: dict[str, Any]) -> tuple[int, int] | None:
    """Row and position of the first document that does not begin its row."""
    later = (batch["position_ids"][:, 1:] == 0).nonzero()
    return (int(later[0][0]), int(later[0][1]) + 1) if len(later) else None


def _moved(run: TrainingRun, batch: dict[str, Any], row: int, start: int) -> tuple[float, float]:
    """Largest change of a logit in a row's first document, and after it, when the first document's tokens change."""
    changed = {name: part.clone() for name, part in batch.items()}
    vocabulary = int(run.config.vocab_size)
    changed["input_ids"][row, :start] = (changed["input_ids"][row, :start] + 1) % vocabulary
    before, after = (_logits(run, each)[row] for each in (batch, changed))
    difference = (after.float() - before.float()).abs()
    return float(difference[:start].max()), float(difference[start:].max())


def _logits(run: TrainingRun, batch: dict[str, Any]) -> Any:
    """Logits of a batch, (rows, length, vocabulary), as the run computes them."""
    import torch

    inputs = {name: part.to(run.device) for name, part in batch.items() if name != "labels"}
    rows, length = batch["input_ids"].shape
    with ExitStack() as stack:
        for context in run.forward_contexts:
            stack.enter_context(context())
        stack.enter_context(torch.no_grad())
        logits = run.plain_model(**run.prepare_batch(inputs), use_cache=False).logits
    return logits.reshape(rows, length, -1)
