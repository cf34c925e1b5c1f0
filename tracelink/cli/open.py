"""Open and merge --open."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tracelink.cli import documents
from tracelink.cli.console import Console
from tracelink.cli.main import FINE, NO
from tracelink.cli.options import command
from tracelink.cli.summary import STDOUT
from tracelink.cli.terminal import paragraph
from tracelink.errors import UsageError, printable
from tracelink.open import startup_view as browser
from tracelink.open.offer import Kind, Offer, too_heavy
from tracelink.open.server import (
    HOST,
    LOOPBACK,
    PORT,
    UI,
    Gate,
    Limits,
    Step,
    listen,
    origin_of,
    page_for,
    path_for,
    serve,
)
from tracelink.open.startup_view import startup_view
from tracelink.text import size

if TYPE_CHECKING:
    from tracelink.api import Merged


# `tracelink open`.


@command(
    "tracelink open merged.json.gz",
    "tracelink open merged.json --no-browser",
    "tracelink open merged.json --origin https://perfetto.example.org",
)
@click.argument("file", type=click.Path())
@click.option("--no-browser", is_flag=True, help="Print the address, and start no browser.")
@click.option(
    "--origin",
    default=UI,
    show_default=True,
    metavar="URL",
    help="The UI that gets the file, where it is not the public one.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=PORT,
    show_default=True,
    help=f"Where to listen. The UI fetches from 127.0.0.1:{PORT} alone: another port is for those who forward it "
    f"there, such as ssh -L {PORT}:127.0.0.1:9002.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1, max=86400),
    default=Limits().unasked,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the UI.",
)
def open(console: Console, file: str, no_browser: bool, origin: str, port: int, timeout: float) -> None:  # noqa: A001
    """Show a trace in Perfetto's UI.

    FILE is what `tracelink merge` writes, or another trace that the UI shows: .json, .json.gz, .pftrace,
    .perfetto-trace, or a .tar with a manifest. It is served to the UI in your browser on this machine alone, once,
    and the command ends when it is loaded. The file does not leave the machine.
    """
    from tracelink.open.offer import Offer
    from tracelink.open.server import reserved
    from tracelink.open.startup_view import StartupView

    ways = Ways(origin_of(origin), Limits(unasked=timeout), with_browser=not no_browser)
    with Offer.of(file) as offer, reserved(port) as door:
        code = hand_over(console, offer, door, StartupView().query(0), ways)
    click.get_current_context().exit(code)


# Serving one file to Perfetto's UI, and what is said meanwhile: for `open` and for `merge --open`.


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


def hand_over(
    console: Console, offer: Offer, door: socket.socket, view: Mapping[str, str], ways: Ways
) -> int:
    """Serves the file until the UI has it; returns the exit code."""
    listen(door)
    port = door.getsockname()[1]
    gate = Gate(path_for(offer.name), ways.origin)
    page = page_for(ways.origin, gate.path, view)
    _announce(console, offer, ways, page, port)
    if ways.with_browser and port == PORT and browser.is_here():
        console.info(f"opening {page}")
        browser.start(page, lambda: console.result(f"no browser could be started; open {page}"))
    elif not console.json:
        _leave_to_user(console, page, port)
    if serve(door, offer, gate, ways.limits, lambda step, detail: _tell(console, step, detail)):
        console.info("loaded; nothing is served any more")
        return FINE
    console.error(f"{offer.path}: nobody fetched it for {ways.limits.unasked:g} seconds. {UNASKED} {BY_HAND}")
    return NO


def check_openable(output: str | None, to: str | None) -> None:
    """Raises where what is to be written is nothing that the UI can fetch."""
    if output == STDOUT:
        raise UsageError("--open shows a file, and --output - writes none", advice="Give another --output.")
    if to and not to.startswith(SHOWN):
        raise UsageError(f"Perfetto's UI does not show {to}", advice="Leave out --open or --to.")


def open_merged(console: Console, merged: Merged, door: socket.socket) -> int:
    """Hands over what a merge wrote, with a look at those who made others wait; returns the exit code."""
    (output,) = merged.outputs
    with Offer.of(output.path) as offer:
        zero = 0 if offer.kind is Kind.NATIVE else merged.job.base_ns or 0
        return hand_over(console, offer, door, startup_view(merged.job).query(zero), Ways())


def _announce(console: Console, offer: Offer, ways: Ways, page: str, port: int) -> None:
    """Says what is served; to a program as JSON, before anything can be fetched."""
    findings, listening = too_heavy(offer), f"{LOOPBACK}:{port}"
    if console.json:
        console.document(
            documents.Open(
                url=page,
                file=offer.path,
                bytes=offer.size,
                origin=ways.origin,
                listening=listening,
                findings=documents.findings_of(findings),
            )
        )
    for finding in findings:
        console.info(paragraph(finding))
    console.info(
        f"serving {printable(offer.path)} ({size(offer.size)}) on {listening}, once, to {ways.origin} alone"
    )


def _leave_to_user(console: Console, page: str, port: int) -> None:
    """Says what to open, and how a browser elsewhere comes here."""
    if port != PORT or browser.is_remote():
        console.info(
            f"The UI fetches from {HOST} and nowhere else. Where your browser is, run\n\n"
            f"  {browser.forwarding(port)}\n\nand open there"
        )
    else:
        console.info("open this address in a browser of this machine:")
    console.result(page)


def _tell(console: Console, step: Step, detail: str) -> None:
    match step:
        case Step.FETCHED:
            console.info("the browser fetches it")
        case Step.BROKEN_OFF:
            console.info("the browser broke off; it can fetch it again: reload the page")
        case Step.OTHER_ORIGIN:
            if detail:
                advice = "to hand over to a UI of your own, name it with --origin"
            else:
                advice = "open the page that is named above, not what it fetches"
            console.error(f"refused {printable(detail) or 'a request that names no page'}: {advice}.")
