"""On how many threads a network of torch is worth running."""

import os

SMALL = 20_000_000
"""Layers of a network with fewer parameters are too small to be shared: with a busy neighbour, threads that wait for
each other in every layer are several times slower than one."""


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_cores() -> int:
    """Those of them that other programs left free during the last minute; at least one."""
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return max(1, min(cores(), round(cores() - busy)))


def threads_for(parameters: int) -> int:
    """Threads for a network of so many parameters: one if its layers are small, else as many as cores are free."""
    return 1 if parameters < SMALL else free_cores()
