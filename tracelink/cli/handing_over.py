"""Serving one file to Perfetto's UI, and what is said meanwhile: for `open` and for `merge --open`."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracelink.cli.failures import FINE, NO
from tracelink.cli.finding_document import findings_document
from tracelink.cli.found import paragraph
from tracelink.cli.page import size
from tracelink.cli.summary import STDOUT
from tracelink.cli.voice import Voice, printable
from tracelink.errors import UsageError
from tracelink.handover import browser
from tracelink.handover.address import HOST, LOOPBACK, PORT, UI, page_for, path_for
from tracelink.handover.gate import Gate
from tracelink.handover.offer import Offer
from tracelink.handover.port import listen
from tracelink.handover.server import Limits, Step, serve
from tracelink.handover.shown import Kind
from tracelink.handover.startup_view import startup_view
from tracelink.handover.weight import too_heavy

if TYPE_CHECKING:
    from tracelink.api import Merged

SHOWN = "perfetto"
"""How the names of formats begin that the UI shows."""

BEST_SHOWN = "perfetto"
"""The format of which it shows most."""

BY_HAND = "Or choose it there by hand: Open trace file."
UNASKED = (
    "Allow the page to reach this device if the browser asks for it, and take another browser than Safari, which "
    "lets no page do that."
)


@dataclass(frozen=True, slots=True)
class Ways:
    """How a file is handed over."""

    origin: str = UI
    limits: Limits = Limits()  # noqa: RUF009  it is frozen
    with_browser: bool = True


def hand_over(voice: Voice, offer: Offer, door: socket.socket, view: Mapping[str, str], ways: Ways) -> int:
    """Serves the file until the UI has it; returns the exit code."""
    listen(door)
    port = door.getsockname()[1]
    gate = Gate(path_for(offer.name), ways.origin)
    page = page_for(ways.origin, gate.path, view)
    _announce(voice, offer, ways, page, port)
    if ways.with_browser and port == PORT and browser.is_here():
        voice.say(f"opening {page}")
        browser.start(page, lambda: voice.conclude(f"no browser could be started; open {page}"))
    elif not voice.json:
        _leave_to_user(voice, page, port)
    if serve(door, offer, gate, ways.limits, lambda step, detail: _tell(voice, step, detail)):
        voice.say("loaded; nothing is served any more")
        return FINE
    voice.complain(
        f"{offer.path}: nobody fetched it for {ways.limits.unasked:g} seconds. {UNASKED} {BY_HAND}"
    )
    return NO


def check_openable(output: str | None, to: str | None) -> None:
    """Raises where what is to be written is nothing that the UI can fetch."""
    if output == STDOUT:
        raise UsageError("--open shows a file, and --output - writes none", advice="Give another --output.")
    if to and not to.startswith(SHOWN):
        raise UsageError(f"Perfetto's UI does not show {to}", advice="Leave out --open or --to.")


def open_merged(voice: Voice, merged: Merged, door: socket.socket) -> int:
    """Hands over what a merge wrote, with a look at those who made others wait; returns the exit code."""
    (output,) = merged.outputs
    with Offer.of(output.path) as offer:
        zero = 0 if offer.kind is Kind.NATIVE else merged.job.base_ns or 0
        return hand_over(voice, offer, door, startup_view(merged.job).query(zero), Ways())


def _announce(voice: Voice, offer: Offer, ways: Ways, page: str, port: int) -> None:
    """Says what is served; to a program as JSON, before anything can be fetched."""
    findings, listening = too_heavy(offer), f"{LOOPBACK}:{port}"
    if voice.json:
        voice.document(
            {
                "url": page,
                "file": offer.path,
                "bytes": offer.size,
                "origin": ways.origin,
                "listening": listening,
                "findings": findings_document(findings),
            }
        )
    for finding in findings:
        voice.say(paragraph(finding))
    voice.say(
        f"serving {printable(offer.path)} ({size(offer.size)}) on {listening}, once, to {ways.origin} alone"
    )


def _leave_to_user(voice: Voice, page: str, port: int) -> None:
    """Says what to open, and how a browser elsewhere comes here."""
    if port != PORT or browser.is_remote():
        voice.say(
            f"The UI fetches from {HOST} and nowhere else. Where your browser is, run\n\n"
            f"  {browser.forwarding(port)}\n\nand open there"
        )
    else:
        voice.say("open this address in a browser of this machine:")
    voice.conclude(page)


def _tell(voice: Voice, step: Step, detail: str) -> None:
    match step:
        case Step.FETCHED:
            voice.say("the browser fetches it")
        case Step.BROKEN_OFF:
            voice.say("the browser broke off; it can fetch it again: reload the page")
        case Step.OTHER_ORIGIN:
            if detail:
                advice = "to hand over to a UI of your own, name it with --origin"
            else:
                advice = "open the page that is named above, not what it fetches"
            voice.complain(f"refused {printable(detail) or 'a request that names no page'}: {advice}.")
