"""A small run with something for every section of the report, and the claims that it is held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.judgement.claims import Claims
from harness.judgement.judge import judge
from harness.judgement.judged import Judgement
from harness.report import render_report
from harness.results.record import Record
from harness.trial.outcome import Outcome
from tests.records import CellShape, StudyShape, make_records

#: True speed of flash over eager by sequence length.
FLASH = {512: 1.05, 1024: 1.3, 2048: 2.5, 4096: 3.2}
SETTINGS = {"compile": "default", "attention": "sdpa-flash", "checkpointing": "full"}


def cell(ratio: float = 1.3, memory: float = 1.0, **settings: object) -> CellShape:
    return CellShape(settings=settings, ratio=ratio, memory=memory)  # type: ignore[arg-type]


def run(*, amp: float = 1.75, rounds: int = 3) -> list[Record]:
    """Precision (one cell fast but different, one inert), a sweep, a stack, a factorial, a stack less one and one cell
    out of memory."""
    studies = [
        StudyShape(
            name="precision",
            cells=(
                cell(amp, 0.8, precision="amp-bf16"),
                CellShape(settings={"precision": "bf16"}, ratio=2.6, memory=0.5, loss_shift=1.0),
                CellShape(settings={"precision": "tf32"}, outcome=Outcome.INERT),
            ),
        ),
        StudyShape(
            name="attention",
            baseline={"attention": "eager"},
            cells=(cell(1.0, 0.7, attention="sdpa-flash"),),
            sweep=("sequence_length", tuple(FLASH)),
        ),
        StudyShape(
            name="stack",
            cells=(
                cell(1.7, 0.8, precision="amp-bf16"),
                cell(2.2, 0.7, precision="amp-bf16", attention="sdpa-flash"),
                cell(1.8, 0.5, precision="amp-bf16", attention="sdpa-flash", checkpointing="full"),
            ),
        ),
        StudyShape(
            name="factorial",
            cells=(
                cell(1.5, 1.0, compile="default"),
                cell(2.0, 0.8, attention="sdpa-flash"),
                cell(2.4, 0.8, compile="default", attention="sdpa-flash"),
                CellShape(settings={"batch_size": 4096}, outcome=Outcome.OOM),
            ),
        ),
        StudyShape(
            name="less-one",
            cells=(
                cell(2.0, 0.5, compile="default", attention="sdpa-flash", checkpointing="full"),
                cell(1.2, 0.6, attention="sdpa-flash", checkpointing="full"),
                cell(1.9, 0.7, compile="default", checkpointing="full"),
                cell(2.4, 0.8, compile="default", attention="sdpa-flash"),
            ),
        ),
    ]
    return [_as_measured(record) for record in make_records(studies, rounds=rounds, spread=0.002)]


def claims(**changes: object) -> Claims:
    """Two documents, of which two claims contradict each other; `changes` go into `amp-speed`."""
    amp = {
        "id": "amp-speed", "statement": "Mixed precision is faster.", "form": "range", "metric": "speedup",
        "range": [1.5, 2], "study": "precision", "cell": {"precision": "amp-bf16"}, "origin": "A blog of 2019.",
        "sources": [{"document": "D1", "section": "§1C", "quote": "约1.5-2倍训练速度"}],
        "conditions": ["Baseline is fp32."],
        "changed": [{"when": "2026-11-28", "what": "Was judged at `batch_size=2`."}],
        "other_baseline": {"precision": "tf32"},
    }  # fmt: skip
    flash = {
        "form": "range", "metric": "speedup", "study": "attention", "cell": {"attention": "sdpa-flash"},
        "at": {"sequence_length": 1024},
    }  # fmt: skip
    low = {
        **flash, "id": "flash-low", "statement": "Flash gives 10 to 20%.", "range": [1.1, 1.2],
        "contradicts": ["flash-high"], "sources": [{"document": "D1", "quote": "10-20%速度提升"}],
    }  # fmt: skip
    high = {
        **flash, "id": "flash-high", "statement": "Flash gives 2 to 4 times.", "range": [2, 4],
        "contradicts": ["flash-low"], "sources": [{"document": "D2", "section": "table", "quote": "2-4x"}],
    }  # fmt: skip
    never = {
        "id": "never-run", "statement": "Something nobody ran.", "form": "at-least", "metric": "speedup", "bound": 3,
        "study": "absent", "sources": [{"document": "D2", "quote": "3x"}],
    }  # fmt: skip
    entries = [{**amp, **changes}, low, high, never]
    return Claims.model_validate(
        {
            "schema": 1,
            "documents": {
                "D1": {"title": "Training summary", "original_title": "训练代码优化总结", "file": "001.txt"},
                "D2": {"title": "Pretraining", "original_title": "预训练技巧", "file": "002.txt"},
            },
            "claims": {str(entry["id"]): entry for entry in entries},
        }
    )


def render(
    records: Sequence[Record], known: Claims, folder: Path, *, name: str = "sample", figures: int | None = None
) -> tuple[Judgement, Path]:
    """Judge and write; the judgement and the folder.

    Args:
        figures: at most; None: all of them, which takes ten seconds.
    """
    judgement = judge(records, known)
    render_report(judgement, known, records, folder, name=name, figures=figures)
    return judgement, folder


def _as_measured(record: Record) -> Record:
    """The sweep's true curve, and a prediction of the peak that is 10% too low."""
    if record.study == "attention" and not record.baseline and record.tokens_per_second:
        record = replace(
            record, tokens_per_second=record.tokens_per_second * FLASH[int(record.cell["sequence_length"])]
        )
    if record.peak_reserved_bytes:
        record = replace(record, figures={"predicted_bytes": 0.9 * record.peak_reserved_bytes})
    return record
