"""Settings of all tests: offline, one thread per process, the same examples in every run.

``FADA_EXPLORE=1 make test`` lets hypothesis look for new examples.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests themselves run on all cores
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("explore" if os.environ.get("FADA_EXPLORE") else "repeatable")
