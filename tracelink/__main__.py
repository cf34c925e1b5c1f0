"""Python -m tracelink."""

from __future__ import annotations

from tracelink.cli import main

main()
