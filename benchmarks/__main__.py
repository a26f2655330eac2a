"""Run the benchmarks that need no data of their own: ``python -m benchmarks [NAME...]``."""

import subprocess
import sys

NAMES = ("counting", "synthetic", "training", "ctc", "generate", "evaluation", "adapt")

for name in sys.argv[1:] or NAMES:
    print(f"== benchmarks.{name}", flush=True)
    subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=True)
