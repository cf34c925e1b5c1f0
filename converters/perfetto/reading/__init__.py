"""Native traces read back: as JSON, and as a profile of each rank."""
