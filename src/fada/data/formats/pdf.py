"""Searchable PDF: the page images, with the text invisible where it stands, to be found, selected and copied."""

import ctypes
import io
import math
import zlib
from base64 import b85decode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from fada.common.files import replacing
from fada.data.crop import PageCrop, Point, area
from fada.data.formats.sheets import Sheet, SheetLine, box_of, sheets
from fada.data.formats.text import one_line
from fada.data.formats.xml import xml_text
from fada.data.images import load_upright
from fada.data.line import Provenance, Transcription

_DPI = 300.0
"""Of an image that does not say its resolution."""
_QUALITY = 90  # of JPEG, for images that are stored otherwise
_ABOVE, _BELOW = 0.75, 0.25
"""Shares of a line's height above and below its baseline, where it has none."""
_ADVANCE = 0.5
"""Width of every character of the font, in its size."""
_FONT = zlib.decompress(
    b85decode(
        b"c-n<hy-LGS7(F+MtyNJGA0Uc@n;;^g2vUke7nS+|dRt=~NYc<h>QWpXeFVY5#leSgaB%Py1P4clILC8uLeU2F!1v`l=YIEo=UxH<"
        b"U=CL>VIQ4rZ6Bce2#8IpXU#xHSU`{bhJ2^xUtT~%yr|T6<++@%I;<ZUyKM^QT2f~H&e&)N{gH@u|20#=?=)q$|4H#cjv~%A$Y;sz"
        b"PzLVZ?R|y(m3$m^dVQ`F#<5z5^2#WFR?4SKdtWfk59E+IA~tOn`s8#RiJdq<n#9y5p%r7ojoh)Oi1`XLu<$>AoxV?K_jc-m-kzuW"
        b"={9|*$!vA&Rc4{Tmg-=(G`Eu^&B<Ht9ts5<X1YLW;>JLcOk^D;JwsSZS;2Bv8(748Ru`0B3x{6MYxr*6Z4G?cMGYZ_@c2)7XuyYy"
        b"I-`XFYl&{={11Est&~BP"
    )
)
"""A TrueType font of one empty glyph, half as wide as it is high: what is written with it has a place and no picture.
It serves every character of every script; which one is meant stands in the table that PDF calls ToUnicode."""


class _Piece(NamedTuple):
    """A word, or a whole line, with where its baseline begins, how long that is and how it slopes; in pixels."""

    text: str
    start: Point
    width: float
    angle: float
    size: float


def write(results: Iterable[Transcription], destination: Path, *, format: str, provenance: Provenance) -> list[Path]:
    """One file, a page for each page image (or image of a single line)."""
    import pypdfium2

    document = pypdfium2.PdfDocument.new()
    try:
        for sheet in sheets(results):
            _add_page(document, sheet)
        with replacing(destination) as temporary, temporary.open("wb") as file:
            stream = _Stream(file)
            document.save(stream)
            if stream.error is not None:
                raise stream.error
    finally:
        document.close()
    return [destination]


class _Stream:
    """A file that pdfium writes to; it goes on when it cannot, so that the first error is kept for afterwards."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> None:
        if self.error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self.error = error


def _add_page(document: Any, sheet: Sheet) -> None:
    import pypdfium2

    picture, dpi = _picture(sheet)
    scale = 72.0 / dpi  # points per pixel
    width, height = sheet.size[0] * scale, sheet.size[1] * scale
    page = document.new_page(width, height)
    image = pypdfium2.PdfImage.new(document)
    image.load_jpeg(io.BytesIO(picture), inline=True)
    image.set_matrix(pypdfium2.PdfMatrix().scale(width, height))
    page.insert_obj(image)
    pieces = [piece for line in sheet.lines for piece in _pieces(line)]
    with _font(document, sorted({" ", *"".join(piece.text for piece in pieces)})) as (font, codes):
        for piece in pieces:
            _add_text(document, page, font, [codes[c] for c in piece.text], piece, scale, height)
        page.gen_content()
    page.close()


def _picture(sheet: Sheet) -> tuple[bytes, float]:
    """The image as JPEG, as it is stored if it is one already, and its dots per inch."""
    crop = sheet.line.image
    source, upright = (crop.page, crop.upright) if isinstance(crop, PageCrop) else (crop, True)
    if not isinstance(source, str | Path | bytes):
        image, dpi, stored = sheet.line.load_image(), None, None
    else:
        image, dpi, stored = load_upright(source, where=sheet.line.source or sheet.name, upright=upright)
    if stored is None:
        packed = io.BytesIO()
        image.save(packed, "JPEG", quality=_QUALITY)
        stored = packed.getvalue()
    return stored, dpi or _DPI


def _pieces(line: SheetLine) -> list[_Piece]:
    """The words of a line, each but the last with the space after it; one piece if their places are unknown."""
    text = xml_text(one_line(line.result.text)).strip(" ")
    if not text:
        return []
    crop, words = line.crop, line.words()
    left, _, right, bottom = box_of(crop.polygon)
    height = area(crop.polygon) / max(right - left, 1.0)
    ends = crop.baseline if len(crop.baseline) >= 2 else ((left, bottom - _BELOW * height),) * 2
    (x1, y1), (x2, y2) = min(ends), max(ends)
    slope = (y2 - y1) / (x2 - x1) if x2 > x1 else 0.0
    parts = [(word.text, box_of(word.outline)) for word in words] or [(text, (left, 0.0, right, 0.0))]
    pieces = []
    for place, (part, (start, _, end, _)) in enumerate(parts):
        space = " " if place + 1 < len(parts) else ""
        at = (start, y1 + slope * (start - x1))
        pieces.append(_Piece(xml_text(one_line(part)) + space, at, end - start, math.atan(slope), _ABOVE * height))
    return pieces


def _add_text(
    document: Any, page: Any, font: Any, codes: Sequence[int], piece: _Piece, scale: float, height: float
) -> None:
    import pypdfium2.raw as pdfium

    size = max(piece.size * scale, 1.0)
    letters = max(len(piece.text.rstrip(" ")), 1)
    stretch = max(piece.width * scale / math.cos(piece.angle), 0.01) / (letters * size * _ADVANCE)
    cosine, sine = math.cos(-piece.angle), math.sin(-piece.angle)  # up is up in PDF
    text = pdfium.FPDFPageObj_CreateTextObj(document.raw, font, size)
    pdfium.FPDFText_SetCharcodes(text, (ctypes.c_uint32 * len(codes))(*codes), len(codes))
    pdfium.FPDFTextObj_SetTextRenderMode(text, pdfium.FPDF_TEXTRENDERMODE_INVISIBLE)
    x, y = piece.start[0] * scale, height - piece.start[1] * scale
    pdfium.FPDFPageObj_Transform(text, stretch * cosine, stretch * sine, -sine, cosine, x, y)
    pdfium.FPDFPage_InsertObject(page.raw, text)


@contextmanager
def _font(document: Any, characters: Sequence[str]) -> Iterator[tuple[Any, dict[str, int]]]:
    """The invisible font for the characters of a page, and the code of each of them."""
    import pypdfium2.raw as pdfium

    codes = {character: code for code, character in enumerate(characters, 1)}
    rows = [f"<{code:04X}> <{character.encode('utf-16-be').hex().upper()}>" for character, code in codes.items()]
    blocks = (rows[place : place + 100] for place in range(0, len(rows), 100))  # no more are allowed in one
    tables = "\n".join(f"{len(block)} beginbfchar\n" + "\n".join(block) + "\nendbfchar" for block in blocks)
    to_unicode = (
        "/CIDInit /ProcSet findresource begin\n12 dict begin\nbegincmap\n"
        "/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) /Supplement 0 >> def\n"
        "/CMapName /Adobe-Identity-UCS def\n/CMapType 2 def\n"
        f"1 begincodespacerange\n<0000> <FFFF>\nendcodespacerange\n{tables}\n"
        "endcmap\nCMapName currentdict /CMap defineresource pop\nend\nend\n"
    )
    glyphs = b"\0\0" + b"\0\1" * len(characters)
    outlines, of_codes = ((ctypes.c_uint8 * len(data)).from_buffer_copy(data) for data in (_FONT, glyphs))
    font = pdfium.FPDFText_LoadCidType2Font(
        document.raw, outlines, len(_FONT), ctypes.create_string_buffer(to_unicode.encode()), of_codes, len(glyphs)
    )
    try:
        yield font, codes
    finally:
        pdfium.FPDFFont_Close(font)
