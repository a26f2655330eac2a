"""Disks that are full, for real: the system refuses to let a file grow beyond a limit, as it does on a full one."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

resource = pytest.importorskip("resource")


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Within the block, no file of this process, or of those it starts, grows beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
