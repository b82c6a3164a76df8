"""Tables as the pages show them: text, right-aligned where it is a number, one `Table` for HTML and for Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean
from typing import TypeVar

from harness.experiment.axes import show_setting
from harness.judgement.judged import ArmResult, BlockResult, Interval, Parity
from harness.report import formats

#: The views of memory, as a record names them, in the order in which they are shown.
VIEWS = ("allocated", "reserved", "device", "host")
#: Figures of nearly every trial, which have a section of their own.
SHOWN_ELSEWHERE = frozenset({"predicted_bytes"})
#: What names end in that hold trials together and measure nothing.
HASH = "_sha256"


Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class Table:
    """`numeric` holds the indices of the columns that are aligned to the right."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    strong: frozenset[int] = frozenset()
    """Rows that stand out: the baseline."""
    notes: tuple[str, ...] = ()
    """Sentences on single rows, below the table."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """All blocks of one study."""

    name: str
    anchor: str
    question: str
    """What it asks, where its matrix is known and says so."""
    blocks: tuple[BlockResult, ...]
    table: Table
    figures: Table | None
    """What a kind other than training measured, one column a figure."""
    notes: tuple[str, ...]
    """Warnings of blocks and cells, and why trials failed."""


def studies(blocks: Iterable[BlockResult], questions: Mapping[str, str] | None = None) -> tuple[Study, ...]:
    """One entry a study, in order of first appearance.

    Args:
        questions: study → what it asks.
    """
    grouped: dict[str, list[BlockResult]] = {}
    for block in blocks:
        grouped.setdefault(block.study, []).append(block)
    return tuple(
        Study(
            name=name, anchor=study_anchor(name), question=(questions or {}).get(name, ""),
            blocks=tuple(group), table=study_table(name, group), figures=figures_table(group), notes=notes(group),
        )
        for name, group in grouped.items()
    )  # fmt: skip


def study_anchor(name: str) -> str:
    """Where the section of a study stands in the page."""
    return f"study-{formats.slug(name)}"


def study_table(name: str, blocks: Sequence[BlockResult]) -> Table:
    """Cell, tokens/s (samples/s where no token is counted), ratio with interval, peak memory in three views, MFU,
    parity, outcome, evidence in a word."""
    lead, unit = _lead_columns(blocks), speed_unit(blocks)
    columns = (
        *lead, "cell", unit, f"{unit} ÷ baseline [95% interval]", "allocated", "reserved", "device", "MFU",
        "parity gap", "outcome", "evidence",
    )  # fmt: skip
    rows = [
        (*_lead(block, lead), arm.name, formats.rate(_speed(arm, unit)), interval(arm.speedup),
         *(memory(arm, view) for view in VIEWS[:3]), formats.share(arm.mfu), parity_gap(arm.parity),
         outcome(arm), arm.evidence or formats.ABSENT)
        for block in blocks for arm in block.arms
    ]  # fmt: skip
    roles = [arm.role for block in blocks for arm in block.arms]
    start = len(lead) + 1
    return Table(
        caption=f"Study {name}", columns=columns, rows=tuple(rows),
        numeric=frozenset(range(start, start + 7)),
        strong=frozenset(index for index, role in enumerate(roles) if role == "baseline"),
    )  # fmt: skip


def figures_table(blocks: Sequence[BlockResult]) -> Table | None:
    """Means over the ok trials of whatever a kind measures beyond a record's own fields; None where there is none."""
    lead = _lead_columns(blocks)
    arms = [(block, arm, figure_means(arm)) for block in blocks for arm in block.arms]
    names = list(dict.fromkeys(name for _, _, figures in arms for name in figures
                               if name not in SHOWN_ELSEWHERE and not name.endswith(HASH)))  # fmt: skip
    if not names:
        return None
    rows = [
        (*_lead(block, lead), arm.name, *(_figure(name, figures.get(name)) for name in names))
        for block, arm, figures in arms
    ]
    start = len(lead) + 1
    return Table(
        caption="What these trials measure, mean over rounds",
        columns=(*lead, "cell", *(_title(name) for name in names)),
        rows=tuple(rows), numeric=frozenset(range(start, start + len(names))),
    )  # fmt: skip


def memory_table(blocks: Sequence[BlockResult]) -> Table | None:
    """Peak memory of each arm in every view, with its ratio to the baseline."""
    lead = _lead_columns(blocks)
    shown = [view for view in VIEWS if any(view in arm.memory for block in blocks for arm in block.arms)]
    if not shown:
        return None
    rows = [
        (*_lead(block, lead), arm.name, *(cell for view in shown for cell in _memory_pair(arm, view)))
        for block in blocks for arm in block.arms
    ]  # fmt: skip
    columns = (*lead, "cell", *(name for view in shown for name in (view, f"{view} ÷ baseline")))
    start = len(lead) + 1
    return Table(
        caption="Peak memory, largest of all trials", columns=columns, rows=tuple(rows),
        numeric=frozenset(range(start, len(columns))),
    )  # fmt: skip


def notes(blocks: Sequence[BlockResult]) -> tuple[str, ...]:
    """Each warning and each reason of failure once, with where it was seen."""
    found = [
        *((block, "", warning) for block in blocks for warning in block.warnings),
        *((block, "control", f"fails parity: {why}") for block in blocks if (why := block.control_strays)),
        *((block, arm.name, flag) for block in blocks for arm in block.arms for flag in arm.flags),
        *((block, arm.name, arm.reason) for block in blocks for arm in block.arms if arm.reason),
    ]  # fmt: skip
    apart = [name for name in _lead_columns(blocks) if name != "sweep point"]

    def where(block: BlockResult, arm: str) -> str:
        place = " ".join(filter(None, [arm, formats.settings(block.sweep)])) or block.study
        return f"{place} ({', '.join(_lead(block, apart))})" if apart else place

    lines = (f"{where(block, arm)}: {text}" for block, arm, text in found)
    return tuple(dict.fromkeys(lines))


def speed_unit(blocks: Sequence[BlockResult]) -> str:
    """What the speeds and ratios of a study are of: `tokens/s`, or `samples/s` of a kind that counts no tokens."""
    arms = [arm for block in blocks for arm in block.arms]
    counted = any(arm.tokens_per_second for arm in arms)
    return "samples/s" if not counted and any(_speed(arm, "samples/s") for arm in arms) else "tokens/s"


def _speed(arm: ArmResult, unit: str) -> float | None:
    """Geometric mean over the ok trials."""
    if unit == "tokens/s":
        return arm.tokens_per_second
    speeds = [trial.samples_per_second for trial in arm.trials if trial.outcome == "ok" and trial.samples_per_second]
    return geometric_mean(speeds) if speeds else None


def place_of(block: BlockResult) -> str:
    """A block by its study and sweep point."""
    return f"{block.study} {formats.settings(block.sweep)}".strip()


def telling_apart(blocks: Sequence[BlockResult]) -> Callable[[BlockResult], str]:
    """What stands behind the name of each block where another bears it too: its device, the time of its first trial."""
    named = Counter(place_of(block) for block in blocks)
    devices = Counter((place_of(block), block.device) for block in blocks)

    def suffix(block: BlockResult) -> str:
        place = place_of(block)
        alike = devices[place, block.device]
        device = f" on {block.device}" if named[place] > alike else ""
        return f"{device}, since {_since(block)}" if alike > 1 else device

    return suffix


def places(blocks: Sequence[BlockResult]) -> Callable[[BlockResult], str]:
    """What to call each of these blocks, so that no two are called alike."""
    apart = telling_apart(blocks)
    return lambda block: f"{place_of(block)}{apart(block)}"


def titled(groups: Sequence[tuple[BlockResult, Found]]) -> list[tuple[str, BlockResult, Found]]:
    """In front of each block what to call it: its place, with the device where there are several."""
    several = len({block.device for block, _ in groups}) > 1
    return [(f"{place_of(block)} on {block.device}" if several else place_of(block), block, each)
            for block, each in groups]  # fmt: skip


def figure_means(arm: ArmResult) -> dict[str, float | str]:
    """Figure → mean over the ok trials; words and truth values as they are where all trials agree."""
    values: dict[str, list[object]] = {}
    for record in arm.trials:
        if record.outcome == "ok":
            for name, value in record.figures.items():
                values.setdefault(name, []).append(value)
    means: dict[str, float | str] = {}
    for name, seen in values.items():
        numbers = [float(each) for each in seen if isinstance(each, int | float) and not isinstance(each, bool)]
        if len(numbers) == len(seen):
            means[name] = fmean(numbers)
        elif not any(isinstance(each, list | dict) for each in seen):
            means[name] = ", ".join(dict.fromkeys(show_setting(each) for each in seen))
    return means


def interval(ratio: Interval | None) -> str:
    """A ratio with its interval; dropped pairs are said."""
    if ratio is None:
        return formats.ABSENT
    dropped = f" ({formats.plural(ratio.dropped, 'pair')} dropped)" if ratio.dropped else ""
    return formats.with_span(ratio.value, ratio.low, ratio.high) + dropped


def memory(arm: ArmResult, view: str) -> str:
    """The peak in one view."""
    return formats.size(arm.memory[view][0]) if view in arm.memory else formats.ABSENT


def parity_gap(parity: Parity) -> str:
    """The gap of the loss curves in nats with its word: `0.0021 holds`. Without a gap why there is none, in short."""
    if parity.loss_gap is not None:
        return f"{parity.loss_gap:.2g} {parity.word}"
    word, _, why = parity.word.partition(": ")
    if word == "is the baseline":
        return formats.ABSENT
    return why if word == "not applicable" else word


def outcome(arm: ArmResult) -> str:
    """`5 ok`, `3 ok, 2 oom`, with the noise label and flags."""
    counts = ", ".join(f"{number} {name}" for name, number in arm.outcomes.items()) or "no trial"
    return ", ".join([counts, *([arm.noise] if arm.noise else [])])


def _memory_pair(arm: ArmResult, view: str) -> tuple[str, str]:
    return memory(arm, view), formats.ratio(arm.memory_ratio.get(view))


def _lead_columns(blocks: Sequence[BlockResult]) -> tuple[str, ...]:
    """Columns that tell blocks apart, shown only where there is something to tell apart."""
    swept = any(block.sweep for block in blocks)
    devices = len({block.device for block in blocks}) > 1
    again = len({(formats.settings(block.sweep), block.device) for block in blocks}) < len(blocks)
    return (*(["sweep point"] if swept else []), *(["device"] if devices else []), *(["since"] if again else []))


def _lead(block: BlockResult, columns: Sequence[str]) -> tuple[str, ...]:
    cells = {"sweep point": formats.settings(block.sweep) or formats.ABSENT, "device": block.device,
             "since": _since(block)}  # fmt: skip
    return tuple(cells[name] for name in columns)


def _since(block: BlockResult) -> str:
    return min(trial.started_at for arm in block.arms for trial in arm.trials)[:16].replace("T", " ")


def _figure(name: str, value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or formats.ABSENT
    return formats.figure(name, value)


def _title(name: str) -> str:
    return name.replace("_", " ")
