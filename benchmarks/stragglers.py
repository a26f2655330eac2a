"""When do 1,000 machines finish, if some are slow and some die? A simulation of events, seeded.

    python benchmarks/stragglers.py [--workers 1000] [--lines 10000000] [--seeds 5]

Every worker reads at a speed of its own (lognormal; one in fifty is five times slower) and dies now and then
(exponential; a new one takes its place after a pause). Three ways of dividing the work are compared, each with and
without executing again, on an idle worker, what has been running longest:

* one shard a worker, as a job array of as many tasks as machines;
* sixteen shards a worker, taken one after another, as a job array of many tasks;
* batches handed out one by one, as on a Ray cluster.

A shard that dies goes on from its journal; a batch that dies is read again. Times are relative to the ideal: all lines
over the speeds of all workers, nobody dies, nobody waits.
"""

import heapq
import statistics
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import typer

LINES_PER_SECOND = 20.0
SLOW_SHARE, SLOWER = 0.02, 5.0
PAUSE = 120.0
"""Seconds until a dead worker is replaced."""


@dataclass
class Piece:
    """Work that is handed out as one: `left` lines to read."""

    left: float
    done: bool = False
    copies: int = 0


@dataclass
class Simulation:
    """The workers and what they do.

    Attributes:
        speeds: lines per second of each worker.
        life: mean seconds until a worker dies.
        journal: whether a piece goes on where a dead worker stopped.
        again: whether idle workers repeat what runs longest.
    """

    speeds: np.ndarray
    pieces: list[Piece]
    life: float
    journal: bool
    again: bool
    rng: np.random.Generator
    now: float = 0.0
    running: dict[int, tuple[Piece, float, int]] = field(default_factory=dict)
    turn: int = 0

    def finish(self) -> float:
        """Seconds until every piece is done."""
        waiting = deque(self.pieces)
        idle: set[int] = set()
        events: list[tuple[float, int, str, int]] = []
        left = len(self.pieces)

        def start(worker: int) -> None:
            piece = None
            while waiting and piece is None:
                first = waiting.popleft()
                piece = None if first.done else first
            if piece is None and self.again:
                alone = [(begun, id(one), one) for one, begun, _ in self.running.values() if one.copies < 2]
                piece = min((one for one in alone if not one[2].done), default=(0, 0, None))[2]
            if piece is None:
                idle.add(worker)
                return
            piece.copies += 1
            self.turn += 1
            self.running[worker] = piece, self.now, self.turn
            needed = piece.left / self.speeds[worker]
            death = self.rng.exponential(self.life)
            event = (self.now + needed, "done") if needed < death else (self.now + death, "dead")
            heapq.heappush(events, (event[0], self.turn, event[1], worker))

        for worker in range(len(self.speeds)):
            start(worker)
        while left:
            self.now, turn, what, worker = heapq.heappop(events)
            if what == "back":
                start(worker)
                continue
            if worker not in self.running or self.running[worker][2] != turn:
                continue
            piece, begun, _ = self.running.pop(worker)
            piece.copies -= 1
            if what == "done":
                if not piece.done:
                    piece.done = True
                    left -= 1
                    for other in [w for w, (one, _, _) in self.running.items() if one is piece]:
                        del self.running[other]
                        start(other)
                start(worker)
                continue
            if not piece.done and piece.copies == 0:
                if self.journal:
                    piece.left -= (self.now - begun) * self.speeds[worker]
                waiting.appendleft(piece)
                if idle:
                    start(idle.pop())
            heapq.heappush(events, (self.now + PAUSE, -self.turn, "back", worker))
        return self.now


def main(
    workers: int = 1000, lines: int = 10_000_000, batch: int = 256, life_hours: float = 24.0, seeds: int = 5
) -> None:
    """Print the table."""
    ways = {"one shard a worker": workers, "16 shards a worker": 16 * workers, "batches": None}
    print(f"{workers} workers, {lines:,} lines, a worker dies every {life_hours:g} hours on average")
    print("| work is divided into | nothing twice | the slowest executed again |\n|---|---:|---:|")
    for name, shards in ways.items():
        count = shards or lines // batch
        cells = []
        for again in (False, True):
            ratios = []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                speeds = LINES_PER_SECOND * rng.lognormal(-0.02, 0.2, workers)
                speeds[rng.random(workers) < SLOW_SHARE] /= SLOWER
                sizes = rng.multinomial(lines, np.full(count, 1 / count))
                pieces = [Piece(float(size)) for size in sizes]
                simulation = Simulation(speeds, pieces, life_hours * 3600, bool(shards), again, rng)
                ratios.append(simulation.finish() / (lines / speeds.sum()))
            cells.append(f"{statistics.mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    typer.run(main)
