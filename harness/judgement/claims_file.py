"""Reads a claims file: the format, then that everything it names exists. What is wrong is said at once, with places."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import ClaimsError, MatrixError, suggestion
from harness.experiment.problems import Problems, validate
from harness.experiment.reader import Document as YamlDocument
from harness.experiment.reader import read_document
from harness.experiment.study import Block
from harness.judgement.asked import Asked, read_asked
from harness.judgement.claims import Claim, Claims, Document
from harness.judgement.claims_check import check_against, check_figures
from harness.judgement.metrics import UnknownMetric, metric_named
from harness.judgement.sentence import OWN_DOCUMENT, OWN_TITLE
from harness.judgement.sentence_claims import expanded, has_own_sentences

#: What else can be done about a matrix that is not at hand.
LEAVE_OUT = "take `matrix` out, and trials are told by the names of their studies alone"
BY_NAME = f"put it there, or {LEAVE_OUT}"
_TOP = ("schema", "matrix", "documents", "claims")


def read_claims(path: Path | str, *, blocks: Sequence[Block] | None = None, own_first: bool = False) -> Claims:
    """Read a claims file; with the `blocks` of a matrix, also check that each claim's study, cells and points exist.

    Args:
        own_first: where the file names a matrix, it is checked against that one in place of `blocks`.

    Raises:
        ClaimsError: a line for each thing that is wrong, with file, line, column and a suggestion.
        MatrixError: the matrix that it names is wrong.
    """
    document = read_document(path, ClaimsError)
    problems = Problems(document, ClaimsError)
    claims = _claims(document, problems)
    asked = _asked(document, problems)
    if asked is not None and own_first:
        blocks = tuple(asked.matrix.blocks())
    _check_names(claims, problems)
    for claim in claims.all():
        check_figures(claim, {block.study: block.kind for block in blocks or ()}, problems)
    if blocks is not None:
        check_against(claims, blocks, problems)
    problems.raise_if_any()
    return claims if asked is None else claims.about(asked)


def _asked(document: YamlDocument, problems: Problems) -> Asked | None:
    """The studies of the matrix that the file names, if it does.

    Raises:
        ClaimsError: there is no such file; everything that is wrong with the claims file besides.
        MatrixError: the matrix is wrong.
    """
    content = document.plain()
    if "matrix" not in content:
        return None
    named = content["matrix"]
    if not isinstance(named, str) or not named:
        problems.add("'matrix' must be the name of a matrix file", ["matrix"])
    elif not os.path.isfile(path := Path(document.file).parent / named):
        problems.add(f"there is no matrix {named!r} beside this file; {BY_NAME}", ["matrix"])
    problems.raise_if_any()
    try:
        return read_asked(path)
    except MatrixError as error:
        place = document.place(["matrix"])
        note = f"{place}: the claims are about the studies of this matrix; mend it, or {LEAVE_OUT}"
        raise MatrixError(f"{error.message}\n{note}", place=error.place) from error


def _claims(document: YamlDocument, problems: Problems) -> Claims:
    content = document.plain()
    for key in content:
        if key not in _TOP:
            problems.add(f"unknown key {key!r}{suggestion(key, _TOP)}", [key], key=True)
    if content.get("schema") != 1:
        problems.add("the file must say `schema: 1`, the format this claimbench reads", ["schema"])
    documents, claims = {}, {}
    if has_own_sentences(content):
        documents[OWN_DOCUMENT] = Document(title=OWN_TITLE)
    written = content.get("documents") or not documents
    for name, fields in _mapping(content, "documents", problems).items() if written else ():
        found, _ = validate(Document, fields, problems, ["documents", name])
        if found is not None:
            documents[name] = found
    for name, fields in _mapping(content, "claims", problems).items():
        own = {**expanded(name, fields, problems), "id": name} if isinstance(fields, dict) else fields
        claim, _ = validate(Claim, own, problems, ["claims", name])
        if claim is not None:
            claims[name] = claim
    problems.raise_if_any()
    return Claims(schema=1, documents=documents, claims=claims, file=document.file)


def _mapping(content: dict[str, Any], key: str, problems: Problems) -> dict[str, Any]:
    entries = content.get(key)
    if isinstance(entries, dict) and entries:
        return entries
    problems.add(f"{key!r} must be a mapping with an entry at least", [key])
    return {}


def _check_names(claims: Claims, problems: Problems) -> None:
    """Names that can be checked without a matrix: documents, metrics, other claims."""
    for claim in claims.all():
        path = ["claims", claim.id]
        for index, source in enumerate(claim.sources):
            if source.document not in claims.documents:
                hint = suggestion(source.document, claims.documents)
                problems.add(f"unknown document {source.document!r}{hint}", [*path, "sources", index, "document"])
        named: list[tuple[str | None, list[str | int]]] = [(claim.metric, ["metric"])]
        named += [(each, ["shows", index]) for index, each in enumerate(claim.shows)]
        for name, at in named:
            try:
                if name is not None:
                    metric_named(name)
            except UnknownMetric as problem:
                problems.add(str(problem), [*path, *at])
        _check_contradictions(claim, claims, problems)


def _check_contradictions(claim: Claim, claims: Claims, problems: Problems) -> None:
    for index, other in enumerate(claim.contradicts):
        path: list[str | int] = ["claims", claim.id, "contradicts", index]
        if other == claim.id:
            problems.add("a claim cannot contradict itself; name another, or remove it", path)
        elif other not in claims.claims:
            hint = suggestion(other, claims.claims, "`claimbench claims`")
            problems.add(f"unknown claim {other!r}{hint}", path)
