"""Levels against lines: utilisation and memory against targets, the estimator against measured peaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean

from harness.judgement.claims import Claims
from harness.judgement.judged import ArmResult, BlockResult, Judgement
from harness.judgement.metrics import METRICS
from harness.judgement.pairs import measure
from harness.judgement.quantities import numeric
from harness.report import formats
from harness.report.figures import bars, scatter, style
from harness.report.figures.gallery import Gallery
from harness.report.figures.scatter import Spot
from harness.report.part import Part
from harness.report.tables import Table, places

#: Rows of a figure of dots; the tables have all.
MOST_DOTS = 28
#: Metrics that documents set targets for.
TARGETS = {"utilisation": "mean GPU utilisation", "memory_used_share": "share of the GPU's memory used"}


def targets_part(judgement: Judgement, claims: Claims, gallery: Gallery) -> Part:
    """GPU utilisation and memory of the highest cell of each study that trains, against what documents name as
    targets: of a loader alone, which leaves the GPU idle, neither says anything."""
    pictures, sentences = [], []
    training = [block for block in judgement.blocks if block.kind == "training"]
    for metric, title in TARGETS.items():
        cells = _level_dots(training, metric)
        if not cells:
            continue
        targets = [
            (name, *claim.bounds)
            for name, claim in claims.claims.items()
            if claim.metric == metric and claim.bounds != (None, None)
        ]
        highest: dict[str, bars.Dot] = {}
        for study, dot in sorted(cells, key=lambda each: -each[1].value):
            highest.setdefault(study, dot)
        shown = list(highest.values())[:MOST_DOTS]
        lines = [(f"{name}: {formats.share(end)}", end) for name, *ends in targets for end in ends if end is not None]
        drawing = partial(bars.dots, values=shown, x_label=title, lines=lines, percent=True)
        caption = (
            f"{title[0].upper()}{title[1:]}: the highest of {formats.plural(len(cells), 'cell')} in each study that "
            "trains."
        )
        size = (6.6, bars.height([dot.name for dot in shown], each=bars.THIN))
        pictures.append(gallery.draw(f"targets-{metric}", caption, drawing, size=size))
        sentences += [_reached(*target, [dot for _, dot in cells], title) for target in targets]
    nothing = "No trial that trains has GPU utilisation or device memory recorded: both need a GPU."
    missing = "" if pictures else nothing
    return Part(
        anchor="targets",
        title="Utilisation and memory against the documents' targets",
        short="Targets",
        missing=missing,
        run="Run on one:",
        pictures=tuple(picture for picture in pictures if picture),
        sentences=tuple(sentences),
    )


def estimator_part(blocks: Sequence[BlockResult], claims: Claims, gallery: Gallery) -> Part:
    """The memory estimator's prediction against the measured peak, for every cell that has one."""
    found = list(_predictions(blocks))
    title = "The memory estimator against measured peaks"
    if not found:
        return Part(
            anchor="estimator",
            title=title,
            short="Estimator",
            missing="No trial has both a prediction and a measured device peak.",
            run="Run on a GPU:",
        )
    low, high = _estimator_bounds(claims)
    ratios = [each.ratio for each in found]
    inside = sum(low <= ratio <= high for ratio in ratios)
    caption = f"Predicted against measured peak reserved memory, {formats.plural(len(found), 'cell')}, by model."
    spots = [
        Spot(group=each.model, x=each.peak_reserved_bytes / 2**30, y=each.predicted_bytes / 2**30) for each in found
    ]
    models = list(dict.fromkeys(each.model for each in found))[: scatter.MOST_NAMED]
    size = (6.0, 4.0 + style.legend_inches([scatter.band_label(low, high), *models], 6.0))
    picture = gallery.draw("estimator", caption, partial(scatter.estimator, spots=spots, low=low, high=high), size=size)
    return Part(
        anchor="estimator",
        title=title,
        short="Estimator",
        pictures=(picture,) if picture else (),
        sentences=(
            f"{inside} of {formats.plural(len(found), 'prediction')} lie between {low:g} and {high:g} times the "
            f"measured peak; the lowest is {formats.ratio(min(ratios))}, the highest {formats.ratio(max(ratios))}.",
        ),
        tables=(_estimator_table(found),),
        rows=tuple(map(asdict, found)),
    )


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the estimator says of a cell, and what was measured, both in bytes: a row of the table."""

    study: str
    model: str
    sweep: str
    cell: str
    predicted_bytes: float
    peak_reserved_bytes: float

    @property
    def ratio(self) -> float:
        return self.predicted_bytes / self.peak_reserved_bytes


def _predictions(blocks: Sequence[BlockResult]) -> Iterator[Prediction]:
    for block in blocks:
        for arm in block.arms:
            predicted = _mean_figure(arm, "predicted_bytes")
            if predicted and "reserved" in arm.memory and arm.role != "control":
                yield Prediction(
                    study=block.study, model=block.model, sweep=formats.settings(block.sweep), cell=arm.name,
                    predicted_bytes=predicted, peak_reserved_bytes=arm.memory["reserved"][0],
                )  # fmt: skip


def _level_dots(blocks: Sequence[BlockResult], name: str) -> list[tuple[str, bars.Dot]]:
    """Study and dot of each cell that has the figure."""
    dots = []
    place = places(blocks)
    for block in blocks:
        for arm in block.arms:
            found = measure(METRICS[name], arm, None, "reserved") if arm.role != "control" else None
            if found:
                each = found.interval
                low = each.value if each.low is None else each.low
                high = each.value if each.high is None else each.high
                cell = f"{place(block)}: {arm.name}"
                dots.append((block.study, bars.Dot(name=cell, value=each.value, low=low, high=high)))
    return dots


def _reached(claim: str, low: float | None, high: float | None, dots: Sequence[bars.Dot], title: str) -> str:
    inside = sum(1 for dot in dots if (low is None or dot.value >= low) and (high is None or dot.value <= high))
    ends = " and ".join(
        [
            *([f"at least {formats.share(low)}"] if low is not None else []),
            *([f"at most {formats.share(high)}"] if high is not None else []),
        ]
    )
    return f"{claim}, {ends}: reached by {inside} of {formats.plural(len(dots), 'cell')} on {title}."


def _estimator_bounds(claims: Claims) -> tuple[float, float]:
    bounds = [claim.bounds for claim in claims.claims.values() if claim.metric == "prediction_ratio"]
    low, high = bounds[0] if bounds else (None, None)
    return (1.0 if low is None else low), (1.0 if high is None else high)


def _estimator_table(found: Sequence[Prediction]) -> Table:
    shown = sorted(found, key=lambda each: -abs(each.ratio - 1))[:MOST_DOTS]
    return Table(
        caption=f"Predictions, the {len(shown)} furthest off first",
        numeric=frozenset({4, 5, 6}),
        columns=("study", "model", "sweep point", "cell", "predicted", "measured, reserved", "predicted ÷ measured"),
        rows=tuple(
            (
                each.study,
                each.model,
                each.sweep or formats.ABSENT,
                each.cell,
                formats.size(each.predicted_bytes),
                formats.size(each.peak_reserved_bytes),
                formats.ratio(each.ratio),
            )
            for each in shown
        ),
    )


def _mean_figure(arm: ArmResult, name: str) -> float | None:
    values = [value for record in arm.trials if record.outcome == "ok" and (value := numeric(record.figures.get(name)))]
    return fmean(values) if values else None
