"""The compiled searches, made before they are needed."""

import time

import numpy as np

from fada.decoding.ctc import CTCBeamDecoder
from fada.decoding.lm import CharNgram


def warm() -> float:
    """Compile the searches, plain and with a language model, or load them if that was done before; seconds it took."""
    started = time.monotonic()
    decoder = CTCBeamDecoder(["", "a"], beam_size=2)
    line = np.log(np.full((3, 2), 0.5, np.float32))
    decoder.decode_batch([line], alignment=True)
    decoder.replace(lm=CharNgram.uniform("a"), lm_weight=0.5).decode_batch([line], alignment=True)
    return time.monotonic() - started
