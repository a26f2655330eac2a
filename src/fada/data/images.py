"""Line images on their way to a recogniser: opened safely, grey, of one height, padded into batches."""

import importlib.util
import io
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from fada.data.augment import Augment as Augment
from fada.errors import EXTRAS, FadaError, missing_extra

ImageSource = str | os.PathLike[str] | bytes | BinaryIO | Image.Image

FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "JPEG2000", "PPM")
"""What images may be, whatever their names say; others, such as PostScript, would start programs to be decoded.
HEIF and AVIF, which not every installation reads, are opened where they are met (:func:`open_image`)."""

_AVIF_BRANDS = (b"avif", b"avis")
_HEIF_BRANDS = (*(b"heic", b"heix", b"heim", b"heis"), *(b"hevc", b"hevx", b"hevm", b"hevs"), b"mif1", b"msf1")
_HEAD_BYTES = 64
"""In so many, files of HEIF and AVIF say which of the two they are."""

MAX_PIXELS = 178_956_970
"""Images with more pixels are refused before they are decoded: as many as Pillow opens; a page at 600 dpi on A2 has
139 million."""

MAX_SIDE = 2**16 - 1
"""So many pixels an image may be wide or high: as many as JPEG, and as page scans of any kind, can have."""

_SEVERAL = frozenset({".tif", ".tiff", ".gif", ".webp", ".png", ".heic", ".heif", ".hif", ".avif"})

MIN_WIDTH = 16
MAX_WIDTH = 16_384

_LEAST_CONTRAST = 48.0  # grey levels; below it a blank line would have its paper grain stretched into "ink"


class TooLargeError(FadaError):
    """An image has more pixels than are decoded."""


def load_line_image(
    source: ImageSource, *, max_pixels: int = MAX_PIXELS, where: str | None = None, upright: bool = True
) -> Image.Image:
    """Open an image as grey (mode ``L``, 0 black to 255 white).

    Transparency is laid on white, 16-bit grey is scaled to 8 bits.

    Args:
        source: path, encoded bytes, binary file object, or an image already open.
        max_pixels: width times height that is refused; checked on the header, before any pixel is decoded.
        where: how errors name the image; the path, if there is one, by default.
        upright: obey an orientation tag; otherwise the image stays as it is stored.

    Raises:
        FadaError: the image is missing, empty, broken, cut off, too large, or not an image at all.
    """
    with opened(source, max_pixels, where) as image:
        if image.format == "JPEG":
            image.draft("L", image.size)
        return _to_grey(ImageOps.exif_transpose(image) if upright else image)


def load_upright(
    source: ImageSource, *, where: str | None = None, upright: bool = True
) -> tuple[Image.Image, float | None, bytes | None]:
    """An image in its colours, its dots per inch if it says so, and its own bytes if it is a JPEG that needs no change.

    Args and errors as for :func:`load_line_image`.
    """
    with opened(source, MAX_PIXELS, where) as image:
        dpi = image.info.get("dpi", (math.nan,))[0]
        turned = ImageOps.exif_transpose(image) if upright else image
        as_stored = not upright or image.getexif().get(0x0112, 1) == 1
        as_stored = as_stored and image.format == "JPEG" and image.mode in ("L", "RGB")
        stored = None
        if as_stored and isinstance(source, str | os.PathLike | bytes):
            stored = source if isinstance(source, bytes) else Path(source).read_bytes()
        grey = turned.mode.startswith(("1", "L", "I", "F")) and turned.mode != "LAB"
        plain = turned if turned.mode == "RGB" else _to_grey(turned) if grey else _to_rgb(turned)
        plain.load()
        return plain, float(dpi) if math.isfinite(dpi) and dpi > 1 else None, stored


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


@contextmanager
def opened(source: ImageSource, max_pixels: int = MAX_PIXELS, where: str | None = None) -> Iterator[Image.Image]:
    """An image opened, small enough to be decoded; what goes wrong inside is told in a sentence.

    Args and errors as for :func:`load_line_image`.
    """
    where = where or (str(source) if isinstance(source, str | os.PathLike) else "image")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit follows
            image = _open(source, where)
            _check_size(image.size, max_pixels, where)
            yield image
    except FadaError:
        raise
    except FileNotFoundError:
        raise FadaError(f"{where}: no such image file.") from None
    except Image.DecompressionBombError as error:
        raise TooLargeError(
            f"{where}: the image is too large to open safely ({error}). Scale it down or cut it into lines."
        ) from None
    except UnidentifiedImageError:
        raise FadaError(f"{where}: not an image in a known format ({', '.join(FORMATS)}, HEIF, AVIF).") from None
    except MemoryError:
        raise FadaError(f"{where}: not enough memory to decode the image. Scale it down.") from None
    except Exception as error:  # decoders raise OSError, SyntaxError, ValueError, struct.error, ... on broken data
        raise FadaError(f"{where}: the image is broken or cut off ({error}). Export it again.") from None


def _open(source: ImageSource, where: str) -> Image.Image:
    if isinstance(source, Image.Image):
        return source
    if isinstance(source, bytes | bytearray | memoryview):
        if len(source) == 0:
            raise FadaError(f"{where}: the image is empty (0 bytes).")
        return open_image(io.BytesIO(source), where)
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.is_dir():
            raise FadaError(f"{where}: a folder, expected an image file.")
        if path.exists() and path.stat().st_size == 0:
            raise FadaError(f"{where}: the image is empty (0 bytes).")
    return open_image(source, where)


def open_image(source: str | os.PathLike[str] | BinaryIO, where: str | None = None) -> Image.Image:
    """The header of an image of a kind that is read, and of no other; whatever Pillow raises, it raises.

    Args:
        source: path, or a binary file object that can be set back.
        where: how the error about a package that is missing names the image; the path, if there is one, by default.
    """
    if isinstance(source, str | os.PathLike):
        with open(source, "rb") as file:
            head = file.read(_HEAD_BYTES)
        where = where or str(source)
    else:
        head = source.read(_HEAD_BYTES)
        source.seek(0)
    kind = high_efficiency(head)
    if kind == "AVIF" and importlib.util.find_spec("PIL.AvifImagePlugin") is None:
        raise FadaError(f"{where or 'image'}: AVIF is read by Pillow 11.3 or newer. Try: pip install -U pillow")
    if kind == "HEIF":
        _register_heif(where or "image")
    return Image.open(source, formats=FORMATS if kind is None else (kind,))


def high_efficiency(head: bytes) -> str | None:
    """HEIF or AVIF, if a file that begins so is one of them."""
    brands = head[8:_HEAD_BYTES]
    if head[4:8] != b"ftyp":
        return None
    return "AVIF" if any(b in brands for b in _AVIF_BRANDS) else "HEIF" if brands.startswith(_HEIF_BRANDS) else None


def _register_heif(where: str) -> None:
    """Let Pillow open HEIF: the one picture of a file, none of the small or deep ones that belong to it."""
    try:
        import pillow_heif
    except ModuleNotFoundError:
        raise missing_extra("pillow-heif", EXTRAS["pillow_heif"], f"{where}: reading HEIC") from None
    pillow_heif.register_heif_opener(thumbnails=False, depth_images=False, aux_images=False)


def _check_size(size: tuple[int, int], max_pixels: int, where: str) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise FadaError(f"{where}: the image is {width} x {height} pixels, expected at least 1 x 1.")
    if width * height > max_pixels:
        raise TooLargeError(
            f"{where}: the image is {width:,} x {height:,} pixels, more than the limit of {max_pixels:,}. "
            "Scale it down or cut it into lines."
        )
    if max(width, height) > MAX_SIDE:
        raise TooLargeError(
            f"{where}: the image is {width:,} x {height:,} pixels, longer than {MAX_SIDE:,}. Cut it into lines."
        )


def _to_grey(image: Image.Image) -> Image.Image:
    if image.mode == "L":
        image.load()
        return image
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image, dtype=np.float32)
        peak = float(values.max(initial=0.0))
        white = 1.0 if peak <= 1.0 else 255.0 if peak <= 255.0 else 65535.0
        return Image.fromarray(np.clip(values * (255.0 / white), 0, 255).astype(np.uint8))
    return _to_rgb(image).convert("L") if image.has_transparency_data else image.convert("L")


def normalize_height(
    image: Image.Image | np.ndarray, height: int, *, min_width: int = MIN_WIDTH, max_width: int = MAX_WIDTH
) -> np.ndarray:
    """Scale a line to `height`, keeping its aspect, with antialiasing.

    A line narrower than `min_width` after scaling is padded on the right with its paper; one wider than `max_width`
    is squeezed to it.

    Args:
        image: an open image of any mode, or grey values (h, w) uint8.
        height: pixels of the result.

    Returns:
        (height, width) uint8, 0 black to 255 white.
    """
    grey = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    _check_size(grey.size, MAX_PIXELS, "line image")
    grey = _to_grey(grey)
    width = min(max(round(grey.width * height / grey.height), 1), max_width)
    if grey.size != (width, height):
        # reducing_gap shrinks by a whole factor first, as exact as one pass at 3.0 and far cheaper on page scans.
        grey = grey.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=3.0)
    pixels = np.asarray(grey, dtype=np.uint8)
    if width >= min_width:
        return pixels
    padded = np.full((height, min_width), paper_and_ink(pixels)[0], dtype=np.uint8)
    padded[:, :width] = pixels
    return padded


def paper_and_ink(pixels: np.ndarray) -> tuple[int, int]:
    """The grey levels of the paper and of the ink of a line.

    The paper is the 75th percentile of the grey values (writing covers far less than three quarters of a line), the
    ink the first.
    """
    cumulative = np.cumsum(np.bincount(pixels.reshape(-1), minlength=256))
    ink, paper = np.searchsorted(cumulative, np.array([0.01, 0.75]) * cumulative[-1])
    return int(paper), int(ink)


def pad_batch(images: Sequence[np.ndarray], *, multiple_of: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Put lines of one height into one array; padding looks like paper.

    Each line is brought to the same contrast: its paper becomes 0, its ink 1, so that the padding, 0, continues the
    background whatever its tone was. A line without writing stays close to 0 throughout.

    Args:
        images: B arrays (H, W_i) uint8 as :func:`normalize_height` gives them.
        multiple_of: the padded width is rounded up to a multiple of this (the stride of the network).

    Returns:
        (B, 1, H, W) float32 in [0, 1] and (B,) int64, the widths before padding.
    """
    heights = {image.shape[0] for image in images}
    if len(heights) != 1 or any(image.ndim != 2 or image.shape[1] == 0 or image.shape[0] == 0 for image in images):
        shapes = ", ".join(sorted({str(image.shape) for image in images})[:5]) or "none"
        raise FadaError(
            f"a batch of line images of the shapes {shapes}, expected at least one line, all (height, width) "
            "of one height. Use normalize_height() first."
        )
    widths = np.array([image.shape[1] for image in images], dtype=np.int64)
    padded_width = -(-int(widths.max()) // multiple_of) * multiple_of
    batch = np.zeros((len(images), 1, heights.pop(), padded_width), dtype=np.float32)
    for row, image in zip(batch, images, strict=True):
        paper, ink = paper_and_ink(image)
        levels = np.arange(256, dtype=np.float32)
        inkiness = np.clip((paper - levels) / max(paper - ink, _LEAST_CONTRAST), 0.0, 1.0)
        row[0, :, : image.shape[1]] = inkiness[image]
    return batch, widths


class ImageSize(NamedTuple):
    """From an image's header: width and height as stored, dots per inch, and whether its tag lays it on its side."""

    width: int
    height: int
    dpi: float | None
    sideways: bool


def image_size(source: ImageSource, what: str = "") -> ImageSize:
    """The size of an image, from its header alone.

    Args:
        what: what messages call the image, before its name.

    Raises:
        FadaError: it cannot be read, or is too large to be decoded.
    """
    where = f"{what}{Path(source).name if isinstance(source, str | os.PathLike) else 'image'}"
    if isinstance(source, Image.Image):
        return ImageSize(*source.size, None, False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with _open(source, where) as image:
                (width, height), dpi = image.size, image.info.get("dpi")
                known = image.format != "PNG" or "exif" in image.info  # else Pillow decodes all of it to find out
                sideways = known and image.getexif().get(0x0112) in (5, 6, 7, 8)
    except Image.DecompressionBombError as error:
        raise TooLargeError(f"{where}: the image is too large to open safely ({error}). Scale it down.") from None
    except FadaError:
        raise
    except Exception as error:  # Pillow raises almost anything on broken headers
        raise FadaError(f"{where} cannot be read ({error})") from None
    _check_size((width, height), MAX_PIXELS, where)
    resolution = float(dpi[0]) if isinstance(dpi, tuple) and dpi else math.nan
    return ImageSize(width, height, resolution if math.isfinite(resolution) and resolution > 1 else None, sideways)


def frames_of(path: str | os.PathLike[str]) -> int:
    """How many images a file holds; one if it cannot be read, which is told when it is."""
    if Path(path).suffix.lower() not in _SEVERAL:
        return 1
    try:
        with open_image(path) as image:
            return int(getattr(image, "n_frames", 1))
    except Exception:  # Pillow raises almost anything on broken headers
        return 1


@dataclass(frozen=True)
class Frame:
    """One of several images in a file."""

    path: Path
    place: int

    def load(self, colours: bool = False) -> Image.Image:
        """The image in grey, or in its colours."""
        where = f"{self.path.name}, image {self.place + 1}"
        try:
            with open_image(self.path) as image:
                image.seek(self.place)
                return load_upright(image, where=where)[0] if colours else load_line_image(image, where=where)
        except FadaError:
            raise
        except Exception as error:
            raise FadaError(f"{where}: the image is broken or cut off ({error}). Export it again.") from None


def png(image: Image.Image) -> bytes:
    """An image as PNG."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
