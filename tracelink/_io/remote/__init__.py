"""Objects in remote stores: found, listed, read and written. Libraries of stores are imported when needed."""

__all__ = ["addresses", "objects", "stores"]
