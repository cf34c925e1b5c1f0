"""The mathematics of one clock: arrays in, arrays out; `tracelink.clocks.clock` gives them their names."""
