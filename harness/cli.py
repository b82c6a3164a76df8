"""The command line. A command says what it takes and hands over to `harness` (the public API) and `report.terminal`.

Everything beyond typer is imported inside the commands, so that `--help` answers at once. Exit codes: 0 done, 1 a cell
got slower (`compare`), 2 the user or the machine (one line on standard error), 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

import harness
from harness import options, running
from harness.errors import ClaimbenchError, InputError
from harness.version import VERSION

app = typer.Typer(
    name="claimbench",
    help="Checks claims about LLM-training optimizations: isolated trials, intervals, evidence, verdicts.",
    epilog="A PATH is a store, a file of JSON lines (plain or gzip), or a folder of them.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich would cost a quarter of the time that --help may take
    # without a default typer builds a parser for the absent --help before every command: 0.2 s to import pydantic
    context_settings={"default_map": {"help": False}},
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"claimbench {VERSION}")
        raise typer.Exit


@app.callback()
def _whole(
    *,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """What stands before a command."""


app.command()(running.run)
app.command()(running.plan)


@app.command()
def check(
    sentence: options.Sentence,
    *,
    workload: options.Workload,
    budget: options.Budget = None,
    sweep: options.Sweep = None,
    rounds: options.CheckRounds = None,
    store: options.Store = options.CHECK_STORE,
    device: options.Device = "auto",
    wall_limit: options.WallLimit = None,
    output: Annotated[Path | None, typer.Option(help="The folder of the report: reports/ and the sentence.")] = None,
    as_json: options.AsObject = False,
) -> None:
    """Check one sentence on one training step, within a time budget.

    claimbench check 'attention=sdpa vs eager >= 1.5x' --workload my.py:build --budget 10m
    """
    from harness.checking import words
    from harness.report.progress import progress
    from harness.report.terminal import console, write_json, write_lines

    with running.stoppable(store):
        with nullcontext(None) if as_json else progress(console()) as on_event:
            answer = harness.check(
                sentence, workload, budget_seconds=budget or options.BUDGET_SECONDS, sweep=sweep, rounds=rounds,
                store=store, device=device, wall_limit_seconds=wall_limit, on_event=on_event, arguments=sys.argv[1:],
            )  # fmt: skip
        page = harness.render(
            answer.records, output, claims=answer.claims, name=answer.question.study, sources=[store, Path(workload)],
            judgement=answer.judgement,
        ) if answer.records else "none: no trial ended"  # fmt: skip
    if as_json:
        write_json(words.as_json(answer, str(page)))
    else:
        write_lines(["", *words.lines(answer)])
        for table in filter(None, (words.memory_table(answer), words.why_table(answer))):
            console().print(table)
        write_lines(filter(None, [words.why_note(answer), f"trials: {store}", f"report: {page}"]))
    if answer.interrupted:
        raise running.stopped(store)


@app.command()
def status(
    *,
    paths: options.Paths = None,
    matrix: options.Matrix = options.MATRIX,
    rounds: options.Rounds = None,
    scale: options.Scale = "auto",
    device: options.Device = "auto",
) -> None:
    """Show what is stored, and what the matrix still lacks on this machine."""
    from harness.report.status import sections
    from harness.report.terminal import console, plan_summary, status_table

    records = harness.read(paths or [options.STORE])
    planned = here = None
    if matrix.exists() or matrix != options.MATRIX:
        here = harness.machine(device)
        planned = harness.plan(matrix, rounds=rounds, scale=scale, environment=here)
        typer.echo(plan_summary(planned))
    for section in sections(records, planned, here):
        if section.title:
            typer.echo(f"\n{section.title}")
        console().print(status_table(section.blocks))


@app.command()
def report(
    *,
    paths: options.Paths = None,
    claims: options.Claims = None,
    matrix: options.MatrixOfTrials = None,
    output: Annotated[Path | None, typer.Option(help="The folder to write to; else a new one in reports/.")] = None,
    figures: options.Figures = None,
) -> None:
    """Write the report on what is stored: HTML, Markdown, tables."""
    page = harness.render(paths or [options.STORE], output, claims=claims, matrix=matrix, figures=figures)
    typer.echo(f"report: {page}")


@app.command()
def claims(
    *,
    claims: options.Claims = None,
    matrix: options.MatrixOfClaims = None,
    as_json: options.Json = False,
) -> None:
    """List the claims, and check them against the matrix."""
    from harness.judgement.claims_file import read_claims
    from harness.judgement.rows import claims_rows
    from harness.report.terminal import console, rows_table, write_json

    held_against = matrix or options.MATRIX
    blocks = tuple(harness.read_matrix(held_against).blocks()) if matrix or held_against.exists() else None
    rows = claims_rows(read_claims(claims or options.CLAIMS, blocks=blocks, own_first=matrix is None))
    write_json(rows) if as_json else console().print(rows_table(rows))


@app.command()
def judge(*, paths: options.Paths = None, claims: options.Claims = None, as_json: options.Json = False) -> None:
    """Print what the trials say of each claim."""
    from harness.judgement.rows import verdict_objects
    from harness.report.terminal import console, verdict_counts, verdicts_table, write_json

    records = harness.read(paths or [options.STORE])
    if claims is None and not options.CLAIMS.exists():
        raise InputError(f"there is no {options.CLAIMS} here, so there is nothing to judge; give --claims FILE")
    judgement = harness.judge(records, claims)
    if as_json:
        write_json(verdict_objects(judgement))
        return
    console().print(verdicts_table(judgement.verdicts))
    typer.echo(verdict_counts(judgement.verdicts))


@app.command()
def doctor(*, device: options.Device = "auto", calibrate: options.Calibrate = False) -> None:
    """Show which settings can run here, and what the others lack."""
    from harness.report.doctor import calibration, processes, tables
    from harness.report.terminal import console, write_lines
    from harness.techniques.registry import axis_table
    from harness.trial.caller import lacking
    from harness.trial.kinds import refusal

    here, missing = harness.machine(device), lacking()
    console().print(*tables(axis_table(), here, lambda cell: missing or refusal(here, cell, "training")))
    write_lines(processes(here))
    if calibrate:
        console().print(*calibration("cuda" if here.has_gpu else "cpu"))


@app.command()
def export(
    *,
    paths: options.Paths = None,
    to: Annotated[Path, typer.Option(help="x.jsonl, x.jsonl.gz, x.csv or x.parquet.")],
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Leave out the trials of a store that cannot be read, and name them.")
    ] = False,
) -> None:
    """Write trials as JSON lines, CSV or parquet.

    JSON lines are the form to commit; they can be imported again.
    """
    from harness.results.export import export as write

    damaged: list[str] | None = [] if skip_damaged else None
    count = write(harness.read(paths or [options.STORE], damaged=damaged), to)
    for line in damaged or ():
        typer.echo(f"damaged: {line}", err=True)
    left_out = f", {len(damaged)} damaged left out" if damaged else ""
    typer.echo(f"{count} trials written to {to}{left_out}")


@app.command("import")
def import_(
    *, paths: Annotated[list[Path], typer.Argument(metavar="PATH...")], store: options.Store = options.STORE
) -> None:
    """Add trials to a store.

    All of them or, if one is no record, none. A trial that is there already is left alone.
    """
    from harness.results.store import Store

    records = harness.read(paths)
    with Store.open(store, writable=True) as kept:
        new = kept.add_all(records)
    typer.echo(f"{new} trials added to {store}, {len(records) - new} were there already")


@app.command()
def compare(
    before: options.Side,
    after: options.Side,
    *,
    threshold: options.Threshold = None,
    across_devices: options.AcrossDevices = False,
    markdown: options.Markdown = False,
) -> None:
    """Say which cells got slower from one run to another, and what changed around them.

    Exit code 1 if any did.
    """
    from harness.judgement.regress import THRESHOLD, compare_sides
    from harness.judgement.sides import read_side
    from harness.report import regressions
    from harness.report.terminal import console, write_lines

    found = compare_sides(
        read_side(before), read_side(after), across_devices=across_devices,
        threshold=THRESHOLD if threshold is None else threshold,
    )  # fmt: skip
    if markdown:
        typer.echo(regressions.markdown(found), nl=False)
    else:
        write_lines(regressions.lines_above(found))
        console().print(regressions.table(found))
        write_lines(regressions.lines_below(found))
    if found.regressions:
        raise typer.Exit(1)


def main() -> None:
    """Entry point: errors that are meant for the user are one line each, without a traceback."""
    from harness.report.output import unfailing

    with unfailing():
        try:
            app(prog_name="claimbench")
        except ClaimbenchError as error:
            sys.stderr.writelines(f"error: {line}\n" for line in str(error).splitlines())
            sys.exit(2)


if __name__ == "__main__":
    main()
