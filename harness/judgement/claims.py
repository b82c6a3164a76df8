"""What a claim is: the format of claims.yaml. `claims_file` reads one, `claims_check` holds it against the matrix.

    schema: 1
    matrix: matrix.yaml
    documents:
      D1: {title: Training code optimization summary, original_title: 训练代码优化总结, file: 001_8c56428b62a0e5bd.txt}
    claims:
      amp-speed:
        statement: Mixed precision trains 1.5 to 2 times faster.
        sources: [{document: D1, section: §1C, quote: 约1.5-2倍训练速度}]
        form: range
        metric: speedup
        range: [1.5, 2]
        study: precision
        cell: {precision: amp-bf16}
        also: [{precision: amp-fp16}]
        other_baseline: {precision: tf32}

`matrix` is optional: the file, from the folder of this one, whose studies the claims are about (`asked`).

A claim may also be a sentence, `check: attention=flash2 vs eager >= 2x`, in place of form, metric, figures, cell and
baseline. Without a `study` it is judged on what `claimbench check` measured for that sentence.

The forms, and what each needs beside `metric`:

    range      range: [low, high]; either end may be null
    at-least   bound: low
    at-most    bound: high
    up-to      bound: only reached or not reached here
    exact      value and tolerance (both in units of the metric)
    limit      limit: the ratio for many devices; judged by extrapolation over `devices`
    order      order: the entries as the document ranks them, largest gain first; `metric` is what they are ranked by
    product    order: the parts, range: what the stack is claimed to give; `cell` is the stack
    statement  nothing; with a range or an expected value it is confirmed or refuted by it, without it is reported
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from harness.experiment import axes

if TYPE_CHECKING:
    from harness.judgement.asked import Asked

#: One value of an axis as it stands in YAML: `true` stays a truth value and `8` a whole number.
YamlSetting = StrictBool | StrictInt | StrictFloat | StrictStr
#: Settings in which a cell differs from the baseline of its block; empty stands for the baseline itself.
Settings = dict[str, YamlSetting]
Text = Annotated[str, Field(min_length=1)]
Form = Literal["range", "at-least", "at-most", "up-to", "exact", "limit", "order", "product", "statement"]

#: Fields that a form needs. What no row names may be left out.
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "range": ("metric", "range"),
    "at-least": ("metric", "bound"),
    "at-most": ("metric", "bound"),
    "up-to": ("metric", "bound"),
    "exact": ("metric", "value", "tolerance"),
    "limit": ("metric", "limit"),
    "order": ("metric", "order"),
    "product": ("metric", "order"),
    "statement": (),
}
#: Fields that only some forms may carry: a bound on a range would be read by nobody.
ALLOWED: Mapping[str, tuple[str, ...]] = {
    "range": ("range", "product", "statement"),
    "bound": ("at-least", "at-most", "up-to"),
    "value": ("exact",),
    "tolerance": ("exact",),
    "limit": ("limit",),
    "order": ("order", "product"),
    "expect": ("statement",),
}


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Document(_Model):
    """A text that claims something."""

    title: Text
    original_title: str = ""
    """The title in its own language, where that is not English."""
    file: str = ""
    """Its file name, as a reference."""


class Source(_Model):
    """Where a claim stands: a few words of the document, so that a reader finds the place."""

    document: Text
    section: str = ""
    quote: Text


class Change(_Model):
    """How a claim was judged before a result of it was known, where that was changed afterwards."""

    when: date
    what: Text
    """What was changed, why, and what the trials said of it as it stood."""


class Entry(_Model):
    """A member of an order or a part of a product. Written short, `{lora: 8}`, it is a cell of the claim's study."""

    name: str = ""
    """How the document calls it; its settings where empty."""
    cell: Settings | None = None
    best_of: tuple[Settings, ...] = ()
    """Several cells, of which the best counts (`each on its own best cell`)."""
    study: str | None = None
    """Another study than the claim's own."""
    at: Settings = {}
    baseline: Settings = {}

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        own = {"name", "cell", "best_of", "study", "at", "baseline"}
        return {"cell": value} if isinstance(value, dict) and not own & set(value) else value

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.cell is None) == (not self.best_of):
            raise ValueError("give either cell or best_of")
        return self

    @property
    def cells(self) -> tuple[Settings, ...]:
        return self.best_of or (self.cell or {},)

    @property
    def title(self) -> str:
        return self.name or " or ".join(show_settings(cell) for cell in self.cells)


class Claim(_Model):
    """One figure (or statement) of one or more documents, as a range on a metric."""

    id: str = ""
    """The key under `claims`."""
    check: str = ""
    """The claim as a sentence (`judgement.sentence`), in place of study, cell, baseline, form, metric and figures."""
    statement: Text
    """What is claimed, in our own words, one sentence."""
    sources: tuple[Source, ...] = Field(min_length=1)
    form: Form
    metric: str | None = None
    """A name of `judgement.metrics`; `figure:<name>` is a kind's own figure."""
    range: tuple[float | None, float | None] | None = None
    bound: float | None = None
    value: float | None = None
    tolerance: float | None = Field(default=None, ge=0)
    limit: float | None = Field(default=None, gt=1, le=16)
    """How many times smaller the 16 bytes of model state per parameter become for many devices."""
    order: tuple[Entry, ...] = ()
    expect: YamlSetting | None = None
    """The exact value (a word, true or false) that a `figure:<name>` must have in every round."""
    study: Text
    cell: Settings = {}
    """The primary cell, named before anything runs: the settings in which it differs from the block's baseline."""
    also: tuple[Settings, ...] = ()
    """Further cells: shown, and counted in the scope."""
    baseline: Settings = {}
    """Settings that turn the block's baseline into the arm to compare with; empty: the block's baseline."""
    other_baseline: Settings | None = None
    """The obvious other baseline, shown beside."""
    at: Settings = {}
    """The primary sweep point, named before anything runs."""
    view: Literal["allocated", "reserved", "device", "host"] = "reserved"
    device: Literal["gpu", "any"] = "gpu"
    """`gpu`: measured on a CPU or in the smoke scale it is not comparable. `any`: it holds wherever it runs."""
    shows: tuple[str, ...] = ()
    """Further metrics of the primary cell that stand beside the verdict."""
    contradicts: tuple[str, ...] = ()
    """Ids of claims that say something else of the same figure."""
    see: tuple[Text, ...] = ()
    """Further studies that explain the claim (a sweep over another axis, another model); shown on its page."""
    conditions: tuple[str, ...] = ()
    changed: tuple[Change, ...] = ()
    """What was changed after a result was known; told wherever the verdict stands."""
    origin: str = ""
    """Where the published figure comes from."""
    _matrix: str = PrivateAttr(default="")

    @property
    def matrix(self) -> str:
        """The matrix that has the claim's studies, as a command names it; empty where its file names none."""
        return self._matrix

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for name in REQUIRED[self.form]:
            if getattr(self, name) in (None, ()):
                raise ValueError(f"a claim of form {self.form!r} needs {name!r}")
        for name, forms in ALLOWED.items():
            if getattr(self, name) not in (None, ()) and self.form not in forms:
                raise ValueError(f"{name!r} has no meaning for form {self.form!r}; it belongs to {', '.join(forms)}")
        if (self.range or self.expect is not None) and self.metric is None:
            raise ValueError("a range or an expected value needs a 'metric'")
        if self.range and self.range[0] is not None and self.range[1] is not None and self.range[0] > self.range[1]:
            raise ValueError(f"range {list(self.range)} is empty: the first number must not exceed the second")
        if self.range == (None, None):
            raise ValueError("a range needs a number at one end at least")
        if self.form == "order" and len(self.order) < 2:
            raise ValueError("an order needs two entries at least")
        return self

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The claimed range on the metric; None where it is open."""
        if self.range:
            return self.range
        if self.value is not None and self.tolerance is not None:
            return self.value - self.tolerance, self.value + self.tolerance
        if self.form in {"at-least", "up-to"}:
            return self.bound, None
        return None, self.bound

    @property
    def documents(self) -> str:
        """`D1 §1C, D2 table`."""
        return ", ".join(f"{source.document} {source.section}".strip() for source in self.sources)


class Claims(_Model):
    """A claims file."""

    schema_: Literal[1] = Field(alias="schema")
    documents: dict[str, Document]
    claims: dict[str, Claim] = Field(min_length=1)
    file: str = ""
    """The file that it was read from, for messages."""
    _asked: Asked | None = PrivateAttr(default=None)

    @property
    def asked(self) -> Asked | None:
        """The studies that the claims are about; None: any that are called so."""
        return self._asked

    def about(self, asked: Asked) -> Self:
        """The same claims, to be judged on the studies of a matrix alone."""
        found = self.model_copy(update={"claims": {name: claim.model_copy() for name, claim in self.claims.items()}})
        found._asked = asked
        for claim in found.all():
            claim._matrix = asked.file
        return found

    def all(self) -> tuple[Claim, ...]:
        """Every claim, in the order of the file."""
        return tuple(self.claims.values())


def show_settings(settings: Mapping[str, object]) -> str:
    """`attention=flash2 precision=bf16`, or `baseline`: the name that an arm has in its block."""
    return axes.show_settings(settings) or "baseline"
