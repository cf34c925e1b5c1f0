"""What PyTorch defines, whichever file contains it: arguments of profiled events, nodes of execution traces.

Formats do not know each other; what several of them contain is here.
"""
