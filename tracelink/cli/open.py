"""`tracelink open`."""

from __future__ import annotations

import click

from tracelink.cli.options import command
from tracelink.cli.voice import Voice
from tracelink.handover.address import PORT, UI, origin_of
from tracelink.handover.server import Limits


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
def open(voice: Voice, file: str, no_browser: bool, origin: str, port: int, timeout: float) -> None:  # noqa: A001
    """Show a trace in Perfetto's UI.

    FILE is what `tracelink merge` writes, or another trace that the UI shows: .json, .json.gz, .pftrace,
    .perfetto-trace, or a .tar with a manifest. It is served to the UI in your browser on this machine alone, once,
    and the command ends when it is loaded. The file does not leave the machine.
    """
    from tracelink.cli.handing_over import Ways, hand_over
    from tracelink.handover.offer import Offer
    from tracelink.handover.port import reserved
    from tracelink.handover.startup_view import StartupView

    ways = Ways(origin_of(origin), Limits(unasked=timeout), with_browser=not no_browser)
    with Offer.of(file) as offer, reserved(port) as door:
        code = hand_over(voice, offer, door, StartupView().query(0), ways)
    click.get_current_context().exit(code)
