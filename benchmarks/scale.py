"""What dividing the work costs: plain multiprocessing, Ray, shards and one process on the same synthetic lines.

    python -m benchmarks.scale [--lines 20000] [--words 2] [--few 2000] [--many 200000] [--kinds ray one merge]
    python -m benchmarks.scale --source LINES --model medieval --knowledge auto --workers --shards 0 --many 0

Every way is a process of its own. Its CPU time is that of all processes it started, its memory that of the process that
reads the source and keeps the journal. Ratios are of one run; CPU time hardly depends on what else the machine does,
elapsed time does. With `--side-by-side` what is compared runs at the same time, so that all have the same neighbours.
What is printed is what `docs/scale.md` shows.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

WORDS = ("li", "rois", "dist", "que", "la", "reine", "estoit", "en", "sa", "chambre", "et", "ses", "chevaliers")
TICK = os.sysconf("SC_CLK_TCK")
BATCH = 8
SIDE_BY_SIDE = False


def images(count: int, words: int) -> list[bytes]:
    """Lines of print, as PNG files."""
    from PIL import Image, ImageDraw, ImageFont

    from fada.data.images import png

    font, rng = ImageFont.load_default(size=30), np.random.default_rng(0)
    made = []
    for _ in range(count):
        text = " ".join(rng.choice(WORDS, words))
        image = Image.new("L", (int(font.getlength(text)) + 20, 48), 230)
        ImageDraw.Draw(image).text((10, 6), text, fill=40, font=font)
        made.append(png(image))
    return made


def write_lines(path: Path, count: int, words: int) -> None:
    """A parquet file of `count` lines, a few hundred different ones."""
    from fada.data.formats.parquet import write_parquet
    from fada.data.line import Line, LineSet, Log

    drawn = images(min(count, 200), words)

    def read(log: Log, media: bool) -> Iterator[Line]:
        for number in range(count):
            yield Line(id=f"page{number // 30:06}/line{number % 30:02}", text="", image=drawn[number % len(drawn)])

    write_parquet(LineSet(read, "synthetic", length=count), path)


# --- the ways, each in a process of its own ---------------------------------------------------------------------------

_reader: Any = None


def _load(model: str) -> None:
    global _reader
    from fada.decoding.knowledge import Knowledge
    from fada.decoding.weights import Weights
    from fada.jobs.reader import Reader
    from fada.models.registry import load_recognizer

    recognizer = load_recognizer(model)
    recognizer.use_threads(1)
    _reader = Reader(recognizer, Weights(), Knowledge(), None, {})


def _rows(batch: list[Any]) -> list[Any]:
    return list(_reader.rows(batch))


def plain(model: str, lines: Path, out: Path, workers: int) -> None:
    """What anybody would write: a pool of processes, results gathered and written at the end; nothing is resumable."""
    from fada.data.source import read_lines
    from fada.jobs.batches import batches

    todo = batches(read_lines(lines, untranscribed=True), lambda line: False, BATCH, "reading")
    with multiprocessing.get_context("spawn").Pool(workers, _load, (model,)) as pool:
        found = [row for rows in pool.imap(_rows, todo) for row in rows]
    out.write_text("".join(f"{row['id']}\t{row.get('text', '')}\n" for row in found), encoding="utf-8")


def fada(model: str, lines: Path, out: Path, *options: str) -> None:
    """The command line, in this process."""
    from fada.cli import app

    known = os.environ.get("FADA_KNOWLEDGE", "none")
    command = ["transcribe", model, str(lines), "--out", str(out), "--knowledge", known, *options]
    batch = os.environ.get("FADA_BATCH", str(BATCH))
    app([*command, "--threads", "1", "--batch-size", batch], standalone_mode=False)


def shards(model: str, lines: Path, out: Path, count: int) -> None:
    """One after the other, and joined."""
    from fada.cli import app

    for number in range(1, count + 1):
        fada(model, lines, out, "--shard", f"{number}/{count}")
    parts = [str(path) for path in out.parent.glob(f"{out.stem}.*-of-{count:03}.tsv")]
    app(["merge", *parts, "--out", str(out)], standalone_mode=False)


def joined(lines: int, out: Path, count: int) -> None:
    """Parts of a table of so many lines, made by another process, and joined."""
    from fada.jobs.merge import merge

    maker = multiprocessing.get_context("spawn").Process(target=write_parts, args=(lines, out, count))
    maker.start()
    maker.join()
    merge(sorted(out.parent.glob(f"{out.stem}.*-of-{count:03}{out.suffix}")), out)


def write_parts(lines: int, out: Path, count: int) -> None:
    """A table of so many lines in parts, as the shards of a job leave them."""
    from fada.data.formats.parquet import write_rows
    from fada.jobs.shards import PartNote, Shard

    owners = np.random.default_rng(0).integers(count, size=lines)
    for number in range(count):
        shard, places = Shard(number + 1, count), np.flatnonzero(owners == number).tolist()
        part = shard.part(out)
        rows = ({"id": str(place), "text": " ".join(WORDS), "confidence": place / lines} for place in places)
        if out.suffix == ".parquet":
            write_rows(rows, part, {})
        else:
            part.write_text(
                "id\ttext\tconfidence\n" + "".join("\t".join(map(str, row.values())) + "\n" for row in rows)
            )
        note = PartNote(
            shard=shard.number, of=count, job="", total=lines, count=len(places), positions=places, left_out=[]
        )
        note.write(part)


# --- measuring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """CPU seconds of all processes and of the one that was started, elapsed seconds, its MB, bytes of its journal."""

    cpu: float
    driver: float
    elapsed: float
    memory: float
    journal: int


def _cpu_below(process: int) -> dict[int, float]:
    """CPU seconds of a process and of those below it."""
    parents: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):
            fields = stat.read_text().rpartition(")")[2].split()
            one = int(stat.parent.name)
            parents.setdefault(int(fields[1]), []).append(one)
            used[one] = (int(fields[11]) + int(fields[12])) / TICK
    found, todo = {}, [process]
    while todo:
        one = todo.pop()
        found[one] = used.get(one, 0.0)
        todo += parents.get(one, [])
    return found


def measured(way: object, *arguments: object) -> Cost:
    """Run a way in a process of its own, and look at what it uses while it runs."""
    command = [sys.executable, "-m", "benchmarks.scale", "--way", *map(str, (way, *arguments))]
    started, seen, journal = time.monotonic(), dict[int, float](), 0
    out = Path(str(arguments[2]))
    fair = {**os.environ, "RAY_worker_niceness": "0"}  # Ray's workers would make way for everything else
    with subprocess.Popen(command, env=fair, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        while job.poll() is None:
            seen |= _cpu_below(job.pid)
            with suppress(OSError):
                journal = max(journal, out.with_name(f".{out.name}.journal").stat().st_size)
            time.sleep(0.25)
        told, problem = job.communicate()
    if job.returncode:
        raise SystemExit(problem)
    last = json.loads(told.splitlines()[-1])
    seen[job.pid] = last["cpu"]
    return Cost(sum(seen.values()), last["cpu"], time.monotonic() - started, last["memory"], journal)


def measured_together(ways: Sequence[tuple[object, ...]]) -> Iterator[Cost]:
    """Several, one after the other or at the same time."""
    with ThreadPoolExecutor(len(ways) if SIDE_BY_SIDE else 1) as pool:
        yield from pool.map(lambda way: measured(*way), ways)


def run_way(way: str, arguments: list[str]) -> None:
    """One of the ways, as `measured` starts it."""
    model, lines, out, *more = arguments
    if way == "merge":
        joined(int(lines), Path(out), int(more[0]))
    elif way == "plain":
        plain(model, Path(lines), Path(out), int(more[0]))
    elif way == "ray":
        fada(model, Path(lines), Path(out), "--ray", "--jobs", more[0])
    elif way == "shards":
        shards(model, Path(lines), Path(out), int(more[0]))
    elif way == "one":
        fada(model, Path(lines), Path(out))
    peak = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmHWM"))
    print(json.dumps({"cpu": time.process_time(), "memory": int(peak.split()[1]) / 1024}))


def tell_costs(given: argparse.Namespace, place: Path) -> None:
    """CPU time of every way, and whether they write the same."""
    source = Path(given.source or place / "lines.parquet")
    if given.source:
        from fada.data.source import read_lines

        given.lines = sum(1 for _ in read_lines(source, untranscribed=True).without_media())
    else:
        write_lines(source, given.lines, given.words)
    what = "lines" if given.source else f"synthetic lines of {given.words} words"
    print(f"{given.lines:,} {what}, the model `{given.model}`, {_this_run()}:\n")
    print("| way | CPU ms a line | of it the first process | against one process | elapsed |")
    print("|---|---:|---:|---:|---:|")
    kinds: dict[str, tuple[object, ...]] = {"one process": ("one",)}
    for count in given.workers:
        kinds[_pool(count)] = ("plain", count)
        kinds[_actors(count)] = ("ray", count)
    if given.shards:
        kinds[f"{given.shards} shards, one after the other, and `fada merge`"] = ("shards", given.shards)
    outs = [place / str(number) / "out.tsv" for number in range(len(kinds))]
    for out in outs:
        out.parent.mkdir()
    ways = [(way, given.model, source, out, *more) for out, (way, *more) in zip(outs, kinds.values(), strict=True)]
    costs: dict[str, Cost] = {}
    for name, cost in zip(kinds, measured_together(ways), strict=True):
        costs[name] = cost
        each, first = (1000 * seconds / given.lines for seconds in (cost.cpu, cost.driver))
        ratio = cost.cpu / costs["one process"].cpu
        print(f"| {name} | {each:.2f} | {first:.2f} | {ratio:.2f} | {cost.elapsed:.0f} s |", flush=True)
    print()
    if given.workers:
        _tell_ratios(given, place, costs)
    written = [out.read_bytes() for out, (way, *_) in zip(outs, kinds.values(), strict=True) if way != "plain"]
    same = "the same, byte for byte" if len(set(written)) == 1 else "NOT the same"
    print(f"The {len(written)} outputs of fada were {same}.")
    sizes = {"source": source.stat().st_size, "journal": costs["one process"].journal, "output": len(written[0])}
    print("Bytes a line: " + ", ".join(f"{name} {size / given.lines:.0f}" for name, size in sizes.items()) + ".\n")


def _this_run() -> str:
    """What the figures are of."""
    command = " ".join(["python -m benchmarks.scale", *sys.argv[1:]])
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before it, one run (`{command}`)"


def _pool(count: int) -> str:
    return f"a pool of {count} process{'es' * (count > 1)} (plain `multiprocessing`, nothing resumable)"


def _actors(count: int) -> str:
    return f"Ray, {count} actor{'s' * (count > 1)}"


def _tell_ratios(given: argparse.Namespace, place: Path, costs: dict[str, Cost]) -> None:
    """Ray against the pool: of all lines, the start included, and what a line costs when everything is started."""
    print("| workers | CPU time of Ray over that of the pool | elapsed time |\n|---|---:|---:|")
    for count in given.workers:
        ray, pool = costs[_actors(count)], costs[_pool(count)]
        print(f"| {count} | {ray.cpu / pool.cpu:.2f} | {ray.elapsed / pool.elapsed:.2f} |")
    print()
    if given.source:
        return
    tenth, count = given.lines // 10, sorted(given.workers)[len(given.workers) // 2]
    write_lines(place / "tenth.parquet", tenth, given.words)
    wholes = [costs[name(count)] for name in (_actors, _pool)]
    outs = [place / f"{way}-tenth" / "out.tsv" for way in ("ray", "plain")]
    for out in outs:
        out.parent.mkdir()
    ways = [
        (way, given.model, place / "tenth.parquet", out, count) for way, out in zip(("ray", "plain"), outs, strict=True)
    ]
    starts = list(measured_together(ways))
    ray, pool = (
        1000 * (whole.cpu - start.cpu) / (given.lines - tenth) for whole, start in zip(wholes, starts, strict=True)
    )
    first = 1000 * (wholes[0].driver - starts[0].driver) / (given.lines - tenth)
    print(
        f"With {count} workers each line beyond {tenth:,} takes Ray {ray:.2f} ms of CPU time, {first:.2f} of them in "
        f"the first process, and the pool {pool:.2f}: {ray / pool:.2f} times.\n"
    )


def tell_memory(given: argparse.Namespace, place: Path) -> None:
    """What the process that reads the source and keeps the journal needs, for few lines and for many."""
    from fada.models.crnn import CRNNRecognizer

    CRNNRecognizer.build(list(WORDS), "tiny").save_pretrained(place / "tiny")
    os.environ["FADA_BATCH"] = "64"
    kinds: dict[str, tuple[object, ...]] = {
        "Ray, 2 actors": ("ray", "tsv", 2),
        "one process": ("one", "tsv"),
        "`fada merge` of 8 parts, tsv": ("merge", "tsv", 8),
        "`fada merge` of 8 parts, parquet": ("merge", "parquet", 8),
    }
    write_lines(place / "warm.parquet", 64, 1)
    measured("one", place / "tiny", place / "warm.parquet", place / "warm.tsv")  # what is compiled once is there now
    counts = (given.few, given.many)
    for count in counts:
        write_lines(place / f"{count}.parquet", count, 1)
    print(f"Peak memory of the first process, {_this_run()}:\n")
    print(f"| way | {given.few:,} lines | {given.many:,} lines | ratio |\n|---|---:|---:|---:|")
    for name, (way, ending, *more) in kinds.items():
        if way not in given.kinds:
            continue
        outs = [place / f"{way}-{ending}-{count}" / f"out.{ending}" for count in counts]
        ways: list[tuple[object, ...]] = []
        for count, out in zip(counts, outs, strict=True):
            out.parent.mkdir()
            ways.append((way, place / "tiny", count if way == "merge" else place / f"{count}.parquet", out, *more))
        few, many = (cost.memory for cost in measured_together(ways))
        print(f"| {name} | {few:.0f} MB | {many:.0f} MB | {many / few:.2f} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--lines", type=int, default=20_000, help="lines that are read in every way")
    parser.add_argument("--words", type=int, default=2, help="in each of them; with short ones dividing costs most")
    parser.add_argument("--few", type=int, default=2_000, help="lines of the first measure of memory")
    parser.add_argument("--many", type=int, default=200_000, help="lines of the second; 0: not measured")
    parser.add_argument("--kinds", nargs="*", default=["ray", "one", "merge"], help="whose memory is measured")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--shards", type=int, default=4, help="0: not measured")
    parser.add_argument("--model", default="french")
    parser.add_argument("--source", help="read these lines instead of synthetic ones")
    parser.add_argument("--knowledge", default="none", help="as fada transcribe takes it")
    parser.add_argument("--side-by-side", action="store_true", help="what is compared runs at the same time")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    given, rest = parser.parse_known_args()
    global SIDE_BY_SIDE
    SIDE_BY_SIDE = given.side_by_side
    os.environ.setdefault("FADA_KNOWLEDGE", given.knowledge)
    if given.way:
        run_way(given.way, rest)
        return
    with tempfile.TemporaryDirectory() as folder:
        if given.lines:
            tell_costs(given, Path(folder))
        if given.many:
            tell_memory(given, Path(folder))


if __name__ == "__main__":
    main()
