"""Lines found by others: kraken as a process of its own, outlines in a JSON file."""

import json
import os
import sys
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from fada import FadaError
from fada.data.segment.photographs import Photograph
from fada.jobs.segmenters import segmenter

ALTO = """<?xml version="1.0"?>
<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Description><MeasurementUnit>pixel</MeasurementUnit>
<sourceImageInformation><fileName>{image}</fileName></sourceImageInformation></Description>
<Layout><Page ID="p" PHYSICAL_IMG_NR="1" WIDTH="300" HEIGHT="400"><PrintSpace>
<TextBlock ID="b"><TextLine ID="l1" BASELINE="20 60 280 62"><Shape><Polygon POINTS="20 30 280 30 280 70 20 70"/></Shape>
</TextLine><TextLine ID="l2" BASELINE="20 120 280 122"><Shape><Polygon POINTS="20 90 280 90 280 130 20 130"/></Shape>
</TextLine></TextBlock></PrintSpace></Page></Layout></alto>"""

STAND_IN = f"""#!{sys.executable}
import sys
from pathlib import Path
if sys.argv[1:] == ["--version"]:
    print("kraken, version 5.2.9")
    sys.exit()
a, i, image, out, *rest = sys.argv[1:]
assert (a, i) == ("-a", "-i") and rest[:2] == ["segment", "-bl"], sys.argv
if Path(image).stat().st_size < 300:
    sys.exit("cannot segment\\nValueError: nothing on it")
Path(out).write_text({ALTO!r}.format(image=image))
"""


@pytest.fixture
def page(tmp_path: Path) -> Photograph:
    """A page that a detector need not understand."""
    image = Image.effect_noise((300, 400), 20)
    ImageDraw.Draw(image).rectangle((20, 40, 280, 60), fill=30)
    image.save(tmp_path / "folio.png")
    return Photograph("folio", tmp_path / "folio.png")


@pytest.fixture
def kraken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name on the PATH, which writes what kraken writes."""
    program = tmp_path / "bin" / "kraken"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("kraken")
@pytest.mark.skipif(os.name == "nt", reason="kraken is not made for Windows")
def test_kraken_is_called_and_its_lines_are_read(page: Photograph) -> None:
    found = segmenter("kraken", right_to_left=True)(page, page.load())
    assert found.size == (300, 400)
    assert [line.outline[0] for line in found.lines] == [(20.0, 30.0), (20.0, 90.0)]
    assert found.lines[1].baseline == ((20.0, 120.0), (280.0, 122.0))
    assert found.segmenter == "kraken 5.2.9, segment -bl -d horizontal-rl"


@pytest.mark.usefixtures("kraken")
@pytest.mark.skipif(os.name == "nt", reason="kraken is not made for Windows")
def test_the_last_words_of_a_kraken_that_fails_are_passed_on(page: Photograph) -> None:
    with pytest.raises(FadaError, match=r"folio\.png: .*kraken ended with 1: ValueError: nothing on it"):
        segmenter("kraken")(page, Image.new("L", (30, 40)))


def test_without_kraken_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FadaError, match="kraken is not on the PATH"):
        segmenter("kraken")
    with pytest.raises(FadaError, match="'krakn' is not known; there are: detector, kraken"):
        segmenter("krakn")


def test_outlines_of_another_tool_are_taken_in_their_order(page: Photograph, tmp_path: Path) -> None:
    file = tmp_path / "boxes.json"
    outline = [[20, 90], [280, 90], [280, 130]]
    lines = [
        {"outline": outline, "baseline": [[20, 120], [280, 122]]},
        {"outline": [[0, 0], [90, 0], [90, 20], [0, 20]], "zone": "margin"},
    ]
    for name in ("folio.png", "folio"):
        file.write_text(json.dumps({name: lines}))
        found = segmenter(str(file))(page, page.load())
        assert [(line.zone, line.block, len(line.outline)) for line in found.lines] == [
            ("main", 0, 3),
            ("margin", 1, 4),
        ]
        assert found.lines[0].baseline == ((20, 120), (280, 122))
        assert found.segmenter == "outlines of boxes.json"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"other.png": []}', "neither 'folio.png' nor 'folio' is a page of"),
        ('{"folio.png": [{"outline": [[900, 900], [950, 900], [950, 950]]}]}', "line 1: .* lies outside of the page"),
        ('{"folio.png": [{"outline": [[1, 2]]}]}', "boxes.json, pages.folio.png.0.outline"),
        ('{"folio.png": [{"outline": [[1, 2], [3, 4], [5, "x"]]}]}', "boxes.json, pages.folio.png.0.outline"),
        ("[]", "boxes.json, pages"),
        ("{", "not readable as JSON"),
    ],
)
def test_a_bad_file_of_outlines_gets_a_sentence(page: Photograph, tmp_path: Path, content: str, told: str) -> None:
    file = tmp_path / "boxes.json"
    file.write_text(content)
    with pytest.raises(FadaError, match=told):
        segmenter(str(file))(page, page.load())
