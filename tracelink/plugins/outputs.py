"""The files that writers and conversions make."""

from __future__ import annotations

from typing import Annotated

from tracelink._model.fields import PATH, Bytes, Count, Doc, RankNumber, Row, Shown, Text
from tracelink._model.findings import Finding


class Output(Row, frozen=True):
    """A file that was written."""

    path: Annotated[Text, Shown(longest=PATH)]
    format: Text
    rank: Annotated[RankNumber | None, Doc("Null if the file holds several ranks.")]
    bytes: Annotated[Bytes, Shown("size")]
    events: Count
    findings: Annotated[tuple[Finding, ...], Doc("What could not be written as it is.")] = ()
