"""`python -m tracelink`: the command line."""

from tracelink.cli import main

main()
