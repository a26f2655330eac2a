"""Ray clusters whose machines are processes of this one, and the processes that they start."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fada.jobs.cluster import Cluster

FAIR = {"RAY_worker_niceness": "0", "RAY_agent_register_timeout_ms": "600000"}
"""Ray's workers make way for everything else on the machine, which may be another test that waits for nothing; and Ray
gives up if a busy machine needs half a minute to start it."""


def below(process: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(stat.parent.name))
    found, todo = list[int](), [process]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def called(processes: list[int], name: str) -> list[int]:
    """Those of the processes whose command line begins so."""
    found = []
    for process in processes:
        with suppress(OSError):
            if Path(f"/proc/{process}/cmdline").read_bytes().startswith(name.encode()):
                found.append(process)
    return found


def end(process: "subprocess.Popen[Any]") -> None:
    """Kill a process that was started here, with all that it started."""
    for one in [*below(process.pid), process.pid]:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    process.wait()


@dataclass(frozen=True)
class Machines:
    """A cluster of two machines with a CPU each, both on this one."""

    address: str
    token: Path
    head: "subprocess.Popen[Any]"

    @property
    def options(self) -> list[str]:
        return ["--ray-address", self.address, "--ray-token", str(self.token)]

    def cluster(self, workers: int = 2) -> Cluster:
        return Cluster(self.address, workers, token=self.token)


def started(token: Path, *options: str) -> "subprocess.Popen[Any]":
    """A machine of a cluster."""
    environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"} | FAIR
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *options, "--disable-usage-stats"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, env={**os.environ, **environment}, cwd="/", **quiet)


@contextmanager
def running_machines(token: Path) -> Iterator[Machines]:
    """A cluster; started elsewhere than in the folder of the tests, as clusters are."""
    token.write_text(secrets.token_hex(32))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    head = started(token, "--head", "--port", str(port), "--num-cpus", "2", "--include-dashboard", "false")
    while True:  # until it answers; the time limit of the test ends it otherwise
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                break
        assert head.poll() is None
        time.sleep(0.2)
    try:
        yield Machines(f"127.0.0.1:{port}", token, head)
    finally:
        end(head)
