"""The report: right numbers, safe, small, and working in a real browser from a file."""

import base64
import io
import json
import math
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import escape
from PIL import Image
from typer.testing import CliRunner

from fada import FadaError, __version__, compare, evaluate
from fada.cli import app
from fada.data.line import Line
from fada.data.synthetic.pages import write_pages
from fada.report.charts import Curve, drawn, frequency_chart, line_chart, nice_ticks
from fada.report.comparison import data_sets
from fada.report.images import collect, encode
from fada.report.page import Written, script_json, write_comparison, write_report
from fada.runs.groups import load_runs
from fada.text.characters import sign
from tests.support import browsers
from tests.support.commands import FADA, run_fada
from tests.support.run_folders import CITATION, LICENCE, NASTY, MakeRun, write_tuned


def payload(path: Path) -> dict[str, Any]:
    """The data that the page's script reads."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    assert found
    return json.loads(found[1])


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def one(make_run: MakeRun, work: Path) -> Written:
    """The report of one run with a tuning, nasty text, right-to-left text and images."""
    folder = make_run(work / "one", lines=90, images=work / "one.parquet", nasty=True, tuned=True)
    return write_report([folder], resamples=200)


@pytest.fixture(scope="module")
def several(make_run: MakeRun, work: Path) -> Written:
    """Two models, standard and FADA training, two seeds each; one model also on a second data set."""
    folders = [
        make_run(work / f"{model}-{lam}-{seed}", lines=30, lam=lam, seed=seed, model=model, systems=("beam5", "fada"))
        for model in ("crnn", "trocr")
        for lam in (1.0, 0.5)
        for seed in (0, 1)
    ]
    folders.append(make_run(work / "other", lines=20, dataset="Other <set>", systems=("beam5", "fada")))
    return write_report(folders, work / "several.html", resamples=100, tables=work / "tables", with_images=False)


# ------------------------------------------------------------------------------------------------------- the file


def test_the_report_lies_in_the_run_folder_and_needs_nothing_else(one: Written) -> None:
    page = one.path.read_text("utf-8")
    assert one.path.name == "report.html"
    assert one.size == one.path.stat().st_size
    assert not re.search(
        r"""(?:src|href)\s*=\s*["']?(?!#|data:)[^"'#]""", re.sub(r"<script.*?</script>", "", page, flags=re.S)
    )
    assert "default-src 'none'" in page
    assert "@import" not in page
    assert "url(" not in page


@pytest.mark.slow
def test_a_thousand_lines_with_images_stay_below_five_megabytes(make_run: MakeRun, work: Path) -> None:
    images = work / "thousand.parquet"
    systems = ("greedy", "beam5", "FADA sorted", "FADA aligned", "prior correction", "6-gram")
    folder = make_run(work / "thousand", lines=1000, images=images, drawn_images=80, systems=systems)
    written = write_report([folder], resamples=100)
    assert (written.lines, written.images) == (1000, 1000)
    assert written.size == written.path.stat().st_size < 5_000_000


def test_a_smaller_file_says_what_was_left_out(work: Path, one: Written) -> None:
    written = write_report([one.path.parent], work / "small.html", resamples=50, max_bytes=200_000)
    assert written.size <= 200_000
    assert written.images < 90
    assert any("Images are left out" in note for note in written.notes)
    assert all(note.split(":")[0] in written.path.read_text("utf-8") for note in written.notes)


def test_the_same_input_gives_the_same_bytes(work: Path, one: Written) -> None:
    again = write_report([one.path.parent], work / "again.html", resamples=200)
    pages = [re.sub(r"<dt>Made</dt>.*?</dd>", "", path.read_text("utf-8")) for path in (again.path, one.path)]
    assert pages[0] == pages[1]


def test_everything_from_data_is_escaped(one: Written) -> None:
    page = one.path.read_text("utf-8")
    assert "<img src=x" not in page
    assert page.count("</script>") == 2
    assert "49" not in re.findall(r"&lt;!-- (.*?) ", page)
    assert payload(one.path)["lines"][0][3][0] == NASTY


@settings(max_examples=100, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x, max_size=4)))
def test_embedded_json_is_harmless_and_complete(value: Any) -> None:
    def finite(item: Any) -> Any:
        if isinstance(item, list):
            return [finite(part) for part in item]
        return None if isinstance(item, float) and not math.isfinite(item) else item

    text = script_json(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == finite(value)


# ---------------------------------------------------------------------------------------------------- the numbers


def test_numbers_are_those_of_the_evaluation(one: Written) -> None:
    (run,) = load_runs([one.path.parent])
    page = one.path.read_text("utf-8")
    for system, lines in run.predictions.items():
        scores = evaluate(lines.references, lines.hypotheses, bootstrap=200, clusters=lines.ids)
        row = re.search(rf'<th scope="row"><bdi>{system}</bdi>.*?</tr>', page, re.DOTALL)
        assert row
        assert f"{scores.cer:.2f}" in row[0]
        assert f"[{scores.intervals['cer'][0]:.2f}, {scores.intervals['cer'][1]:.2f}]" in row[0]


def test_verdict_reports_the_paired_test(one: Written) -> None:
    (run,) = load_runs([one.path.parent])
    before, after = run.predictions["beam"], run.predictions["fada"]
    change = compare(before.references, before.hypotheses, after.hypotheses, resamples=200).overall["cer"]
    verdict = re.search(r'<p class="verdict">(.*?)</p>', one.path.read_text("utf-8"), re.DOTALL)
    assert verdict
    assert f"{change.b:.2f} % instead of {change.a:.2f} %" in verdict[1]
    assert f"{abs(change.relative or 0):.1f} % fewer character errors" in verdict[1]


def test_a_better_rival_is_named(make_run: MakeRun, work: Path) -> None:
    folder = make_run(work / "rival", lines=40, systems=("beam5", "fada", "6-gram"))
    page = write_report([folder], resamples=50, with_images=False).path.read_text("utf-8")
    assert "The lowest error rate here is that of <b>6-gram</b>" in page


def test_a_difference_within_chance_is_called_so(make_run: MakeRun, work: Path) -> None:
    folder = make_run(work / "same", lines=12, systems=("beam5",))
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "predictions.parquet")
    copy = table.set_column(table.column_names.index("system"), "system", pa.array(["fada"] * len(table)))
    pq.write_table(pa.concat_tables([table, copy]), folder / "predictions.parquet")
    page = write_report([folder], resamples=50, with_images=False).path.read_text("utf-8")
    assert "makes as many character errors as" in page
    assert "within what chance alone would produce" in page


def test_a_single_system_is_reported_without_comparison(make_run: MakeRun, work: Path) -> None:
    folder = make_run(work / "single", lines=20, systems=("greedy",))
    for name in ("config.json", "metrics.json", "targets.json"):
        (folder / name).unlink()
    written = write_report([folder], resamples=50)
    page = written.path.read_text("utf-8")
    assert "reads 20 lines with a character error rate of" in page
    assert "Beyond chance?</th>" not in page
    assert "do not record where the lines are" in written.notes[0]


def test_compared_systems_can_be_chosen(work: Path, one: Written) -> None:
    written = write_report([one.path.parent], work / "chosen.html", baseline="greedy", compared="beam", resamples=50)
    data = payload(written.path)
    assert [data["systems"][data["pairs"][0][side]] for side in ("before", "after")] == ["greedy", "beam"]
    with pytest.raises(FadaError, match="no system 'bean' in these runs, expected one of 'greedy', 'beam', 'fada'"):
        write_report([one.path.parent], work / "x.html", baseline="bean")


def test_seeds_are_pooled_and_models_are_kept_apart(several: Written, work: Path) -> None:
    sets = data_sets(load_runs(p for p in work.iterdir() if p.name.startswith(("crnn", "trocr"))))
    assert sorted(s.name for s in sets) == ["Codices · C-RNN", "Codices · TrOCR"]
    assert all(len(c.runs) == 2 for s in sets for c in s.contenders)
    assert {(s.before.label, s.after.label) for s in sets} == {("Standard · beam5", "FADA-TR · fada")}
    page = several.path.read_text("utf-8")
    assert "standard error of the mean over seeds" in page
    assert "(±" in page
    assert "Other &lt;set&gt;" in page
    assert {path.suffix for path in several.tables} == {".html", ".md", ".tex", ".csv"}


def test_guided_system_is_not_chosen_by_its_test_error(make_run: MakeRun, work: Path) -> None:
    folder = make_run(work / "order", lines=30, systems=("beam5", "FADA sorted", "FADA aligned"))
    (data_set,) = data_sets(load_runs([folder]))
    assert data_set.after.system == "FADA sorted"


def test_normalization_reaches_every_number(work: Path, one: Written) -> None:
    written = write_report([one.path.parent], work / "folded.html", resamples=50, normalization="diacritics,case")
    assert "normalised: case, diacritics" in written.path.read_text("utf-8")
    exact, folded = (sum(line[4][0][1] for line in payload(w.path)["lines"]) for w in (one, written))
    assert folded < exact


def test_tuning_and_history_are_drawn(make_run: MakeRun, one: Written, work: Path) -> None:
    page = one.path.read_text("utf-8")
    for text in ("Choice of λ", "recommended: λ = 0.4", "sorted w2, scale 100", "Learning curve", "Training loss"):
        assert text in page
    folder = make_run(work / "warned", lines=10)
    write_tuned(folder / "tuned.json", warning="Not better than λ = 1 beyond noise.")
    assert "Not better than λ = 1 beyond noise." in write_report([folder], resamples=20).path.read_text("utf-8")


def test_validation_lines_are_not_passed_off_as_test_lines(make_run: MakeRun, work: Path) -> None:
    folder = make_run(work / "validation", lines=10)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["lines"] = {"train": 90, "validation": 10, "test": 0}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    page = write_report([folder], resamples=20, with_images=False).path.read_text("utf-8")
    assert "There were no test lines" in page


def test_settings_versions_seeds_licence_and_citation_are_told(one: Written) -> None:
    page = one.path.read_text("utf-8")
    for text in (LICENCE, str(escape(CITATION)), "batch_size", f"fada {__version__}", "Seeds", "versions.torch"):
        assert text in page


# ------------------------------------------------------------------------------------------------ charts and images


@settings(max_examples=80, deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 9))
def test_ticks_are_round_and_inside(low: float, span: float, count: int) -> None:
    ticks = nice_ticks(low, low + span, count)
    assert len(ticks) <= 2 * count + 2
    assert all(low - span * 1e-3 <= tick <= low + span * 1.001 for tick in ticks)


def test_charts_leave_out_what_is_not_finite_and_escape_labels() -> None:
    chart = line_chart([Curve("<b>", [1, 2, 3], [1.0, math.nan, 2.0], "s1")], "<t>", "x", "y")
    assert chart.count("<circle") == 2
    assert "&lt;b&gt;" in chart
    assert line_chart([], "t", "x", "y") == ""
    assert "nan" not in line_chart([Curve("flat", [1], [5.0], "s1")], "t", "x", "y")
    assert "nan" not in frequency_chart(["a"], [0.0], [0.0], [0.0], "t", ("a", "b", "c"))


@pytest.mark.parametrize(
    ("character", "shown"), [("a", "a"), (" ", "␣"), ("\u0301", "◌\u0301"), ("", "∅"), ("\ue000", "U+E000")]
)
def test_every_character_can_be_seen(character: str, shown: str) -> None:
    assert sign(character) == shown
    assert drawn(character) == ('<span class="private">\ue000</span>' if character == "\ue000" else shown)


def test_images_keep_their_shape_and_fit_the_budget(work: Path, one: Written) -> None:
    ids = [line[0] for line in payload(one.path)["lines"]]
    found = collect(work / "one.parquet", ids, budget=60_000)
    assert 0 < sum(len(image.data) for image in found.images.values()) <= 60_000
    image = next(iter(found.images.values()))
    with Image.open(io.BytesIO(base64.b64decode(image.data))) as decoded:
        assert decoded.format == "WEBP"
        assert decoded.size == (image.width, image.height)


def test_a_very_long_strip_does_not_eat_the_budget() -> None:
    image = encode(Image.new("L", (20_000, 40), 200), 36, 40)
    assert image.width <= 36 * 30


def test_data_that_were_asked_for_must_be_readable(work: Path, one: Written) -> None:
    with pytest.raises(FadaError, match="nowhere"):
        write_report([one.path.parent], work / "y.html", data=str(work / "nowhere.parquet"), resamples=20)


# ------------------------------------------------------------------------------------------------- the command line


def test_command_writes_report_and_tables(work: Path, one: Written) -> None:
    options = ("--tables", work / "cli-tables", "--resamples", 50, "--json", "--no-line-images")
    printed = json.loads(run_fada("report", one.path.parent, "--out", work / "cli.html", *options).stdout)
    assert Path(printed["path"]).stat().st_size == printed["size"]
    assert (work / "cli-tables" / "systems.tex").exists()


def test_command_names_a_folder_that_is_no_run(work: Path) -> None:
    with pytest.raises(FadaError, match="no such run folder"):
        run_fada("report", work / "nothing-here")


# ------------------------------------------------------------------------------------------------------ the browser


class Opened:
    """A page in a real browser, with everything that it said or asked for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: Path) -> Any:
        self.page.goto(path.as_uri())
        self.page.locator(".line").first.wait_for()
        return self.page


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if not browsers.THERE:
        pytest.skip(browsers.HOW)
    with browsers.chromium() as browser:
        yield browser


@pytest.fixture
def opened(chromium: Any) -> Iterator[Opened]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    yield Opened(context.new_page())
    context.close()


def shows(page: Any, pattern: str) -> None:
    """Wait until the number of lines reads like `pattern`: the search waits for a pause in typing."""
    page.locator("#count", has_text=re.compile(f"^({pattern})")).wait_for()


def count(page: Any) -> int:
    return int(page.inner_text("#count").split(" of ")[0].replace(",", ""))


def errors_fewer(page: Any) -> list[int]:
    """The change in errors of each line shown: negative is better."""
    signs = {"▼": -1, "▲": 1, "=": 0}
    heads = page.locator(".line-head > :last-child").all_inner_texts()
    return [signs[h[0]] * int((re.search(r"\d+", h) or ["0"])[0]) for h in heads]


def test_any_outputs_are_reported_against_a_ground_truth(tmp_path: Path) -> None:
    folder = tmp_path / "gt"
    folder.mkdir()
    for name, text in (("a", "le roi marc"), ("b", "la reine dit")):
        Image.new("L", (80, 20), 200).save(folder / f"{name}.png")
        (folder / f"{name}.gt.txt").write_text(text, encoding="utf-8")
    for system, texts in {"first": ["le roi mare", "la reme dit"], "second": ["le roi marc", "la reme dit"]}.items():
        rows = "".join(f"{name}\t{text}\n" for name, text in zip("ab", texts, strict=True))
        (tmp_path / f"{system}.tsv").write_text("id\ttext\n" + rows, encoding="utf-8")
    outputs = [tmp_path / "first.tsv", tmp_path / "second.tsv"]
    written = write_comparison(folder, outputs, tmp_path / "out.html", resamples=100)
    assert tempfile.gettempdir() + "/tmp" not in written.path.read_text(encoding="utf-8")
    assert (written.lines, written.images) == (2, 2)
    page = written.path.read_text(encoding="utf-8")
    assert "gt: first, second" in page
    (tmp_path / "third.tsv").write_text("id\ttext\na\tle roi marc\n", encoding="utf-8")
    third = write_comparison(folder, [tmp_path / "third.tsv"], tmp_path / "third.html", resamples=100)
    assert "third: 1 of 2 lines of the references missing (b)." in third.path.read_text(encoding="utf-8")
    assert "not recorded" not in page.split("Licence of the data")[0]
    done = CliRunner().invoke(app, ["report", str(tmp_path / "gt"), "--domain", "13"])
    assert isinstance(done.exception, FadaError)
    assert "--reference" in str(done.exception)


def test_pages_that_lines_are_cut_out_of_are_drawn(tmp_path: Path) -> None:
    lines = [Line(f"l{i}", image=Image.new("L", (500, 60), 90), text=f"linea {i}") for i in range(20)]
    write_pages(lines, tmp_path / "gt", 2, seed=1)
    written = write_comparison(tmp_path / "gt", [tmp_path / "gt"], tmp_path / "out.html", resamples=100)
    page = written.path.read_text(encoding="utf-8")
    pages = re.findall(r'src="data:image/webp;base64,([^"]*)" width="(\d+)" height="(\d+)"', page)
    assert len(pages) == 2
    assert "The lines stand on 2 pages, and lines of one page are alike" in page
    for data, width, height in pages:
        with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
            assert (picture.format, picture.size) == ("WEBP", (int(width), int(height)))
            assert max(picture.size) <= 1400
    assert page.count("<figcaption>") >= 2
    small = write_comparison(
        tmp_path / "gt", [tmp_path / "gt"], tmp_path / "small.html", resamples=100, max_bytes=200_000
    )
    assert small.size <= 200_000


@pytest.mark.browser
def test_opens_from_disk_without_network_or_complaint(opened: Opened, one: Written, several: Written) -> None:
    for written in (one, several):
        page = opened.open(written.path)
        assert page.locator(".line").count() > 10
    assert opened.complaints == []
    assert all(url.startswith(("file:", "data:")) for url in opened.requests)
    assert [url for url in opened.requests if url.startswith("file:")] == [one.path.as_uri(), several.path.as_uri()]


@pytest.mark.browser
def test_filters_sorting_and_search_work(opened: Opened, one: Written) -> None:
    page = opened.open(one.path)
    data = payload(one.path)
    assert count(page) == 90
    page.select_option("#domain", label="Andalus")
    number = data["domains"].index("Andalus")
    assert count(page) == sum(line[2] == number for line in data["lines"])
    page.click("#reset")
    assert count(page) == 90
    page.select_option("#change", "better")
    assert all(change < 0 for change in errors_fewer(page))
    page.select_option("#change", "worse")
    assert all(change > 0 for change in errors_fewer(page))
    page.click("#reset")
    page.select_option("#sort", "better")
    changes = errors_fewer(page)
    assert changes == sorted(changes)
    assert changes[0] < 0
    page.select_option("#sort", "worse")
    changes = errors_fewer(page)
    assert changes == sorted(changes, reverse=True)
    page.select_option("#sort", "order")
    page.fill("#search", "ΠΝΕΥΜΑ")
    shows(page, r"\d of 90|[1-8]\d of 90")
    texts = page.locator(".row.ref .text").all_inner_texts() + page.locator(".row .text").all_inner_texts()
    assert 0 < count(page) < 90
    assert any("πνεῦμα" in text for text in texts)
    page.fill("#search", "nothing like this")
    shows(page, "0 of")
    assert "No line matches" in page.inner_text("#lines")


@pytest.mark.browser
def test_pages_turn_and_other_systems_can_be_compared(opened: Opened, one: Written) -> None:
    page = opened.open(one.path)
    first = page.locator(".line-head .code").all_inner_texts()
    page.locator(".forth").first.click()
    assert "Page 2 of 4" in page.locator(".where").first.inner_text()
    assert not set(first) & set(page.locator(".line-head .code").all_inner_texts())
    page.select_option("#before", label="greedy")
    page.select_option("#after", label="greedy")
    page.select_option("#change", "differ")
    assert count(page) == 0


@pytest.mark.browser
def test_domain_link_leads_to_its_lines(opened: Opened, several: Written) -> None:
    page = opened.open(several.path)
    link = page.locator("a[data-domain]").last
    name = link.inner_text()
    link.click()
    assert page.locator("#set").input_value() == "2"
    assert set(page.locator(".chip").all_inner_texts()) == {name}


@pytest.mark.browser
def test_markup_in_a_transcription_stays_text(opened: Opened, one: Written) -> None:
    page = opened.open(one.path)
    page.fill("#search", "onerror")
    shows(page, "1 of")
    assert page.evaluate("window.hacked") is None
    assert page.locator("#lines img[src=x]").count() == 0
    assert "</script><img src=x" in page.locator(".row.ref .text").inner_text()
    assert opened.complaints == []


@pytest.mark.browser
def test_right_to_left_lines_read_from_the_right(opened: Opened, one: Written) -> None:
    page = opened.open(one.path)
    page.select_option("#domain", label="Andalus")
    direction = "node => getComputedStyle(node).direction"
    assert page.locator(".row .text").first.evaluate(direction) == "rtl"
    page.select_option("#domain", label="13")
    assert page.locator(".row .text").first.evaluate(direction) == "ltr"


@pytest.mark.browser
def test_marks_are_never_torn_from_their_letter(opened: Opened, one: Written) -> None:
    page = opened.open(one.path)
    page.select_option("#domain", label="Latin")
    torn = "nodes => nodes.filter(n => /^\\p{M}/u.test(n.textContent)).length"
    assert page.locator("mark").evaluate_all(torn) == 0


@pytest.mark.browser
def test_images_are_shown(opened: Opened, one: Written) -> None:
    page = opened.open(one.path)
    decoded = "async images => (await Promise.all(images.map(i => i.decode()))).length"
    assert page.locator(".line img").evaluate_all(decoded) == 25


@pytest.mark.browser
def test_dark_follows_the_system_and_the_button(opened: Opened, one: Written) -> None:
    page = opened.open(one.path)
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(background)
    assert dark != light
    page.click("#theme")
    assert page.evaluate(background) == light
    page.emulate_media(color_scheme="light")
    page.click("#theme")
    assert page.evaluate(background) == dark
    page.emulate_media(media="print")
    assert page.evaluate(background) == "rgb(255, 255, 255)"


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_width_needs_horizontal_scrolling(opened: Opened, one: Written, several: Written, width: int) -> None:
    opened.page.set_viewport_size({"width": width, "height": 800})
    for written in (one, several):
        page = opened.open(written.path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1400])
def test_no_choice_is_cut_off_and_signs_are_named(
    opened: Opened, make_run: MakeRun, tmp_path: Path, width: int
) -> None:
    folder = make_run(tmp_path / "run", lines=20, systems=("plain reading", "learning from 24 corrected lines"))
    table = pq.read_table(folder / "predictions.parquet").to_pylist()
    for row in table:
        row["reference"] += " man\ua770"
        row["hypothesis"] += " man\ua770" if row["system"].startswith("learning") else " manu"
    pq.write_table(pa.Table.from_pylist(table), folder / "predictions.parquet")
    opened.page.set_viewport_size({"width": width, "height": 900})
    page = opened.open(write_report([folder], resamples=100, with_images=False).path)
    natural = """selects => selects.map(select => {
        const given = select.getBoundingClientRect().width
        select.style.width = 'auto'
        return [given, select.getBoundingClientRect().width]
    })"""
    for shown, needed in page.locator(".filters select").evaluate_all(natural):
        assert shown >= needed - 1
    assert page.get_by_text("modifier letter us", exact=False).and_(page.locator(":visible")).count() > 0
    page.evaluate("document.fonts.ready")
    fonts = page.evaluate("[...document.fonts].map(font => [font.family, font.status])")
    assert [(family.strip('"'), status) for family, status in fonts] == [("Report signs", "loaded")]
    assert not opened.complaints
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_text_has_enough_contrast_in_both_themes(opened: Opened, one: Written) -> None:
    page = opened.open(one.path)
    ratio = """([ink, ground]) => {
      const style = getComputedStyle(document.documentElement);
      const light = (name) => {
        const hex = style.getPropertyValue(name).trim().slice(1);
        const [r, g, b] = [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
          .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const [a, b] = [light(ink), light(ground)];
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    }"""
    pairs = [
        (ink, ground) for ink in ("--ink", "--muted", "--before", "--after") for ground in ("--paper", "--surface")
    ]
    pairs += [("--ink", "--before-tint"), ("--ink", "--after-tint"), ("--muted", "--sunken")]
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert {
            pair: page.evaluate(ratio, list(pair)) for pair in pairs if page.evaluate(ratio, list(pair)) < 4.5
        } == {}


@pytest.mark.browser
def test_controls_are_labelled_and_tables_have_heads(opened: Opened, one: Written) -> None:
    page = opened.open(one.path)
    unlabelled = "nodes => nodes.filter(n => !n.labels.length && !n.getAttribute('aria-label')).length"
    assert page.locator("select, input").evaluate_all(unlabelled) == 0
    assert page.locator("table:not(.settings)").evaluate_all("t => t.every(x => x.querySelector('thead th[scope]'))")
    assert page.locator("svg.chart").evaluate_all("s => s.every(x => x.getAttribute('aria-label'))")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"


@pytest.mark.browser
def test_prints_to_a_pdf_with_the_settings_open(opened: Opened, one: Written) -> None:
    page = opened.open(one.path)
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert page.locator("details.print").evaluate_all("nodes => nodes.every(node => node.open)")


@pytest.mark.browser
def test_tables_are_copied_for_the_paper(chromium: Any, several: Written) -> None:
    context = chromium.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = Opened(context.new_page()).open(several.path)
    page.locator('button[data-table="main"][data-copy="tex"]').click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").startswith("\\begin{table}")
    context.close()


def test_a_model_that_does_not_read_is_not_celebrated(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", lines=40, systems=("beam", "fada"))
    table = pq.read_table(folder / "predictions.parquet").to_pylist()
    for row in table:
        keep = len(row["reference"]) // (3 if row["system"] == "fada" else 5)
        row["hypothesis"] = row["reference"][:keep]
    pq.write_table(pa.Table.from_pylist(table), folder / "predictions.parquet")
    written = write_report([folder], resamples=200, with_images=False)
    assert written.views[0].unread
    page = written.path.read_text("utf-8")
    assert "The model does not read yet" in page
    assert "larger than chance" not in page
    assert not any(row.best for row in written.views[0].results)


def test_the_page_tells_when_and_how_it_was_made(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "my run", lines=10)
    subprocess.run([*FADA, "report", str(folder), "--no-images"], check=True, capture_output=True)
    page = (folder / "report.html").read_text("utf-8")
    assert re.search(r"<dt>Made</dt><dd><bdi>20\d\d-\d\d-\d\d \d\d:\d\d", page)
    assert "<dt>Command</dt><dd><bdi>fada report " in page
    assert "my run&#39; --no-images" in page


def test_a_run_with_relative_paths_is_reported_from_another_folder(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = make_run(project / "runs" / "one", lines=8, images=project / "lines.parquet")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    settings = config.get("settings", config)
    settings["data"] = ["lines.parquet"]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    monkeypatch.chdir(elsewhere)
    assert write_report([folder], resamples=0).images == 8
