"""What readers import: loaded once, before the processes that read part from it, so that no case pays for it."""

import numba  # noqa: F401
import pyarrow.dataset  # noqa: F401

import fada.training.train
import tests.fuzz.readers
import tests.support.model_folders  # noqa: F401
