"""What collectives and messages cost a job: transfers, late ranks and whom they delay, pairs of ranks, bandwidths."""

__all__ = ["exchanges", "listing", "report"]
