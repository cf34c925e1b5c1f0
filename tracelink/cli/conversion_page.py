"""What `convert` says of a file that was rewritten as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelink.cli.documents import output_document
from tracelink.cli.failures import FINE, NO
from tracelink.cli.finding_document import findings_document
from tracelink.cli.found import complain_of_errors, show_findings
from tracelink.cli.page import Page
from tracelink.cli.summary import show_outputs
from tracelink.cli.voice import Voice
from tracelink.findings import Severity

if TYPE_CHECKING:
    from tracelink.converting import Converted


def report_conversion(voice: Voice, converted: Converted, *, aside: bool) -> int:
    """Says what was written, as the user wants to hear it; returns the exit code."""
    if voice.json:
        outputs = [output_document(output) for output in converted.outputs]
        voice.document({"outputs": outputs, "ranks": [], "findings": findings_document(converted.findings)})
    elif voice.quiet:
        complain_of_errors(voice, converted.findings)
    else:
        page = Page(aside=aside)
        show_findings(page, converted.findings, verbose=voice.verbose)
        show_outputs(page, converted.outputs)
        voice.say(page.text, aside=aside)
    wrong = any(finding.severity is Severity.ERROR for finding in converted.findings)
    return NO if wrong else FINE
