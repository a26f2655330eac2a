"""Pages as people have them: image files, TIFFs of many pages, PDFs, manifests; each page as one image file on disk."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fada.common.files import replacing
from fada.data.images import MAX_PIXELS, Frame, frames_of, load_line_image, load_upright
from fada.data.places import DRAWING, IMAGE_SUFFIXES, PDF
from fada.data.segment.manifests import images_of
from fada.errors import FadaError

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = IMAGE_SUFFIXES | {PDF}
POINTS_PER_INCH = 72
_DOTS_PER_INCH = (150.0, 300.0, 600.0)
"""Of a rendered page of a PDF: at least, without images in it, at most."""


@dataclass(frozen=True)
class Photograph:
    """The image of a page.

    Attributes:
        name: for files made of it.
        file: on disk.
        made: whether the file was made, of a PDF, a TIFF or by turning.
        problem: why it could not be made, if so.
    """

    name: str
    file: Path
    made: bool = False
    problem: str = ""

    def load(self) -> "Image.Image":
        """The page in its colours (pale ink is told from the paper by them), upright."""
        if self.problem:
            raise FadaError(self.problem)
        return load_upright(self.file)[0]


def find_files(source: str | os.PathLike[str]) -> list[Path]:
    """The page files of a folder and what lies below it, in the order of their names; a file is itself.

    A file that ends in ``.json`` is a IIIF manifest, and its images are the pages.
    """
    source = Path(source)
    if source.is_file():
        return images_of(source) if source.suffix.lower() == ".json" else [source]
    if not source.is_dir():
        raise FadaError(f"{source}: no such file or folder.")
    files = sorted(path for path in source.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    files = [path for path in files if not path.name.endswith(DRAWING)]
    if not files:
        raise FadaError(f"{source}: no page images here, expected {', '.join(sorted(SUFFIXES))}.")
    return files


def photographs(
    file: Path,
    folder: Path,
    rotate: int = 0,
    wanted: Callable[[str], bool] = lambda name: True,
    *,
    colours: bool = False,
) -> Iterator[Photograph]:
    """The pages of a file; those of a PDF, of a TIFF with several, and turned ones are written to `folder` first.

    What was written there before is used as it is.

    Args:
        file: an image or a PDF.
        folder: for pages that are no file of their own; it exists.
        rotate: degrees by which each is turned clockwise: 0, 90, 180 or 270.
        wanted: which pages, by their names; it is asked once for each, in order.
        colours: keep those of pages of a PDF or a TIFF, which are written in grey otherwise.
    """
    if file.suffix.lower() == PDF:
        yield from _pages_of_pdf(file, folder, rotate, wanted, colours)
        return
    frames = frames_of(file)
    if frames > 1:
        for number in range(frames):
            if wanted(name := f"{file.stem}-{number + 1:04d}"):
                yield _written(partial(Frame(file, number).load, colours), name, folder, rotate)
    elif wanted(file.stem):
        yield (
            _written(partial(load_line_image, file), file.stem, folder, rotate)
            if rotate
            else Photograph(file.stem, file)
        )


def _pages_of_pdf(
    file: Path, folder: Path, rotate: int, wanted: Callable[[str], bool], colours: bool
) -> Iterator[Photograph]:
    try:
        import pypdfium2
    except ModuleNotFoundError:
        raise FadaError(f"{file}: reading a PDF needs the extra [pages]: pip install 'fada[pages]'") from None
    try:
        document = pypdfium2.PdfDocument(file)
        count = len(document)
    except pypdfium2.PdfiumError as error:
        raise FadaError(f"{file}: not a PDF that can be opened ({error}). Export its pages as images.") from None
    try:
        for number in range(count):
            if wanted(name := f"{file.stem}-{number + 1:04d}"):
                yield _written(partial(_drawn, document, number, colours), name, folder, rotate)
    finally:
        document.close()


def _drawn(document: Any, number: int, colours: bool) -> "Image.Image":
    """A page of a PDF, in grey or in its colours."""
    import pypdfium2

    try:
        page = document[number]
        width, height = page.get_size()
        scale = min(_resolution(page) / POINTS_PER_INCH, (MAX_PIXELS / max(width * height, 1.0)) ** 0.5)
        image = page.render(scale=scale, grayscale=not colours).to_pil().convert("RGB" if colours else "L")
    except pypdfium2.PdfiumError as error:
        raise FadaError(f"page {number + 1}: cannot be drawn ({error}). Export it as an image.") from None
    page.close()
    return image


def _resolution(page: object) -> float:
    """Dots per inch at which nothing of the images in a page is lost, within bounds."""
    least, usual, most = _DOTS_PER_INCH
    found = [0.0]
    for part in page.get_objects(max_depth=4):  # type: ignore[attr-defined]
        if hasattr(part, "get_px_size"):
            left, _, right, _ = part.get_bounds()
            found.append(part.get_px_size()[0] / max(right - left, 1.0) * POINTS_PER_INCH)
    return min(max(max(found) or usual, least), most)


def _written(make: "Callable[[], Image.Image]", name: str, folder: Path, rotate: int) -> Photograph:
    """A page as a file, made unless it is there; a turned one has a name of its own."""
    file = folder / (f"{name}-{rotate}.png" if rotate else f"{name}.png")
    if not file.exists():
        try:
            image = make()
        except FadaError as error:
            return Photograph(name, file, made=True, problem=str(error))
        write_image(turned(image, rotate), file)
    return Photograph(name, file, made=True)


def write_image(page: "Image.Image", file: Path) -> None:
    """Write a page that was made, all of it or nothing."""
    with replacing(file) as temporary:
        page.save(temporary, format="PNG", compress_level=1)


def turned(page: "Image.Image", rotate: int) -> "Image.Image":
    """A page turned clockwise by 0, 90, 180 or 270 degrees."""
    return page.rotate(-rotate, expand=True) if rotate else page  # by right angles without resampling
