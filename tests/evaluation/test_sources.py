import json
from pathlib import Path

import pytest

from fada.errors import FadaError
from fada.evaluation.sources import read_systems
from tests.support.commands import run_fada

TEXTS = ["in principio erat uerbum", "et uerbum erat apud deum", "et deus erat uerbum", "hoc erat in principio"]


def page(path: Path, texts: list[str], ids: str = "l") -> Path:
    """A PAGE file with one line for each text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(
        f'<TextLine id="{ids}{i}"><Coords points="0,{i} 9,{i} 9,{i + 1} 0,{i + 1}"/>'
        f"<TextEquiv><Unicode>{text}</Unicode></TextEquiv></TextLine>"
        for i, text in enumerate(texts)
    )
    namespace = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"
    path.write_text(
        f'<?xml version="1.0" encoding="UTF-8"?><PcGts xmlns="{namespace}"><Page imageFilename="p.png" '
        f'imageWidth="10" imageHeight="10"><TextRegion id="r"><Coords points="0,0 9,0 9,9 0,9"/>{lines}'
        "</TextRegion></Page></PcGts>",
        encoding="utf-8",
    )
    return path


def test_lines_whose_ids_share_nothing_are_paired_by_order_and_it_is_said(tmp_path: Path) -> None:
    gold = page(tmp_path / "gold.xml", TEXTS)
    systems = read_systems(gold, page(tmp_path / "other.xml", TEXTS, ids="line_"))
    assert systems.systems == {"other": TEXTS}
    assert "paired by their order" in systems.note
    told = run_fada("evaluate", gold, tmp_path / "other.xml")
    assert "paired by their order" in told.stderr
    assert (
        "paired by their order"
        in json.loads(run_fada("evaluate", gold, tmp_path / "other.xml", "--json").stdout)["note"]
    )


def test_lines_in_another_order_are_paired_by_their_text(tmp_path: Path) -> None:
    read = [text.replace("u", "v") for text in TEXTS]
    gold = page(tmp_path / "gold.xml", TEXTS)
    systems = read_systems(gold, page(tmp_path / "other.xml", read[::-1], ids="line_"))
    assert systems.systems == {"other": read}
    assert "paired by their text" in systems.note


@pytest.mark.parametrize("ending", ["txt", "xml"])
def test_pages_divided_into_other_lines_are_compared_as_a_whole(tmp_path: Path, ending: str) -> None:
    gold = page(tmp_path / "gold" / "p1.xml", TEXTS).parent
    page(gold / "p2.xml", TEXTS[:2])
    joined = {"p1": [" ".join(TEXTS[:2]), " ".join(TEXTS[2:])], "p2": [" ".join(TEXTS[:2])]}
    (tmp_path / "ocr").mkdir()
    for name, texts in joined.items():
        if ending == "txt":
            (tmp_path / "ocr" / f"{name}.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
        else:
            page(tmp_path / "ocr" / f"{name}.xml", texts, ids=f"{name}-x")
    systems = read_systems(gold, tmp_path / "ocr")
    assert "whole pages are compared" in systems.note
    assert systems.ids == ["p1", "p2"]
    assert systems.systems["ocr"] == systems.references
    assert json.loads(run_fada("evaluate", gold, tmp_path / "ocr", "--json").stdout)["evaluations"]["ocr"]["cer"] == 0


def test_as_many_lines_that_begin_elsewhere_are_compared_as_a_page(tmp_path: Path) -> None:
    gold = page(tmp_path / "gold" / "p1.xml", TEXTS).parent
    other = [TEXTS[0], "et uerbum erat", "apud deum", f"{TEXTS[2]} {TEXTS[3]}", ""]
    page(tmp_path / "other" / "p1.xml", other[:-1], ids="x")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "p1.txt").write_text("\n".join([*other[:2], *other[-1:], *other[2:]]), encoding="utf-8")
    (tmp_path / "text" / "p1.txt.provenance.json").write_text("{}", encoding="utf-8")
    for folder in ("other", "text"):
        systems = read_systems(gold, tmp_path / folder)
        assert "whole pages are compared" in systems.note
        assert systems.systems[folder] == systems.references
    read = [text.replace("erat", "eras") for text in TEXTS]
    systems = read_systems(gold, page(tmp_path / "read" / "p1.xml", read, ids="x"))
    assert "paired by their order" in systems.note


def test_ids_that_are_the_same_by_chance_pair_no_lines(tmp_path: Path) -> None:
    gold = page(tmp_path / "gold" / "p1.xml", ["Incipit", *TEXTS], ids="line_").parent
    page(gold / "p2.xml", TEXTS[1:], ids="eSc_")
    read = page(tmp_path / "read" / "p1.xml", TEXTS, ids="line_").parent
    page(read / "p2.xml", [" ".join(TEXTS[1:])], ids="line_")
    told = run_fada("evaluate", gold, read)
    assert "the same ids are of other lines), so whole pages are compared" in told.stderr
    assert read_systems(gold, read).systems["read"] == [" ".join(TEXTS), " ".join(TEXTS[1:])]
    half = page(tmp_path / "half" / "p1.xml", ["Incipit", TEXTS[0][1:]], ids="line_").parent
    systems = read_systems(gold, half)
    assert systems.ids == ["p1#line_0", "p1#line_1"]
    assert systems.note.startswith("half: 6 of 8 lines of the references missing (p1#line_2, ")


def test_lines_of_pages_in_a_table_are_compared_page_by_page(tmp_path: Path) -> None:
    gold = page(tmp_path / "gold" / "p1.xml", TEXTS).parent
    page(gold / "p2.xml", TEXTS[2:])
    rows = ["p1#line_1", " ".join(TEXTS)], ["p2#line_1", TEXTS[2]], ["p2#line_2", TEXTS[3]]
    (tmp_path / "read.tsv").write_text("id\ttext\n" + "".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    systems = read_systems(gold, tmp_path / "read.tsv")
    assert "whole pages are compared" in systems.note
    assert systems.systems == {"read": systems.references}
    assert systems.ids == ["p1", "p2"]


def test_pages_that_are_called_otherwise_are_named(tmp_path: Path) -> None:
    gold = page(tmp_path / "gold" / "p1.xml", TEXTS).parent
    page(gold / "Latin 17 f.2.xml", TEXTS)
    read = page(tmp_path / "read" / "p1.xml", [" ".join(TEXTS)], ids="x").parent
    page(read / "f2.xml", TEXTS, ids="x")
    told = run_fada("evaluate", gold, read).stderr
    assert "read: 1 of 2 pages of the references missing (Latin 17 f.2), 1 that they lack (f2)." in told
    assert "2 pages left out" in told


def test_a_source_without_any_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "read.tsv").write_text("id\ttext\na\tabc\n", encoding="utf-8")
    (tmp_path / "gold.tsv").write_bytes(b"")
    with pytest.raises(FadaError, match=r"gold\.tsv: no line could be read from it"):
        read_systems(tmp_path / "gold.tsv", tmp_path / "read.tsv")


def test_references_that_nobody_wrote_yet_are_told(tmp_path: Path) -> None:
    half = page(tmp_path / "half.xml", [*TEXTS[:2], "", ""])
    told = run_fada("evaluate", half, page(tmp_path / "read.xml", TEXTS)).stderr
    assert "2 of 4 references are empty, and whatever is read there counts as wrong" in told
    assert "are empty" not in run_fada("evaluate", page(tmp_path / "gold.xml", TEXTS), tmp_path / "read.xml").stderr
    done = run_fada("evaluate", tmp_path / "half.xml", tmp_path / "read.xml", "--skip-empty", "--json")
    found = json.loads(done.stdout)
    assert (found["left_out"], done.stderr.count("are empty")) == (2, 0)


def test_whole_texts_are_compared_on_request(tmp_path: Path) -> None:
    (tmp_path / "gt.txt").write_text("abc def\nghi\n", encoding="utf-8")
    (tmp_path / "ocr.txt").write_text("abc\ndef ghi\nx\n", encoding="utf-8")
    with pytest.raises(FadaError, match="To compare the whole texts add --pages"):
        run_fada("evaluate", tmp_path / "gt.txt", tmp_path / "ocr.txt")
    (found,) = json.loads(run_fada("evaluate", tmp_path / "gt.txt", tmp_path / "ocr.txt", "--pages", "--json").stdout)[
        "evaluations"
    ].values()
    assert (found["lines"], found["insertions"], found["substitutions"]) == (1, 2, 0)


def test_several_systems_are_tested_against_the_first(tmp_path: Path) -> None:
    rows = "".join(f"{i}\t{text}\n" for i, text in enumerate(TEXTS))
    for name, text in {"ref": rows, "a": rows.replace("u", "v"), "b": rows.replace("erat", "crat")}.items():
        (tmp_path / f"{name}.tsv").write_text("id\ttext\n" + text, encoding="utf-8")
    value = json.loads(run_fada("evaluate", *(tmp_path / f"{name}.tsv" for name in ("ref", "a", "b")), "--json").stdout)
    assert list(value["evaluations"]) == ["a", "b"]
    assert list(value["comparisons"]) == ["b"]


def test_equivalences_of_a_table_are_forgiven(tmp_path: Path) -> None:
    (tmp_path / "gt.txt").write_text("ſed ꝑdidit ¶ uerbum\n", encoding="utf-8")
    (tmp_path / "ocr.txt").write_text("sed perdidit uerbum\n", encoding="utf-8")
    (tmp_path / "same.txt").write_text("# medieval\nſ s\nꝑ=per\n¶\n", encoding="utf-8")
    files = [tmp_path / "gt.txt", tmp_path / "ocr.txt"]
    options = ["--equivalences", tmp_path / "same.txt", "--normalization", "spaces", "--json"]
    (found,) = json.loads(run_fada("evaluate", *files, *options).stdout)["evaluations"].values()
    assert found["cer"] == 0
    assert found["normalization"] == ["spaces", "ſ=s", "ꝑ=per", "¶="]
    (found,) = json.loads(run_fada("evaluate", *files, "--normalization", "ſ=s", "--json").stdout)[
        "evaluations"
    ].values()
    assert found["substitutions"] + found["insertions"] + found["deletions"] == 5


def test_a_model_that_does_not_read_yet_is_called_that(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("reference,a,b\nabcdefgh,xxxxxxxx,abxxxxxx\n", encoding="utf-8")
    columns = ["--hypothesis-column", "a", "--hypothesis-column", "b"]
    assert "No system reads yet: the lowest CER is 75.0 %" in run_fada("evaluate", tmp_path / "t.csv", *columns).stderr
    (tmp_path / "t.csv").write_text("reference,a,b\nabcdefgh,xxxxxxxx,abcdefgx\n", encoding="utf-8")
    assert "reads yet" not in run_fada("evaluate", tmp_path / "t.csv", *columns).stderr


def test_rows_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    (tmp_path / "gold.tsv").write_bytes("id\ttext\na\troy étoit\nb\tbon\n".encode("latin-1"))
    (tmp_path / "read.tsv").write_text("id\ttext\na\troy étoit\nb\tbon\n", encoding="utf-8")
    done = run_fada("evaluate", tmp_path / "gold.tsv", tmp_path / "read.tsv")
    assert "gold.tsv: 1 not read, the first gold.tsv:2: not UTF-8" in done.stderr


def test_domains_and_encodings_are_read_as_asked(tmp_path: Path) -> None:
    for century, text in (("13", TEXTS[0]), ("14", TEXTS[1])):
        page(tmp_path / "gold" / century / f"{century}.xml", [text])
        page(tmp_path / "read" / century / f"{century}.xml", [text[1:]])
    found = read_systems(tmp_path / "gold", tmp_path / "read", reading={"domain_from": "folder"})
    assert found.domains == ["13", "14"]
    done = run_fada("evaluate", tmp_path / "gold", tmp_path / "read", "--domain-from", "folder")
    assert "13" in done.output
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_bytes("é ſ\n".replace("ſ", "s").encode("latin-1"))
    with pytest.raises(FadaError, match="--encoding"):
        read_systems(tmp_path / "a.txt", tmp_path / "b.txt")
    assert read_systems(tmp_path / "a.txt", tmp_path / "b.txt", reading={"encoding": "latin-1"}).references == ["é s"]
    with pytest.raises(FadaError, match="references and hypotheses apart"):
        read_systems(tmp_path / "a.txt", reading={"encoding": "latin-1"})


def test_hocr_is_compared_like_alto(tmp_path: Path) -> None:
    gold = page(tmp_path / "gold.xml", TEXTS)
    spans = "".join(f'<span class="ocr_line" title="bbox 0 {i} 9 {i + 1}">{t}</span>' for i, t in enumerate(TEXTS))
    (tmp_path / "tesseract.hocr").write_text(
        f'<html xmlns="http://www.w3.org/1999/xhtml"><body><div class="ocr_page">{spans}</div></body></html>',
        encoding="utf-8",
    )
    assert read_systems(gold, tmp_path / "tesseract.hocr").systems == {"tesseract": TEXTS}


@pytest.mark.parametrize("cells", [None, ["", "", "", ""]])
@pytest.mark.parametrize("options", [["--clusters", "page"], ["--by", "page"], ["--pages"]])
def test_pages_are_refused_where_a_table_names_none(
    tmp_path: Path, cells: list[str] | None, options: list[str]
) -> None:
    paths = [write_rows(tmp_path / name, TEXTS, cells) for name in ("ref.tsv", "read.tsv")]
    with pytest.raises(FadaError, match=r"no column 'page'|ref\.tsv: of 4 of 4 lines the page is not known"):
        run_fada("evaluate", *paths, *options)


def test_rows_without_a_page_are_alone_and_those_with_one_together(tmp_path: Path) -> None:
    paths = [write_rows(tmp_path / name, TEXTS, ["1", "1", "", ""]) for name in ("ref.tsv", "read.tsv")]
    assert read_systems(*paths).columns["page"] == ["1", "1", None, None]
    paths = [write_rows(tmp_path / name, TEXTS, ["1", "1", "2", "2"]) for name in ("ref.tsv", "read.tsv")]
    assert read_systems(*paths, pages=True).ids == ["1", "2"]


def test_that_a_few_pages_give_poor_intervals_is_said(tmp_path: Path) -> None:
    texts = TEXTS * 2
    for pages, said in ((2, True), (8, False)):
        cells = [str(i % pages) for i in range(len(texts))]
        paths = [write_rows(tmp_path / name, texts, cells) for name in ("ref.tsv", "read.tsv")]
        told = run_fada("evaluate", *paths, "--clusters", "page").stderr
        assert ("only 2 of 'page' to resample" in told) == said


def test_tables_of_the_same_name_are_not_paired_by_the_numbers_of_their_rows(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "lines.tsv" for folder in ("gold", "read")]
    for path, texts, ids in zip(paths, (TEXTS, TEXTS[1:]), "ab", strict=True):
        path.parent.mkdir()
        write_rows(path, texts, None, ids)
    with pytest.raises(FadaError, match="share no line id"):
        read_systems(*paths)


def write_rows(path: Path, texts: list[str], pages: list[str] | None, ids: str = "l") -> Path:
    rows = [f"{ids}{i}\t{text}" + (f"\t{pages[i]}" if pages else "") for i, text in enumerate(texts)]
    head = "id\ttext" + ("\tpage" if pages else "")
    path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    return path
