"""Reading ALTO and PAGE, also the broken, the hostile and the odd ones."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree
from PIL import Image

from fada.data.crop import PageCrop
from fada.data.formats.pages import read_pages
from fada.data.formats.xml import MAX_XML_BYTES, allot, parse, points
from fada.data.source import read_lines
from fada.data.write import convert
from fada.errors import FadaError
from tests.support import xml_pages
from tests.support.types import crop_of


def ink_of(line: Any) -> int:
    """The darkest grey in a line's image: which of the three lines of the page it shows."""
    return int(np.asarray(line.load_image()).min())


@pytest.mark.parametrize("name", xml_pages.EXAMPLES)
def test_every_variant_gives_its_texts_in_reading_order(tmp_path: Path, name: str) -> None:
    lines = read_lines(xml_pages.write_example(tmp_path, name))
    assert [line.text for line in lines] == xml_pages.EXAMPLES[name][1]
    assert not lines.skipped
    assert all(line.load_image().mode == "L" for line in lines)


@pytest.mark.parametrize(
    ("name", "ids", "inks"),
    [
        ("alto2", ["L1", "L2", "L3"], [10, 60, 110]),
        ("alto3", ["x1", "x2", "x3"], [10, 60, 110]),
        ("alto4", ["eSc_2", "eSc_1", "eSc_3"], [60, 10, 110]),
        ("page2013", ["r2l1", "r1l1", "r1l2"], [110, 10, 60]),
        ("page2019", ["l2", "l1", "l3"], [60, 10, 110]),
    ],
)
def test_each_line_shows_its_own_part_of_the_page(tmp_path: Path, name: str, ids: list[str], inks: list[int]) -> None:
    lines = list(read_lines(xml_pages.write_example(tmp_path, name)))
    assert [line.extra["line_id"] for line in lines] == ids
    assert [ink_of(line) for line in lines] == inks


def test_ids_are_unique_across_pages_that_use_the_same_ones(tmp_path: Path) -> None:
    for stem in ("a", "b"):
        xml_pages.write_example(tmp_path, "alto4", stem)
    ids = [line.id for line in read_lines(tmp_path)]
    assert ids == ["a#eSc_2", "a#eSc_1", "a#eSc_3", "b#eSc_2", "b#eSc_1", "b#eSc_3"]


def test_duplicate_ids_in_one_file_keep_every_line(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path, "alto4")
    path.write_text(path.read_text(encoding="utf-8").replace("eSc_1", "eSc_2"), encoding="utf-8")
    lines = read_lines(path)
    assert [line.id for line in lines] == ["page#eSc_2", "page#eSc_2~2", "page#eSc_3"]
    assert "taken" in lines.notes[0]


def test_outside_of_the_polygon_is_filled_with_paper(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path, "alto4")
    triangle = 'POINTS="20,110 380,110 20,150"'
    text = path.read_text(encoding="utf-8").replace(f'POINTS="{xml_pages.corners(1)}"', triangle)
    path.write_text(text, encoding="utf-8")
    image = np.asarray(next(iter(read_lines(path))).load_image())
    assert image.shape == (41, 361)
    assert (image[25:, 250:] == 220).all()
    assert image.min() == 60


def test_grow_widens_the_outline_upwards_most(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path, "alto4")
    plain, grown = crop_of(next(iter(read_lines(path)))), crop_of(next(iter(read_lines(path, grow=0.25))))
    assert grown.box == (plain.box[0] - 4, plain.box[1] - 10, plain.box[2] + 4, plain.box[3] + 4)
    assert grown.load().size == (plain.load().size[0] + 8, plain.load().size[1] + 14)


def test_an_image_of_another_size_is_scaled_with_a_note(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path, "page2013")
    xml_pages.draw_page(tmp_path / "page.png", (200, 150), 0.5)
    lines = read_lines(path)
    first = next(line for line in lines if line.text == "first line")
    list(lines)
    assert first.load_image().size == (181, 21)
    assert ink_of(first) == 10
    assert len(lines.notes) == 1
    assert "scaled by 0.500" in lines.notes[0]


@pytest.mark.parametrize("stored", [True, False])
def test_a_photograph_with_an_orientation_tag_is_cut_where_its_outlines_say(tmp_path: Path, stored: bool) -> None:
    path = xml_pages.write_example(tmp_path, "page2019")
    tag = Image.Exif()
    tag[0x0112] = 6  # to be turned clockwise by a quarter
    with Image.open(tmp_path / "page.png") as image:
        (image if stored else image.rotate(90, expand=True)).save(tmp_path / "page.png", exif=tag)
    lines = read_lines(path)
    assert [ink_of(line) for line in lines] == [60, 10, 110]
    assert [crop_of(line).page_size for line in lines] == [xml_pages.SIZE] * 3
    assert any("orientation tag" in note for note in lines.notes) == stored


def test_units_without_a_page_size_need_the_resolution(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path, "alto2")
    path.write_text(path.read_text(encoding="utf-8").replace('WIDTH="800" HEIGHT="600"', "", 1), encoding="utf-8")
    lines = read_lines(path)
    assert list(lines) == []
    assert lines.skipped_count == 3
    assert "mm10" in lines.skipped[0].reason
    with Image.open(tmp_path / "page.png") as image:
        image.save(tmp_path / "page.png", dpi=(127, 127))
    assert [ink_of(line) for line in read_lines(path)] == [10, 60, 110]


def test_inch1200_is_understood(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path, "alto2")
    path.write_text(path.read_text(encoding="utf-8").replace("mm10", "inch1200"), encoding="utf-8")
    assert [ink_of(line) for line in read_lines(path)] == [10, 60, 110]


def test_a_flat_or_empty_outline_falls_back_and_else_is_skipped_with_its_reason(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path, "alto4")
    flat = path.read_text(encoding="utf-8").replace(f'POINTS="{xml_pages.corners(1)}"', 'POINTS="20,110 20,150 20,110"')
    path.write_text(flat, encoding="utf-8")
    assert [ink_of(line) for line in read_lines(path)] == [60, 10, 110]
    path = xml_pages.write_example(tmp_path, "page2019")
    flat = path.read_text(encoding="utf-8").replace(xml_pages.corners(0), "50,30 50,70 50,50")
    path.write_text(flat, encoding="utf-8")
    lines = read_lines(path)
    assert [line.extra["line_id"] for line in lines] == ["l2", "l3"]
    assert "no area" in lines.skipped[0].reason
    assert lines.skipped[0].source == "page.xml#l1"


@pytest.mark.parametrize(
    "points", ["0,0 1e300,0 300,1e300", "0,0 300,0 300,1e6 0,1e6", "-1e308,0 300,0 300,40 0,1e308"]
)
def test_an_outline_far_beyond_the_page_is_cut_at_once(tmp_path: Path, points: str) -> None:
    path = xml_pages.write_example(tmp_path, "page2019")
    text = path.read_text(encoding="utf-8")
    assert xml_pages.corners(0) in text
    baseline = '<Baseline points="0,1.7e308 300,1.7e308"/>'
    path.write_text(
        text.replace(f'points="{xml_pages.corners(0)}"/>', f'points="{points}"/>{baseline}'), encoding="utf-8"
    )
    lines = read_lines(path, grow=0.15)
    assert len([image for _, image in lines.with_images() if image.size <= xml_pages.SIZE]) == 3
    for line in lines:
        assert all(-400 <= x <= 800 and -300 <= y <= 600 for x, y in (*crop_of(line).polygon, *crop_of(line).baseline))


def test_a_polygon_outside_of_the_page_is_skipped_and_one_across_its_edge_is_cut(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path, "page2019")
    text = path.read_text(encoding="utf-8")
    text = text.replace(xml_pages.corners(0), "500,30 900,30 900,70 500,70")
    text = text.replace(xml_pages.corners(2), "-50,190 9999,190 9999,230 -50,230")
    path.write_text(text, encoding="utf-8")
    lines = read_lines(path)
    assert [line.load_image().size for line in lines] == [(361, 41), (400, 41)]
    assert [one.source for one in lines.skipped] == ["page.xml#l1"]
    assert "outside of the page" in lines.skipped[0].reason


ENTITY_BOMB = """<?xml version="1.0"?>
<!DOCTYPE alto [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">
<!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;"><!ENTITY e "&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;">]>
<alto><Layout><Page><PrintSpace><TextBlock><TextLine ID="l"><String CONTENT="&e;"/></TextLine></TextBlock></PrintSpace>
</Page></Layout></alto>"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_an_entity_bomb_is_refused_in_any_encoding_and_other_files_are_read(tmp_path: Path, encoding: str) -> None:
    xml_pages.write_example(tmp_path, "alto4")
    bomb = ENTITY_BOMB.replace('"1.0"', f'"1.0" encoding="{encoding}"', 1)
    (tmp_path / "bomb.xml").write_bytes(bomb.encode(encoding))
    lines = read_lines(tmp_path)
    assert len(list(lines)) == 3
    assert [one.source for one in lines.skipped] == ["bomb.xml"]
    assert "entities" in lines.skipped[0].reason


def test_an_external_entity_is_refused_and_never_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("password", encoding="utf-8")
    xml_pages.write_example(tmp_path, "page2013")
    (tmp_path / "evil.xml").write_text(
        f'<!DOCTYPE PcGts [<!ENTITY x SYSTEM "file://{tmp_path}/secret.txt">]>'
        "<PcGts><Page><TextRegion><TextLine><TextEquiv><Unicode>&x;</Unicode></TextEquiv></TextLine></TextRegion></Page></PcGts>",
        encoding="utf-8",
    )
    lines = read_lines(tmp_path)
    assert len(list(lines)) == 3
    assert "entities" in lines.skipped[0].reason
    assert not any("password" in (line.text or "") for line in lines)


def test_a_doctype_that_points_elsewhere_is_not_loaded() -> None:
    tree = parse(b'<!DOCTYPE alto SYSTEM "http://example.invalid/alto.dtd"><alto/>', "x.xml")
    assert tree.getroot().tag == "alto"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"<alto><Layout>", "not well-formed"),
        (b"\xff\xfe\x00garbage", "not well-formed"),
        ('<?xml version="1.0" encoding="UTF-8"?><alto>é</alto>'.encode("latin-1"), "not well-formed"),
        (b"<mets/>", "neither ALTO nor PAGE"),
    ],
)
def test_a_bad_file_is_skipped_with_its_reason_and_the_good_one_is_read(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    xml_pages.write_example(tmp_path, "alto4", "good")
    (tmp_path / "bad.xml").write_bytes(content)
    lines = read_lines(tmp_path)
    assert len(list(lines)) == 3
    assert [one.source for one in lines.skipped] == ["bad.xml"]
    assert reason in lines.skipped[0].reason


def test_a_missing_image_skips_its_lines_but_not_their_text(tmp_path: Path) -> None:
    xml_pages.write_example(tmp_path, "alto4", "a")
    xml_pages.write_example(tmp_path, "alto4", "b")
    (tmp_path / "a.png").unlink()
    lines = read_lines(tmp_path)
    assert {line.id[0] for line in lines} == {"b"}
    assert lines.skipped_count == 3
    assert "was not found" in lines.skipped[0].reason
    assert len([line for line in lines.texts() if line.id.startswith("a")]) == 2


def test_a_broken_or_huge_page_image_skips_its_page_only(tmp_path: Path) -> None:
    for stem in ("cut", "good", "huge"):
        xml_pages.write_example(tmp_path, "alto4", stem)
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:20])
    xml_pages.pixel_bomb(tmp_path / "huge.png")
    lines = read_lines(tmp_path)
    assert {line.id.partition("#")[0] for line in lines} == {"good"}
    assert lines.skipped_count == 6


def test_a_page_image_cut_off_in_the_middle_is_found_when_it_is_loaded(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path, "alto4")
    noise = np.random.default_rng(0).integers(0, 255, (300, 400), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "page.png")
    (tmp_path / "page.png").write_bytes((tmp_path / "page.png").read_bytes()[:20_000])
    lines = read_lines(path)
    assert list(lines.with_images()) == []
    assert lines.skipped_count == 3


def test_an_image_path_out_of_the_folder_is_refused_unless_allowed(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path / "in" / "deep", "page2013")
    outside = xml_pages.draw_page(tmp_path / "other.png")
    path.write_text(path.read_text(encoding="utf-8").replace("page.png", "../../other.png"), encoding="utf-8")
    (path.parent / "page.png").unlink()
    lines = read_lines(path)
    assert list(lines) == []
    assert "outside" in lines.skipped[0].reason
    assert [crop_of(line).page.resolve() for line in read_lines(path, allow_outside=True)] == [outside] * 3


def test_a_linked_image_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path / "in", "page2013")
    (tmp_path / "in" / "page.png").rename(tmp_path / "real.png")
    (tmp_path / "in" / "page.png").symlink_to(tmp_path / "real.png")
    assert list(read_lines(path)) == []
    assert len(list(read_lines(path, allow_outside=True))) == 3


def test_transkribus_folders_with_images_one_folder_up(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path, "page2013")
    (tmp_path / "page").mkdir()
    moved = path.rename(tmp_path / "page" / "page.xml")
    ids = [[line.id for line in read_lines(source)] for source in (tmp_path, moved.parent, moved)]
    assert len(ids[0]) == 3
    assert ids[0] == ids[1] == ids[2]


def test_a_page_exported_as_alto_and_as_page_is_read_once(tmp_path: Path) -> None:
    for folder, name in (("alto", "alto3"), ("page", "page2013")):
        xml_pages.write_example(tmp_path, name)
        (tmp_path / folder).mkdir()
        (tmp_path / "page.xml").rename(tmp_path / folder / "page.xml")
    lines = read_lines(tmp_path)
    assert len(list(lines)) == 3
    assert "the same page" in lines.skipped[0].reason


def test_images_in_a_folder_of_their_own(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path / "xml", "alto4")
    (tmp_path / "scans").mkdir()
    (path.parent / "page.png").rename(tmp_path / "scans" / "page.png")
    assert list(read_lines(path)) == []
    assert len(list(read_lines(path, images=tmp_path / "scans"))) == 3


def test_images_of_subfolders_are_found_in_the_same_subfolders(tmp_path: Path) -> None:
    for folder in ("première", "deuxième"):
        (tmp_path / "scans" / folder).mkdir(parents=True)
        path = xml_pages.write_example(tmp_path / "xml" / folder, "alto4")
        (path.parent / "page.png").rename(tmp_path / "scans" / folder / "page.png")
    pages = {crop_of(line).page for line in read_lines(tmp_path / "xml", images=tmp_path / "scans")}
    assert {page.relative_to(tmp_path / "scans").parts[0] for page in pages} == {"première", "deuxième"}


@pytest.mark.parametrize(
    "text",
    ["שלום עולם", "e\u0301\u0323 a\u0303", "\ue5d0\uf1ac private use", "x" * 5000, "<&>\"'", "\U0001f600 \U00010330"],
    ids=["right to left", "combining marks", "MUFI", "5000 characters", "markup", "astral"],
)
@pytest.mark.parametrize("name", ["alto4", "page2013"])
def test_text_is_kept_as_it_is(tmp_path: Path, name: str, text: str) -> None:
    from xml.sax.saxutils import escape

    path = xml_pages.write_example(tmp_path, name)
    old = {"alto4": "a saint denis", "page2013": "second line"}[name]
    escaped = escape(text, {'"': "&quot;"})
    path.write_text(path.read_text(encoding="utf-8").replace(old, escaped, 1), encoding="utf-8")
    assert text in [line.text for line in read_lines(path)]


@pytest.mark.parametrize(
    "text", ["1,2 3,4", "1 2 3 4", "1,2,3,4", " 1.0,2.0  3.0,4.0 ", "1, 2 3, 4", "1e0,2 3,4.", "1,2 3,4 5"]
)
def test_points_in_every_notation(text: str) -> None:
    assert points(text) == ((1.0, 2.0), (3.0, 4.0))


# --- fuzzing ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(list(xml_pages.EXAMPLES)),
    places=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=6), st.integers(0, 30)), min_size=1, max_size=4),
)
def test_damaged_bytes_never_crash_the_reader(tmp_path: Path, name: str, places: Any) -> None:
    data = xml_pages.EXAMPLES[name][0].encode()
    for where, new, remove in places:
        start = int(where * len(data))
        data = data[:start] + new + data[start + remove :]
    folder = tmp_path / "fuzz"
    xml_pages.write_example(folder, "alto4", "good")
    (folder / "page.xml").write_bytes(data)
    lines = read_lines(folder)
    found = list(lines)
    assert len([line for line in found if line.id.startswith("good#")]) == 3
    for line in found:
        line.load_image()


TAGS = [
    "TextLine",
    "TextRegion",
    "TextBlock",
    "TextEquiv",
    "Unicode",
    "String",
    "HYP",
    "Coords",
    "Baseline",
    "Word",
    "Glyph",
]
TAGS += [
    "Page",
    "Shape",
    "Polygon",
    "ReadingOrder",
    "OrderedGroup",
    "RegionRefIndexed",
    "ElementRef",
    "Layout",
    "Description",
]
NAMES = [
    "id",
    "ID",
    "points",
    "POINTS",
    "CONTENT",
    "HPOS",
    "VPOS",
    "WIDTH",
    "HEIGHT",
    "index",
    "BASELINE",
    "custom",
    "regionRef",
]
VALUES = st.one_of(
    st.sampled_from(
        ["", "nan", "inf", "-1", "1e999", "0", "10,20 30,40", "10,10 90,10 90,50", "readingOrder {index:9;}", "a"]
    ),
    st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), max_size=8),
)
ATTRIBUTES = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4)
ELEMENTS: st.SearchStrategy[Any] = st.recursive(
    st.tuples(st.sampled_from(TAGS), ATTRIBUTES, st.just([])),
    lambda inner: st.tuples(st.sampled_from(TAGS), ATTRIBUTES, st.lists(inner, max_size=4)),
    max_leaves=12,
)


def build(element: Any) -> Any:
    tag, attributes, children = element
    built = etree.Element(tag, attributes)
    built.text = attributes.get("CONTENT", "x")
    built.extend(build(child) for child in children)
    return built


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(root=st.sampled_from(["alto", "PcGts"]), children=st.lists(ELEMENTS, max_size=4))
def test_any_tree_of_known_elements_is_read_or_skipped(tmp_path: Path, root: etree._Element, children: Any) -> None:
    tree = etree.Element(root)
    etree.SubElement(tree, "Page").extend(build(child) for child in children)
    folder = tmp_path / "any"
    xml_pages.draw_page(folder / "x.png")
    (folder / "x.xml").write_bytes(etree.tostring(tree, encoding="utf-8"))
    expected = sum(len(page.lines) for page in read_pages(parse(etree.tostring(tree), "x"), "x"))
    lines = read_lines(folder)
    found = list(lines.with_images())
    assert len(found) + sum("#" in one.source for one in lines.skipped) == expected
    assert len({line.id for line, _ in found}) == len(found)
    assert all(min(image.size) >= 1 for _, image in found)


# --- sharing out words -----------------------------------------------------------------------------------------------

WORDS = st.lists(st.text("abcαβ", min_size=1, max_size=5), max_size=12)


@settings(max_examples=150, deadline=None)
@given(parts=WORDS, slots=st.lists(st.text("abcαβ", max_size=5), min_size=1, max_size=8))
def test_words_are_shared_out_in_order_and_none_is_lost(parts: Any, slots: list[str]) -> None:
    shares = allot(parts, slots, " ")
    assert len(shares) == len(slots)
    assert [place for share in shares for place in share] == list(range(len(parts)))


def test_words_stay_near_their_old_boxes() -> None:
    slots = ["in", "principio", "erat", "verbum"]
    assert [list(share) for share in allot(["principio", "erat", "verbvm"], slots, " ")] == [[], [0], [1], [2]]
    assert [list(share) for share in allot(["in", "prin", "cipio", "erat", "verbum"], slots, " ")] == [
        [0],
        [1, 2],
        [3],
        [4],
    ]


def test_a_crop_knows_its_box() -> None:
    crop = PageCrop(page=Path("page.png"), page_size=(100, 50), polygon=((-5.0, 10.2), (120.0, 10.2), (50.0, 30.7)))
    assert crop.box == (0, 10, 100, 32)


def test_a_file_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fada.data.formats.xml.MAX_XML_BYTES", 10)
    with pytest.raises(FadaError, match="limit"):
        parse(b"<alto>          </alto>", "x.xml")


def test_a_file_that_is_too_large_is_not_even_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    xml_pages.write_example(tmp_path, "alto4")
    with (tmp_path / "large.xml").open("wb") as stream:
        stream.write(b"<alto>")
        stream.truncate(MAX_XML_BYTES + 1)
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) if path.stem != "large" else pytest.fail("read"))
    lines = read_lines(tmp_path)
    assert len(list(lines)) == 3
    assert "limit" in lines.skipped[0].reason


def test_images_that_no_line_is_on_are_told(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path, "page2013")
    for name in ("page_2.png", "page.lines.png"):
        shutil.copy(path.parent / "page.png", tmp_path / name)
    lines = read_lines(tmp_path)
    assert len(list(lines)) == 3
    assert lines.notes == ["images that belong to none of the lines that were read: 1 (page_2.png)."]


def test_text_is_converted_without_images(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path, "page2013")
    texts = [line.text for line in read_lines(path).texts()]
    (tmp_path / "page.png").unlink()
    convert(read_lines(path), tmp_path / "lines.jsonl")
    assert [line.text for line in read_lines(tmp_path / "lines.jsonl").texts()] == texts
    with pytest.raises(FadaError, match="no line to write"):
        convert(read_lines(path), tmp_path / "pairs", "pairs")
