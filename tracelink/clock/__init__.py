"""The mathematics of one clock: arrays in, arrays out; `tracelink.clock.clock` gives them their names."""
