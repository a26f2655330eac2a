"""What readers import: loaded once, before the processes that read part from it, so that no case pays for it."""
# ruff: noqa: F401

import numba
import pyarrow.dataset

import fada.training.train
import tests.fuzz.readers
import tests.support.model_folders
