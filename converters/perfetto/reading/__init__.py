"""Native traces read back: as JSON, and as a profile of each rank."""

__all__: list[str] = []
