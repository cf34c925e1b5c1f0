"""The program: `tracelink`, and `python -m tracelink`."""

from __future__ import annotations

import signal


def run() -> None:
    """Runs the command line; an interrupt while modules are imported ends the program without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tracelink.cli import main

    main(prog_name="tracelink")


if __name__ == "__main__":
    run()
