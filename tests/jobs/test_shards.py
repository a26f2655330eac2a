"""Shards of a job: each line in one of them, and joined they are what one machine writes."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from fada.cli import app
from fada.data.segment.photographs import Photograph
from fada.data.segment.store import PageStore, StoredPage
from fada.data.synthetic.pages import Layout, make_page
from fada.decoding.emissions import Emissions
from fada.errors import FadaError
from fada.jobs.merge import merge
from fada.jobs.shards import PartNote, Shard
from tests.support import xml_pages
from tests.support.commands import run_fada
from tests.support.drawn import drawn_lines

SHARDS = 3


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source") / "lines"
    rng = np.random.default_rng(0)
    for century in ("13", "14"):
        (folder / century).mkdir(parents=True)
        for i in range(4):
            pixels = rng.integers(0, 255, (40, 120 + 10 * i), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / century / f"{century}_{i}.png")
    (folder / "13" / "broken.png").write_bytes(b"no image")
    return folder


def sharded(command: list[object], out: Path) -> list[Path]:
    """The parts, written in another order than they are numbered in."""
    for number in (2, 3, 1):
        run_fada(*command, "--out", out, "--shard", f"{number}/{SHARDS}")
    return [Shard(number, SHARDS).part(out) for number in range(1, SHARDS + 1)]


def without_times(folder: Path) -> dict[str, str]:
    if folder.suffix == ".parquet":
        table = pq.read_table(folder)
        made = json.loads(table.schema.metadata[b"fada"]) | {"created": "T"}
        return {"schema": str(table.schema.remove_metadata()), "rows": str(table.to_pylist()), "made": str(made)}
    files = [folder] if folder.is_file() else [file for file in folder.rglob("*") if file.is_file()]
    stamp = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\+00:00|Z)?")
    return {file.relative_to(folder).as_posix(): stamp.sub("T", file.read_text("latin-1")) for file in files}


@given(st.lists(st.text(), unique=True), st.integers(1, 7))
def test_every_line_falls_to_one_shard(ids: list[str], of: int) -> None:
    for line in ids:
        assert sum(Shard(number, of).owns(line) for number in range(1, of + 1)) == 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/2", "1/1000000"])
def test_a_shard_that_is_none_gets_a_sentence(text: str) -> None:
    with pytest.raises(FadaError, match="expected NUMBER/SHARDS"):
        Shard.parse(text)


@pytest.mark.parametrize("name", ["out.tsv", "out.csv", "out.jsonl", "out.txt", "out.parquet", "pairs"])
def test_joined_shards_are_what_one_machine_writes(name: str, model: Path, lines: Path, tmp_path: Path) -> None:
    command: list[object] = ["transcribe", model, lines, "--domain-from", "folder"]
    command += ["--format", "pairs"] if name == "pairs" else []
    run_fada(*command, "--out", tmp_path / "one" / name)
    parts = sharded(command, tmp_path / "many" / name)
    assert (
        "8 lines, 1 could not be read" in run_fada("merge", *reversed(parts), "--out", tmp_path / "many" / name).output
    )
    one, many = without_times(tmp_path / "one" / name), without_times(tmp_path / "many" / name)
    assert one == many
    if name == "out.tsv":
        record = "out.tsv.provenance.json"
        assert without_times(tmp_path / "one" / record) == without_times(tmp_path / "many" / record)


def test_pages_stay_whole(model: Path, tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    for name in ("a", "b", "c", "d"):
        xml_pages.write_example(pages, "page2019", name)
    run_fada("transcribe", model, pages, "--out", tmp_path / "one")
    parts = sharded(["transcribe", model, pages], tmp_path / "many")
    run_fada("merge", *parts, "--out", tmp_path / "many")
    assert without_times(tmp_path / "one") == without_times(tmp_path / "many")


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages with four to six lines, one without any, one line, one broken file."""
    folder = tmp_path_factory.mktemp("photographs") / "photos"
    folder.mkdir()
    for number in range(3):
        make_page(drawn_lines(4 + number), Layout(1, 4 + number)).image.save(folder / f"folio{number}.png")
    Image.new("L", (500, 700), 230).save(folder / "blank.png")
    Image.new("L", (400, 40), 230).save(folder / "line.png")
    (folder / "broken.png").write_bytes(b"no image")
    return folder


@pytest.mark.slow
def test_photographs_are_divided_by_page(
    model: Path, photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    find = PageStore._found

    def counted(self: PageStore, photograph: Photograph, suffix: str, place: Path) -> StoredPage:
        looked_at.append(photograph.file.name)
        return find(self, photograph, suffix, place)

    for name in ("out.tsv", "out"):
        command: list[object] = ["transcribe", model, photographs]
        command += ["--format", "page"] if name == "out" else []
        run_fada(*command, "--out", tmp_path / "one" / name)
        monkeypatch.setattr(PageStore, "_found", counted)
        seen: list[str] = []
        for number in (2, 3, 1):
            looked_at.clear()
            run_fada(*command, "--out", tmp_path / "many" / name, "--shard", f"{number}/{SHARDS}")
            assert all(Shard(number, SHARDS).owns(Path(file).stem) for file in looked_at)
            seen += looked_at
        assert sorted(seen) == ["blank.png", "folio0.png", "folio1.png", "folio2.png"]
        monkeypatch.undo()
        parts = [Shard(number, SHARDS).part(tmp_path / "many" / name) for number in range(1, SHARDS + 1)]
        assert "2 could not be read" in run_fada("merge", *parts, "--out", tmp_path / "many" / name).output
        assert without_times(tmp_path / "one" / name) == without_times(tmp_path / "many" / name)


@pytest.mark.slow
def test_segmented_pages_are_divided_and_joined(photographs: Path, tmp_path: Path) -> None:
    def segment(out: Path, *more: object) -> None:
        code = CliRunner().invoke(app, ["segment", str(photographs), "--out", str(out), *map(str, more)]).exit_code
        assert code in (0, 1)  # 1: some page cannot be read

    segment(tmp_path / "one")
    for number in (3, 1, 2):
        segment(tmp_path / "many", "--shard", f"{number}/3")
    parts = [tmp_path / f"many-00{number}-of-003" for number in (1, 2, 3)]
    assert "3 parts, 3 pages, 3 could not be read" in run_fada("merge", *parts, "--out", tmp_path / "many").output
    assert without_times(tmp_path / "one") == without_times(tmp_path / "many")
    with pytest.raises(FadaError, match="never overwritten"):
        merge(parts, tmp_path / "many")


def test_emissions_are_joined_exactly(model: Path, lines: Path, tmp_path: Path) -> None:
    emit: list[object] = ["emit", model, lines]
    run_fada(*emit, "--out", tmp_path / "one.npz")
    run_fada("merge", *sharded(emit, tmp_path / "many.npz"), "--out", tmp_path / "many.npz")
    one, many = Emissions.load(tmp_path / "one.npz"), Emissions.load(tmp_path / "many.npz")
    assert one.ids == many.ids
    assert all(np.array_equal(a, b) for a, b in zip(one.log_probs, many.log_probs, strict=True))


@pytest.mark.parametrize("files", [1, 2])
def test_counts_are_joined_exactly(files: int, tmp_path: Path) -> None:
    """Of fewer files than shards the texts are divided, of more the files; a part may have a domain without letters."""
    for domain, text in {"9": "zeta\nalpha\nü", "10": "beta\n7\n", "010": "e\u0301 f"}.items():
        (tmp_path / "texts" / domain).mkdir(parents=True)
        for number in range(files):
            more = f"{text}\n{number}" if number % 2 == 0 else "8"
            (tmp_path / "texts" / domain / f"t{number}.txt").write_text(more, encoding="utf-8")
    texts = tmp_path / "texts" if files > 1 else tmp_path / "texts" / "9"
    build: list[object] = ["targets", "build", texts, "--letters-only"]
    run_fada(*build, "--out", tmp_path / "one.json")
    parts = sharded(build, tmp_path / "many.json")
    unit = "6 files" if files > 1 else "4 texts"
    assert f"{unit}: " in run_fada("merge", *parts, "--out", tmp_path / "many.json").output
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "many.json").read_bytes()


def test_shards_without_a_text_are_found_beside_the_others(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("le roi", encoding="utf-8")
    build: list[object] = ["targets", "build", tmp_path / "text.txt", "--domain", "x"]
    run_fada(*build, "--out", tmp_path / "one.json")
    sharded(build, tmp_path / "many.json")
    parts = list(tmp_path.glob("many.*-of-003.json"))
    assert len(parts) == 1
    run_fada("merge", *parts, "--out", tmp_path / "many.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "many.json").read_bytes()


def written_parts(folder: Path, shards: list[int], of: int) -> list[Path]:
    """Parts of a table whose line number i is in `shards[i]`."""
    for number in range(1, of + 1):
        places = [place for place, shard in enumerate(shards) if shard == number]
        part = Shard(number, of).part(folder / "out.tsv")
        part.write_text("id\n" + "".join(f"{place}\n" for place in places), encoding="utf-8")
        note = PartNote(
            shard=number, of=of, job="x", total=len(shards), count=len(places), positions=places, left_out=[]
        )
        note.write(part)
    return list(folder.glob("out.*-of-*.tsv"))


@settings(max_examples=30)
@given(st.lists(st.integers(1, 4)), st.data())
def test_each_place_of_the_source_is_held_once_or_nothing_is_joined(shards: list[int], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        parts = written_parts(Path(folder), shards, 4)
        out = Path(folder) / "joined.tsv"
        merge(parts, out)
        assert out.read_text(encoding="utf-8") == "id\n" + "".join(f"{place}\n" for place in range(len(shards)))
        part = data.draw(st.sampled_from(parts))
        note = PartNote.read(part)
        held = note.positions or []
        changed = data.draw(st.lists(st.integers(-1, len(shards) + 1), max_size=len(held) + 1))
        note.model_copy(update={"positions": changed, "count": len(changed)}).write(part)
        if sorted(set(changed)) != held:
            with pytest.raises(FadaError, match="Run all shards again"):
                merge(parts, out)


def test_more_parts_than_files_may_be_open_are_joined(tmp_path: Path) -> None:
    parts = written_parts(tmp_path, [1 + (7 * place) % 200 for place in range(1000)], 200)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], 150), before[1]))
    try:
        assert merge(parts, tmp_path / "out.tsv").lines == 1000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    rows = (tmp_path / "out.tsv").read_text(encoding="utf-8").splitlines()
    assert rows == ["id", *map(str, range(1000))]


def test_what_is_missing_doubled_or_of_another_job_is_refused(model: Path, lines: Path, tmp_path: Path) -> None:
    command: list[object] = ["transcribe", model, lines]
    first, second, third = sharded(command, tmp_path / "out.tsv")
    copy = tmp_path / "copy.tsv"
    for suffix in ("", ".shard.json"):
        shutil.copy(f"{second}{suffix}", f"{copy}{suffix}")
    for parts, message in {
        (first, third): r"1 of 3 parts are missing: 2\.",
        (first, second, third, copy): "are both shard 2",
        (first, second, tmp_path / "none.tsv"): "no finished part",
    }.items():
        with pytest.raises(FadaError, match=message):
            merge(parts, tmp_path / "joined.tsv")
    run_fada(*command, "--beam", 2, "--out", tmp_path / "out.tsv", "--shard", f"3/{SHARDS}")
    with pytest.raises(FadaError, match="different jobs"):
        merge([first, second, third], tmp_path / "joined.tsv")
    sharded(command, tmp_path / "out.tsv")
    for part in (first, second, third):
        rows = part.read_text(encoding="utf-8").splitlines(keepends=True)
        part.write_text("".join(rows[:-1]), encoding="utf-8")
    with pytest.raises(FadaError, match="Run this shard again"):
        merge([first, second, third], tmp_path / "joined.tsv")
    assert not (tmp_path / "joined.tsv").exists()


@pytest.mark.parametrize(
    "command",
    [
        "transcribe french lines --format pairs",
        "emit french lines",
        "targets build lines/13",
        "study lines --read-as images",
    ],
)
def test_without_the_extra_a_cluster_is_told_how_to_install(
    command: str, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(lines, tmp_path / "lines")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)  # which is how Python marks a module that is not there
    (Path("lines") / "13" / "t.txt").write_text("le roi", encoding="utf-8")
    done = CliRunner().invoke(app, [*command.split(), "--out", str(tmp_path / "out"), "--ray"])
    assert isinstance(done.exception, FadaError)
    assert "pip install 'fada[scale]'" in str(done.exception)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """In which `fada` is the one that is tested."""
    program = tmp_path / "bin" / "fada"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom fada.cli import main\nmain()\n")
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}


PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["parallel", "xargs"])
def test_the_line_of_the_documentation_runs_all_shards(
    tool: str, model: Path, lines: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    command = next(line for line in PAGE.splitlines() if tool in line.split() and "--shard {}/4" in line)
    command = command.replace("french", str(model)).replace("my_pages/", str(lines)).replace("-P 4", "-P 2")
    subprocess.run(command, shell=True, check=True, cwd=tmp_path, env=environment, capture_output=True)
    run_fada("merge", *tmp_path.glob("out.*-of-004.tsv"), "--out", tmp_path / "out.tsv")
    run_fada("transcribe", model, lines, "--out", tmp_path / "one.tsv")
    assert (tmp_path / "out.tsv").read_bytes() == (tmp_path / "one.tsv").read_bytes()


@pytest.mark.slow
def test_the_array_of_the_documentation_runs_all_shards(
    model: Path, lines: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """Its script, task by task, as SLURM starts it."""
    [script] = re.findall(r"```sh\n(#!.*?)```", PAGE, re.DOTALL)
    script = script.replace("french", str(model)).replace("collection.parquet", str(lines))
    for number in ("2", "1"):
        task = {"SLURM_ARRAY_TASK_ID": number, "SLURM_ARRAY_TASK_COUNT": "2"}
        subprocess.run(
            ["bash", "-c", script], check=True, cwd=tmp_path, env={**environment, **task}, capture_output=True
        )
    run_fada("merge", *tmp_path.glob("out.*-of-002.tsv"), "--out", tmp_path / "out.tsv")
    run_fada("transcribe", model, lines, "--out", tmp_path / "one.tsv")
    assert (tmp_path / "out.tsv").read_bytes() == (tmp_path / "one.tsv").read_bytes()
