"""`tracelink open`, and `tracelink merge --open`: serve a file to Perfetto's UI once."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import click
from msgspec import Meta, Struct

from tracelink._io.targets import STDOUT
from tracelink._model.errors import UsageError
from tracelink._model.fields import Doc, Row, Unit
from tracelink._model.findings import Finding
from tracelink._model.text import size
from tracelink._open import browser
from tracelink._open.server import (
    HOST,
    LOOPBACK,
    PORT,
    UI,
    AccessRule,
    Limits,
    Step,
    listen,
    origin_of,
    secret_path,
    serve,
    ui_address,
)
from tracelink._open.trace import OpenTrace, memory_findings
from tracelink._open.view import parts_of_address
from tracelink._show.terminal import paragraph
from tracelink.cli.console import Console
from tracelink.cli.main import FINE, NO
from tracelink.cli.merge import SHOWN
from tracelink.cli.options import command

if TYPE_CHECKING:
    from tracelink._api.outputs import Merged


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
    default=Limits().idle,
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
    from tracelink._open.server import reserved_port
    from tracelink._open.trace import OpenTrace

    serving = Serving(origin_of(origin), Limits(idle=timeout), with_browser=not no_browser)
    with OpenTrace.of(file) as trace, reserved_port(port) as listener:
        code = serve_once(console, trace, listener, serving)
    click.get_current_context().exit(code)


# Serving a file, for `open` and for `merge --open`.


BEST_SHOWN = "perfetto"
"""The format that the UI shows best."""

NOT_FETCHED = (
    "If the browser asks, allow the page to access this device; Safari does not support this, so use another browser. "
    "Or open the file yourself: click Open trace file in the UI."
)


class Opened(Row, frozen=True):
    """The document that `tracelink open --json` prints before it serves the file."""

    url: Annotated[str, Doc("The page to open: the UI, with the address of the file that it fetches.")]
    file: str
    bytes: Annotated[int, Unit.BYTES, Meta(ge=1)]
    origin: Annotated[str, Doc("The origin whose pages may fetch the file.")]
    listening: Annotated[
        str,
        Doc("Address and port. The UI requests 127.0.0.1:9001; forward another port to that address."),
    ]
    findings: Sequence[Finding]


class Serving(Struct, frozen=True):
    """How a file is served: to which UI, for how long, and whether a browser is started."""

    origin: str = UI
    limits: Limits = Limits()
    with_browser: bool = True


def serve_once(console: Console, trace: OpenTrace, listener: socket.socket, serving: Serving) -> int:
    """Serves the file until the UI has it; returns the exit code."""
    listen(listener)
    port = listener.getsockname()[1]
    access = AccessRule(secret_path(trace.name), serving.origin)
    page = ui_address(serving.origin, access.path, parts_of_address(trace.view))
    _announce(console, trace, serving, page, port)
    if serving.with_browser and port == PORT and browser.has_display():
        console.info(f"Opening {page}")
        browser.start(page, lambda: console.result(f"No browser could be started. Open {page}"))
    elif not console.json:
        _show_address(console, page, port)
    if serve(listener, trace, access, serving.limits, lambda step, detail: _show_step(console, step, detail)):
        console.info("Loaded. The file is no longer served.")
        return FINE
    console.error(f"{trace.path}: the UI did not fetch it within {serving.limits.idle:g} s. {NOT_FETCHED}")
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
    """Serves the output of a merge; returns the exit code."""
    (output,) = merged.outputs
    with OpenTrace.of(output.path) as trace:
        return serve_once(console, trace, listener, Serving())


def _announce(console: Console, trace: OpenTrace, serving: Serving, page: str, port: int) -> None:
    """Prints what is served, before anything can be fetched."""
    findings, listening = memory_findings(trace), f"{LOOPBACK}:{port}"
    if console.json:
        console.document(
            Opened(
                url=page,
                file=trace.path,
                bytes=trace.size,
                origin=serving.origin,
                listening=listening,
                findings=findings,
            )
        )
    for finding in findings:
        console.info(paragraph(finding))
    console.info(f"Serving {trace.path} ({size(trace.size)}) on {listening}, once, only to {serving.origin}")


def _show_address(console: Console, page: str, port: int) -> None:
    """Prints the address to open, and how to forward the port from another machine."""
    if port != PORT or browser.is_remote():
        console.info(
            f"The UI fetches only from {HOST}. On the machine with your browser, run",
            "",
            f"  {browser.forwarding_command(port)}",
            "",
            "and then open",
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
            request = f"a request from {detail}" if detail else "a request without an origin"
            console.error(f"refused {request}. {advice}.")
