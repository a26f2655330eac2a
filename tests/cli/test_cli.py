"""The command line as a user meets it: quick help, plain errors, tables for people and machines."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

import fada
from fada.cli import main
from fada.cli.output import print_rows
from fada.targets.target_set import TargetSet
from tests.support import xml_pages
from tests.support.commands import FADA
from tests.support.emission_sets import make_emissions

HPGT = Path(__file__).parents[1] / "files" / "hpgt_counts.json"


class Run:
    """Calls `fada` as the shell does, in this process, which spares the start of Python."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch = monkeypatch
        self.capfd = capfd
        monkeypatch.setenv("COLUMNS", "120")

    def __call__(self, *arguments: str | Path, stdin: str = "", code: int = 0) -> str:
        """Its standard output, or its standard error where a mistake is expected."""
        self.monkeypatch.setattr("sys.argv", ["fada", *map(str, arguments)])
        self.monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode("utf-8"))))
        with pytest.raises(SystemExit) as caught:
            main()
        output, error = self.capfd.readouterr()
        assert (caught.value.code or 0) == code, error
        return error if code else output


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    return Run(monkeypatch, capfd)


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    for domain, text in (("1650", "auoir ueu la uie\n" * 40), ("1850", "avoir vu la vie\n" * 40)):
        (tmp_path / "letters" / domain).mkdir(parents=True)
        (tmp_path / "letters" / domain / "a.txt").write_text(text, encoding="utf-8")
    return tmp_path / "letters"


@pytest.fixture
def targets(run: Run, letters: Path, tmp_path: Path) -> Path:
    run("targets", "build", letters, "-o", tmp_path / "targets.json")
    return tmp_path / "targets.json"


@pytest.mark.parametrize(("terminal", "shown"), [(False, "ἀ é ?".encode()), (True, "? é ?".encode("cp1252"))])
def test_output_for_windows_code_pages_is_written(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, shown: bytes
) -> None:
    class Written(io.BytesIO):
        def isatty(self) -> bool:
            return terminal

    written = Written()
    stdout = io.TextIOWrapper(written, encoding="cp1252")
    monkeypatch.setattr("sys.stdout", stdout)
    monkeypatch.setattr("fada.cli.app", lambda **_: print("ἀ é \udce9", end=""))
    main()
    stdout.flush()
    assert written.getvalue() == shown


def test_help_imports_nothing_heavy() -> None:
    check = (
        "import sys, fada.cli; heavy = {'numpy', 'torch', 'pandas', 'pyarrow', 'matplotlib', 'PIL', 'numba', "
        "'scipy', 'transformers'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", check], check=True)


def test_a_mistake_in_a_shell_shows_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run([*FADA, "targets", "show", "nothing.json"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("fada: nothing.json: no such file")
    assert "Traceback" not in done.stderr


def test_version_and_completion(run: Run) -> None:
    assert run("--version").strip() == f"fada {fada.__version__}"
    options = run("--help")
    assert "--install-completion" in options
    assert "--show-completion" in options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["targets", "show", "nothing.json"], "nothing.json: no such file"),
        (["targets", "build", "nothing"], "nothing: no such file or folder"),
        (["targets", "build", "*.nothing"], "no file matches"),
        (["targets", "build", "-"], "--domain"),
        (["targets", "build", ".", "--form", "NFX"], "expected one of NFC"),
        (["targets", "merge", "a.json", "b.json", "-o", "c.json"], "no such file"),
        (["analyze", "nothing.json"], "nothing.json: no such file"),
        (["analyze", str(HPGT), "--from", "17"], "no domain '17'"),
        (["targets", "compare", str(HPGT), "--distance", "l2"], "unknown distance 'l2'"),
        (["targets", "edit", str(HPGT)], "nothing to change"),
        (["targets", "edit", str(HPGT), "--set", "e", "-o", "x.json"], "a character and a number"),
        (["targets", "edit", str(HPGT), "--mix", "10:1", "-o", "x.json"], "--as"),
        (["targets", "edit", str(HPGT), "--mix", "10", "--as", "m", "-o", "x.json"], "domains and weights"),
        (["targets", "edit", str(HPGT), "--set", "α=0", "--set", "α=1", "-o", "x.json"], "given twice"),
        (["targets", "edit", str(HPGT), "--set", "α=0", "--as", "x", "-o", "x.json"], "choose one with --domain"),
        (["targets", "build", str(HPGT.parents[2] / "src" / "fada" / "cli")], "without text files or tables"),
        (["transcribe", "typo_path.png"], "typo_path.png: no such file or folder"),
        (["transcribe", "typo_path"], "typo_path: no such file or folder, and no model that comes with fada (french"),
        (["transcribe", "a/typo.png", "b.png"], "a/typo.png: no such file or folder"),
        (["transcribe", "a.png", "--beam", "1000000000"], "the beam is 1000000000 wide, expected at most 10000"),
        (["transcribe", "french"], "nothing to transcribe is given"),
        (["nonsense"], "nonsense"),
    ],
)
def test_a_mistake_gets_a_sentence_and_exit_code_2(
    run: Run, arguments: list[str], message: str, tmp_path: Path
) -> None:
    run.monkeypatch.chdir(tmp_path)
    assert message in run(*arguments, code=2)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("decode line.png", "line.png: this is a PNG image, expected emissions"),
        ("decode text.txt", "text.txt: not an .npz file, expected emissions"),
        ("decode e.npz --symbols line.png", "this is a PNG image, expected a JSON file with the text of each class"),
        ("decode e.npz --tuned line.png", "this is a PNG image, expected settings as JSON or YAML"),
        ("decode e.npz --words line.png", "this is a PNG image, expected text"),
        ("decode e.npz --knowledge text.txt", "not a .fada file of knowledge. Texts are given with --text"),
        ("decode e.npz --knowledge folder", "folder: a folder, expected a .fada file"),
        ("targets show line.png", "this is a PNG image, expected a target file"),
        ("targets show text.txt", "no target file, which is a JSON object"),
        ("targets build line.png", "this is a PNG image, expected text"),
        ("tune text.txt --targets t.json", "Expected n-best lists"),
        ("tune line.png --targets t.json", "this is a PNG image, expected a table"),
        ("tune folder --targets t.json", "folder: no config.json here, expected a run folder"),
        ("evaluate t.json t.json", ".json files hold more than text"),
        ("evaluate line.png text.txt", "this is a PNG image, expected texts, a table, ALTO, PAGE or hOCR"),
        ("report text.txt", "text.txt: a file, not a run folder"),
    ],
)
def test_a_file_of_another_kind_is_called_what_it_is(run: Run, command: str, message: str, tmp_path: Path) -> None:
    run.monkeypatch.chdir(tmp_path)
    xml_pages.draw_page(tmp_path / "line.png", (60, 20))
    (tmp_path / "text.txt").write_text("le roi\n", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    make_emissions(0, 1).save(tmp_path / "e.npz")
    TargetSet.from_texts({"13": ["le roi"]}).save(tmp_path / "t.json")
    assert message in run(*command.split(), code=2)


def test_build_from_two_folders_show_and_compare(run: Run, letters: Path, tmp_path: Path) -> None:
    out = tmp_path / "targets.json"
    summary = run("targets", "build", letters / "1650", letters / "1850", "-o", out, "--letters-only")
    assert "1650" in summary
    assert TargetSet.load(out).domains == ("1650", "1850")
    shown = run("targets", "show", out)
    assert "█" in shown
    assert "±" in shown
    compared = run("targets", "compare", out)
    assert "pearson" in compared
    assert "sorted_w2" in compared


def test_build_from_tables_and_standard_input(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("century\tline\n13\tab\n14\tb\n", encoding="utf-8")
    out = tmp_path / "out.json"
    options = ("--text-column", "line", "--domain-column", "century")
    rows = json.loads(run("targets", "build", tmp_path / "*.tsv", *options, "-o", out, "--json"))
    assert [(row["domain"], row["characters"]) for row in rows] == [("13", 2), ("14", 1)]
    run("targets", "build", "-", "--domain", "stdin", "-o", out, stdin="Ἀρχή\n")
    assert TargetSet.load(out)["stdin"].total == 4


def test_build_from_folders_of_pages_needs_no_images(run: Run, tmp_path: Path) -> None:
    for century, example in (("1650", "alto4"), ("1850", "page2013")):
        xml_pages.write_example(tmp_path / "ms" / century / "page", example).with_suffix(".png").unlink()
    (tmp_path / "ms" / "1650" / "METS.xml").write_text("<mets/>", encoding="utf-8")
    out = tmp_path / "out.json"
    rows = json.loads(run("targets", "build", tmp_path / "ms", "-o", out, "--json"))
    lengths = [sum([len(text or "") for text in xml_pages.EXAMPLES[name][1]]) for name in ("alto4", "page2013")]
    assert [(row["domain"], row["characters"]) for row in rows] == list(zip(["1650", "1850"], lengths, strict=True))
    run("targets", "build", tmp_path / "ms" / "1650" / "page" / "page.xml", "-o", out)
    assert TargetSet.load(out).domains == ("1650",)
    assert "neither ALTO nor PAGE" in run("targets", "build", tmp_path / "ms" / "1650" / "METS.xml", code=2)


def test_invalid_utf8_on_the_command_line_names_file_and_offset(run: Run, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    out = tmp_path / "targets.json"
    message = run("targets", "build", tmp_path / "latin.txt", "-o", out, code=2)
    assert "latin.txt, byte 3: invalid UTF-8" in message
    assert not out.exists()


def test_compare_keeps_files_of_one_name_apart(run: Run, targets: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / targets.name
    other.write_bytes(targets.read_bytes())
    domains = json.loads(run("targets", "compare", targets, other, "--json"))["domains"]
    assert len(domains) == 2 * len(TargetSet.load(targets).domains)


def test_show_and_compare_for_machines(run: Run, targets: Path) -> None:
    rows = json.loads(run("targets", "show", targets, "--json"))
    assert {"domain", "character", "count", "frequency", "standard_error", "low", "high"} == set(rows[0])
    table = list(csv.DictReader(io.StringIO(run("targets", "show", targets, "-d", "1650", "--csv"))))
    assert {row["domain"] for row in table} == {"1650"}
    matrices = json.loads(run("targets", "compare", targets, "--distance", "w1", "--json"))
    assert matrices["pearson"][0][0] == 1
    assert matrices["w1"][0][1] == matrices["w1"][1][0] > 0
    long = list(csv.DictReader(io.StringIO(run("targets", "compare", targets, "--csv"))))
    assert {row["measure"] for row in long} == {"pearson", "sorted_w2", "aligned_w2", "js"}


def test_edit_sets_scales_mixes_and_smooths(run: Run, targets: Path, tmp_path: Path) -> None:
    out = tmp_path / "edited.json"
    before = TargetSet.load(targets)
    run("targets", "edit", targets, "--set", "a=0", "--set", "space=0.2", "--scale", "u=0.5", "-d", "1650", "-o", out)
    edited = TargetSet.load(out)
    assert edited["1650"].frequency("a") == 0
    assert edited["1650"].frequency(" ") == pytest.approx(0.2)
    assert edited["1850"] == before["1850"]
    run("targets", "edit", targets, "--mix", "1650:0.7,1850:0.3", "--as", "1710", "--smooth", "1", "-o", out)
    mixed = TargetSet.load(out)
    assert mixed["1710"] == before.mix({"1650": 0.7, "1850": 0.3}).smoothed(1)
    assert mixed["1650"] == before["1650"]
    run("targets", "edit", targets, "--set", "a=0")
    assert TargetSet.load(targets)["1850"].frequency("a") == 0, "in place without --out"


@pytest.mark.parametrize("change", [("--set", "a=0"), ("--scale", "a=0"), ("--smooth", "5")])
def test_edit_as_makes_a_changed_copy_of_one_domain(run: Run, targets: Path, change: tuple[str, str]) -> None:
    before = TargetSet.load(targets)
    run("targets", "edit", targets, *change, "-d", "1650", "--as", "changed")
    after = TargetSet.load(targets)
    assert after["changed"].frequency("a") != after["1650"].frequency("a")
    assert {name: after[name] for name in before.domains} == dict(before.items())


def test_a_file_whose_frequencies_do_not_sum_to_one_is_refused_and_then_mended(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "targets.json"
    domains = {"14": {"frequencies": {"a": 0.5, "b": 0.43}, "characters": 300}}
    path.write_text(json.dumps({"version": 1, "normalizer": {}, "domains": domains}, indent=1), encoding="utf-8")
    message = run("targets", "show", path, code=2)
    assert 'line 6, domain "14": frequencies sum to 0.93, expected 1 (±1e-06)' in message
    assert f"fada targets edit {path} --normalize" in message
    run("targets", "edit", path, "--normalize")
    assert TargetSet.load(path)["14"].total == pytest.approx(300)


def test_merge_adds_counts(run: Run, targets: Path, tmp_path: Path) -> None:
    out = tmp_path / "merged.json"
    run("targets", "merge", targets, targets, "-o", out)
    assert TargetSet.load(out)["1650"].total == 2 * TargetSet.load(targets)["1650"].total


def test_analyze_draws_every_figure(run: Run, targets: Path, tmp_path: Path) -> None:
    result = json.loads(run("analyze", targets, "--out", tmp_path / "figures", "--json"))
    assert all(Path(file).stat().st_size > 1000 for file in result["files"])
    assert len(result["files"]) == 8
    assert result["pair"] == ["1650", "1850"]
    assert {row["symbol"] for row in result["shift"][:2]} == {"u", "v"}


def test_no_number_of_a_wide_table_is_cut_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rows = [{f"length_bonus_{i}": -2.2071 * (i + 1) for i in range(9)} | {"lm": "global"}]
    print_rows(rows, "weights")
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert all(f"{value:.2f}" in shown for value in rows[0].values() if isinstance(value, float))
    assert max(map(len, shown.splitlines())) <= 80
    print_rows([], "nothing")
    assert capsys.readouterr().out == ""
