"""The real order of one rank's events: one file for each reason why one had to wait for another."""
