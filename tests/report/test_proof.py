"""What shows that a setting was in effect and that the cell trained the same: each figure below its own head."""

from __future__ import annotations

from dataclasses import replace

from harness.judgement.blocks import compare
from harness.judgement.judged import ArmResult, Parity
from harness.report.proof import evidence_table, parity_table
from tests.judgement.claiming import study
from tests.records import make_records


def the_cell() -> ArmResult:
    (block,) = compare(make_records([study()], rounds=3)).blocks
    return block.arms[2]


def test_evidence_says_in_how_many_trials_it_held_and_what_most_of_them_saw() -> None:
    words = [("flash seen", True), ("flash seen", True), ("math seen", False)]
    arm = the_cell()
    trials = tuple(
        replace(trial, evidence={"sequence_length": {"word": word, "holds": holds, "facts": {"kernels": place}}})
        for place, (trial, (word, holds)) in enumerate(zip(arm.trials, words, strict=True))
    )
    table = evidence_table([replace(arm, trials=trials)])
    assert table is not None
    assert table.rows == (("precision=bf16", "sequence length", "flash seen", "2 of 3 trials", "kernels: 0"),)


def test_parity_stands_below_its_heads() -> None:
    parity = Parity(word="holds", holds=True, loss_gap=0.01, worst_gap=0.02, margin=0.03, gradient_error=0.04,
                    eager_error=0.05, reason="a reason")  # fmt: skip
    table = parity_table([replace(the_cell(), parity=parity)])
    assert table is not None
    assert dict(zip(table.columns, table.rows[0], strict=True)) == {
        "cell": "precision=bf16", "parity": "holds", "loss gap": "0.01 nats", "largest": "0.02 nats",
        "margin": "0.03 nats", "gradient error": "0.04", "error of eager": "0.05", "why": "a reason",
    }  # fmt: skip
    assert [table.columns[index] for index in sorted(table.numeric)] == list(table.columns[2:7])
