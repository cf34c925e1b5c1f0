"""The timeline that both formats write: layout, times, flows, groups; no text of any format."""
