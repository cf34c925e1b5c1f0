"""Native traces that tracelink wrote, read back."""
