"""`tracelink open`, and `tracelink merge --open`: serve a file to Perfetto's UI once."""

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
    "tracelink merge samples/gpu_pair -o merged.json     and then:",
    "tracelink open merged.json",
    "tracelink open merged.json --no-browser",
    "tracelink open merged.json --origin https://perfetto.example.org",
)
@click.argument("file", type=click.Path())
@click.option("--no-browser", is_flag=True, help="Print the address; do not start a browser.")
@click.option(
    "--origin",
    default=UI,
    show_default=True,
    metavar="URL",
    help="Address of the UI, if it is not the public one.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=PORT,
    show_default=True,
    help=f"Port to listen on. The UI fetches only from 127.0.0.1:{PORT}: if you choose another port, forward it, for "
    f"example with ssh -L {PORT}:127.0.0.1:9002.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1, max=86400),
    default=Limits().unasked,
    show_default=True,
    metavar="SECONDS",
    help="Time to wait for the UI.",
)
def open(console: Console, file: str, no_browser: bool, origin: str, port: int, timeout: float) -> None:  # noqa: A001
    """Open a trace in Perfetto's UI.

    FILE is an output of `tracelink merge`, or another trace that the UI can open: .json, .json.gz, .pftrace,
    .perfetto-trace, or a .tar with a manifest.

    The file is served once, only to the UI in a browser on this machine, and the command exits when it is loaded. The
    file does not leave the machine.
    """
    from tracelink.open.offer import Offer
    from tracelink.open.server import reserved
    from tracelink.open.startup_view import StartupView

    serving = Serving(origin_of(origin), Limits(unasked=timeout), with_browser=not no_browser)
    with Offer.of(file) as offer, reserved(port) as listener:
        code = serve_once(console, offer, listener, StartupView().query(0), serving)
    click.get_current_context().exit(code)


# Serving a file, for `open` and for `merge --open`.


SHOWN = "perfetto"
"""Prefix of the formats that the UI can open."""

BEST_SHOWN = "perfetto"
"""The format that the UI shows best."""

NOT_FETCHED = (
    "If the browser asks, allow the page to access this device; Safari does not support this, so use another browser. "
    "Or open the file yourself: click Open trace file in the UI."
)


@dataclass(frozen=True, slots=True)
class Serving:
    """How a file is served: to which UI, for how long, and whether a browser is started."""

    origin: str = UI
    limits: Limits = Limits()  # noqa: RUF009  it is frozen
    with_browser: bool = True


def serve_once(
    console: Console, offer: Offer, listener: socket.socket, view: Mapping[str, str], serving: Serving
) -> int:
    """Serves the file until the UI has it; returns the exit code."""
    listen(listener)
    port = listener.getsockname()[1]
    gate = Gate(path_for(offer.name), serving.origin)
    page = page_for(serving.origin, gate.path, view)
    _announce(console, offer, serving, page, port)
    if serving.with_browser and port == PORT and browser.is_here():
        console.info(f"Opening {page}")
        browser.start(page, lambda: console.result(f"No browser could be started. Open {page}"))
    elif not console.json:
        _show_address(console, page, port)
    if serve(listener, offer, gate, serving.limits, lambda step, detail: _show_step(console, step, detail)):
        console.info("Loaded. The file is no longer served.")
        return FINE
    console.error(
        f"{offer.path}: the UI did not fetch it within {serving.limits.unasked:g} seconds. {NOT_FETCHED}"
    )
    return NO


def check_openable(output: str | None, to: str | None) -> None:
    """Raises UsageError if the UI cannot open the output."""
    if output == STDOUT:
        raise UsageError(
            "--open needs an output file, but --output is -", advice="Name a file with --output."
        )
    if to and not to.startswith(SHOWN):
        raise UsageError(f"Perfetto's UI cannot open {to}", advice="Leave out --open or --to.")


def open_merged(console: Console, merged: Merged, listener: socket.socket) -> int:
    """Serves the output of a merge, with the slowest ranks in view; returns the exit code."""
    (output,) = merged.outputs
    with Offer.of(output.path) as offer:
        zero = 0 if offer.kind is Kind.NATIVE else merged.job.base_ns or 0
        return serve_once(console, offer, listener, startup_view(merged.job).query(zero), Serving())


def _announce(console: Console, offer: Offer, serving: Serving, page: str, port: int) -> None:
    """Prints what is served, before anything can be fetched."""
    findings, listening = too_heavy(offer), f"{LOOPBACK}:{port}"
    if console.json:
        console.document(
            documents.Open(
                url=page,
                file=offer.path,
                bytes=offer.size,
                origin=serving.origin,
                listening=listening,
                findings=documents.findings_of(findings),
            )
        )
    for finding in findings:
        console.info(paragraph(finding))
    console.info(
        f"Serving {printable(offer.path)} ({size(offer.size)}) on {listening}, once, only to {serving.origin}"
    )


def _show_address(console: Console, page: str, port: int) -> None:
    """Prints the address to open, and how to forward the port from another machine."""
    if port != PORT or browser.is_remote():
        console.info(
            f"The UI fetches only from {HOST}. On the machine with your browser, run\n\n"
            f"  {browser.forwarding(port)}\n\nand then open"
        )
    else:
        console.info("Open this address in a browser on this machine:")
    console.result(page)


def _show_step(console: Console, step: Step, detail: str) -> None:
    match step:
        case Step.FETCHED:
            console.info("The browser is fetching the file.")
        case Step.BROKEN_OFF:
            console.info("The browser stopped the download. Reload the page to fetch the file again.")
        case Step.OTHER_ORIGIN:
            if detail:
                advice = "To use your own UI, give its address with --origin"
            else:
                advice = "Open the address of the page above, not that of the file"
            request = f"a request from {printable(detail)}" if detail else "a request without an origin"
            console.error(f"refused {request}. {advice}.")
