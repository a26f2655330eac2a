"""Work for a cluster that dies, or refuses."""

import os
import random
import signal
import time
from pathlib import Path

from fada.errors import FadaError


def dying(place: Path) -> str:
    """Counts in its folder how often it was begun; dies the first time, at some moment, except in the folder 0."""
    begun = place / "begun"
    begun.write_text((begun.read_text() if begun.exists() else "") + "x")
    if len(begun.read_text()) == 1 and place.name != "0":
        time.sleep(random.random() / 5)
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{place.name} {begun.read_text()}"


def refusing(number: int) -> int:
    """Refuses 1."""
    if number == 1:
        raise FadaError("not this one.")
    return number
