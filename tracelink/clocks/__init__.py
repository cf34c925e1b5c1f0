"""The mathematics of one clock: arrays in, arrays out; `tracelink.clock` gives them their names."""
