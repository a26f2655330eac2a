"""Opening, scaling, batching and varying line images."""

import importlib.util
import io
import struct
import subprocess
import sys
import zlib
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import EpsImagePlugin, Image
from scipy import ndimage

from fada.data.augment import Augment, thicken, warp
from fada.data.images import (
    MAX_PIXELS,
    Frame,
    frames_of,
    image_size,
    load_line_image,
    load_upright,
    normalize_height,
    pad_batch,
    paper_and_ink,
)
from fada.data.inspect import line_size
from fada.data.line import Line
from fada.errors import FadaError
from tests.support.telephones import heic
from tests.support.types import some


def a_line(width: int = 300, height: int = 64, paper: int = 220, ink: int = 40) -> np.ndarray:
    pixels = np.full((height, width), paper, dtype=np.uint8)
    pixels[height // 3 : 2 * height // 3, 10 : width - 10 : 12] = ink
    pixels[height // 3 : 2 * height // 3, 11 : width - 10 : 12] = ink
    return pixels


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def png_header_only(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds almost no data: a decompression bomb."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


# --- opening ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_source", [str, Path, Path.read_bytes, lambda p: io.BytesIO(p.read_bytes()), Image.open])
def test_any_kind_of_source_gives_the_same_grey_image(tmp_path: Path, as_source: Any) -> None:
    path = tmp_path / "line.png"
    Image.fromarray(a_line()).save(path)
    image = load_line_image(as_source(path))
    assert image.mode == "L"
    assert np.array_equal(np.asarray(image), a_line())


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I", "I;16", "F"])
def test_every_mode_becomes_grey_with_black_ink_on_white(mode: str) -> None:
    grey = Image.fromarray(np.where(a_line() > 128, 255, 0).astype(np.uint8))
    if mode == "I;16":
        image = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    elif mode == "I":
        image = Image.fromarray(np.asarray(grey).astype(np.int32) * 257)
    else:
        image = grey.convert(mode)
    result = np.asarray(load_line_image(image))
    assert result.dtype == np.uint8
    assert np.abs(result.astype(int) - np.asarray(grey)).max() <= 1


def test_transparent_paper_is_white() -> None:
    image = Image.new("RGBA", (40, 20), (0, 0, 0, 0))
    assert np.asarray(load_line_image(encoded(image))).min() == 255


def _turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def test_orientation_tags_are_obeyed() -> None:
    buffer = io.BytesIO()
    Image.new("L", (30, 10)).save(buffer, "JPEG", exif=_turned())
    assert load_line_image(buffer.getvalue()).size == (10, 30)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF"])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9])
def test_a_truncated_image_is_an_error_with_a_remedy(kind: str, share: float) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 400), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), kind)
    with pytest.raises(FadaError, match=r"page 3: .*(broken or cut off|not an image)"):
        load_line_image(data[: int(len(data) * share)], where="page 3")


@pytest.mark.parametrize(
    ("data", "says"), [(b"", "empty"), (b"hello, this is text", "not an image"), (b"\x89PNG", "image")]
)
def test_what_is_not_an_image_is_an_error(data: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "line.png"
    path.write_bytes(data)
    for source in (data, path):
        with pytest.raises(FadaError, match=says):
            load_line_image(source)


def test_postscript_under_another_name_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "check_call", lambda *a, **k: pytest.fail("Ghostscript was started"))
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", "gs")
    path = tmp_path / "line.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 20\n%%EndComments\nshowpage\n%%EOF\n")
    for source in (path, path.read_bytes()):
        with pytest.raises(FadaError, match="not an image in a known format"):
            load_line_image(source)
    for read in (image_size, lambda path: line_size(Line("a", image=path))):
        with pytest.raises(FadaError, match="cannot"):
            read(path)


def claiming(data: bytes, width: int, height: int) -> bytes:
    """A HEIC file that says it is of another size."""
    place = data.index(b"ispe") + 8
    return data[:place] + struct.pack(">II", width, height) + data[place + 8 :]


def test_a_photograph_of_a_telephone_is_read_turned_as_it_was_held(tmp_path: Path) -> None:
    path = tmp_path / "IMG_0001.HEIC"
    path.write_bytes(heic(Image.fromarray(a_line()).convert("RGB"), exif=_turned().tobytes()))
    upright = Image.fromarray(a_line()).transpose(Image.Transpose.ROTATE_270)
    assert image_size(path)[:2] == upright.size
    for image in (load_line_image(path), load_upright(path)[0].convert("L"), load_line_image(path.read_bytes())):
        assert np.abs(np.asarray(image).astype(int) - np.asarray(upright)).mean() < 4


def test_each_photograph_of_a_heic_file_with_several_is_found(tmp_path: Path) -> None:
    import pillow_heif

    file = pillow_heif.from_pillow(Image.new("RGB", (80, 60), "white"))
    file.add_from_pillow(Image.new("RGB", (40, 30), "black"))
    file.save(tmp_path / "two.heic")
    assert frames_of(tmp_path / "two.heic") == 2
    assert [Frame(tmp_path / "two.heic", place).load().size for place in range(2)] == [(80, 60), (40, 30)]


def test_an_avif_image_is_read_where_pillow_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "line.avif"
    path.write_bytes(b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf")
    reads = importlib.util.find_spec("PIL.AvifImagePlugin") is not None
    with pytest.raises(FadaError, match="not an image" if reads else r"line\.avif: AVIF .* pip install -U pillow"):
        load_line_image(path)
    if reads:
        Image.fromarray(a_line()).save(path)
        assert np.abs(np.asarray(load_line_image(path)).astype(int) - a_line()).mean() < 4


@pytest.mark.parametrize(("width", "height"), [(20_000, 20_000), (70_000, 10), (16, 16)])
def test_a_heic_file_that_lies_about_its_size_is_refused_before_it_is_decoded(width: int, height: int) -> None:
    data = claiming(heic(Image.new("RGB", (1024, 1024))), width, height)
    with pytest.raises(FadaError, match=r"too large|longer than|Security limit exceeded"):
        load_line_image(data)


@pytest.mark.parametrize("share", [0.005, 0.05, 0.3, 0.6, 0.9])
def test_a_truncated_photograph_of_a_telephone_is_an_error(share: float) -> None:
    data = heic(Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 400), dtype=np.uint8)))
    with pytest.raises(FadaError, match=r"page 3: .*(broken or cut off|not an image)"):
        load_line_image(data[: int(len(data) * share)], where="page 3")


def test_the_pixel_limit_is_the_one_that_holds() -> None:
    assert 2 * some(Image.MAX_IMAGE_PIXELS) == MAX_PIXELS
    with pytest.raises(FadaError, match="too large"):
        load_line_image(png_header_only(MAX_PIXELS // 10_000 + 1, 10_000))


def test_a_missing_file_and_a_folder_are_errors_that_name_them(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match=r"gone\.png: no such image"):
        load_line_image(tmp_path / "gone.png")
    with pytest.raises(FadaError, match="a folder"):
        load_line_image(tmp_path)


@pytest.mark.parametrize("size", [(20_000, 20_000), (65_000, 65_000), (14_500, 14_500)])
def test_a_pixel_bomb_is_refused_before_it_is_decoded(size: tuple[int, int]) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FadaError, match=r"too large|more than the limit"):
        load_line_image(png_header_only(*size))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * (1 if sys.platform == "darwin" else 1024) < 50e6


def test_the_pixel_limit_can_be_set() -> None:
    with pytest.raises(FadaError, match=r"30 x 20 pixels, more than the limit of 500"):
        load_line_image(Image.new("L", (30, 20)), max_pixels=500)


@given(st.binary(max_size=300))
@settings(max_examples=60, deadline=None)
def test_random_bytes_give_an_image_or_our_error(data: bytes) -> None:
    for head in (b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"II*\x00", b"GIF89a", b"BM"):
        with suppress(FadaError):
            assert load_line_image(head + data).mode == "L"


@given(st.integers(0, 2000), st.integers(0, 255))
@settings(max_examples=60, deadline=None)
def test_a_damaged_byte_gives_an_image_or_our_error(at: int, value: int) -> None:
    data = bytearray(encoded(Image.fromarray(a_line(80, 32)), "JPEG"))
    data[at % len(data)] = value
    with suppress(FadaError):
        assert load_line_image(bytes(data)).mode == "L"


# --- scaling ---------------------------------------------------------------------------------------------------------


@given(st.integers(1, 200), st.integers(1, 200), st.sampled_from([16, 40, 64]))
@settings(max_examples=60, deadline=None)
def test_the_height_is_exact_and_the_aspect_is_kept(width: int, height: int, wanted: int) -> None:
    result = normalize_height(Image.new("L", (width, height), 200), wanted, min_width=1)
    assert result.dtype == np.uint8
    assert result.shape[0] == wanted
    assert abs(result.shape[1] - width * wanted / height) <= 1
    assert np.all(result == 200)


def test_scaling_down_averages_instead_of_dropping_thin_strokes() -> None:
    pixels = np.full((256, 256), 255, dtype=np.uint8)
    pixels[:, ::8] = 0
    result = normalize_height(pixels, 32, min_width=1)
    assert abs(result.mean() - pixels.mean()) < 3
    assert result.std() < 30


def test_one_pixel_becomes_a_line_of_the_least_width() -> None:
    assert normalize_height(Image.new("L", (1, 1), 77), 64).shape == (64, 64)
    narrow = normalize_height(Image.new("L", (1, 100), 77), 64, min_width=16)
    assert narrow.shape == (64, 16)
    assert np.all(narrow == 77)


def test_a_line_one_pixel_high_is_squeezed_to_the_greatest_width() -> None:
    assert normalize_height(Image.new("L", (30_000, 1), 255), 64, max_width=4000).shape == (64, 4000)


@pytest.mark.parametrize("size", [(0, 10), (10, 0), (0, 0)])
def test_an_image_without_pixels_is_an_error(size: tuple[int, int]) -> None:
    image = Image.new("L", size)
    with pytest.raises(FadaError, match="at least 1 x 1"):
        normalize_height(image, 64)
    with pytest.raises(FadaError, match="at least 1 x 1"):
        load_line_image(image)


# --- batches ---------------------------------------------------------------------------------------------------------


def test_padding_is_background_and_ink_is_one_on_any_paper() -> None:
    light, dark = a_line(300, paper=240, ink=30), a_line(120, paper=140, ink=60)
    batch, widths = pad_batch([light, dark])
    assert batch.shape == (2, 1, 64, 300)
    assert batch.dtype == np.float32
    assert widths.tolist() == [300, 120]
    assert batch[1, 0, :, 120:].max() == 0
    for row, image in zip(batch, (light, dark), strict=True):
        paper, ink = paper_and_ink(image)
        assert np.all(row[0, :, : image.shape[1]][image == paper] == 0)
        assert np.all(row[0, :, : image.shape[1]][image == ink] == 1)


def test_an_all_white_line_stays_empty_and_faint_grain_stays_faint() -> None:
    grain = np.random.default_rng(0).integers(228, 236, (40, 200)).astype(np.uint8)
    batch, _ = pad_batch([np.full((40, 200), 255, dtype=np.uint8), np.zeros((40, 200), dtype=np.uint8), grain])
    assert batch[:2].max() == 0
    assert batch[2].max() < 0.2


def test_the_padded_width_is_a_multiple_of_the_stride() -> None:
    batch, widths = pad_batch([a_line(301), a_line(33)], multiple_of=8)
    assert batch.shape[-1] == 304
    assert widths.tolist() == [301, 33]


@pytest.mark.parametrize("images", [[], [a_line(30, 40), a_line(30, 64)], [np.zeros((64, 0), dtype=np.uint8)]])
def test_a_batch_that_cannot_be_stacked_is_an_error(images: list[np.ndarray]) -> None:
    with pytest.raises(FadaError, match="normalize_height"):
        pad_batch(images)


@given(st.lists(arrays(np.uint8, st.tuples(st.just(8), st.integers(1, 30))), min_size=1, max_size=4))
@settings(max_examples=50, deadline=None)
def test_any_batch_is_finite_and_between_zero_and_one(images: list[np.ndarray]) -> None:
    batch, widths = pad_batch(images)
    assert np.isfinite(batch).all()
    assert batch.min() >= 0
    assert batch.max() <= 1
    assert batch.shape == (len(images), 1, 8, widths.max())


# --- variation -------------------------------------------------------------------------------------------------------


def test_warp_agrees_with_scipy() -> None:
    rng = np.random.default_rng(1)
    pixels = rng.random((30, 50))
    matrix = np.array([[0.9, 0.1, 2.0], [-0.05, 1.1, -1.0]])
    shift = rng.normal(0, 1, (2, 3, 5))
    out = np.empty((30, 60))
    warp(pixels, matrix, shift, out, 0.5)
    y, x = np.mgrid[:30, :60].astype(float)
    at_knots = np.array([y * 2 / 29, x * 4 / 59])
    dx, dy = (ndimage.map_coordinates(s, at_knots, order=1, mode="nearest") for s in shift)
    where = [matrix[1] @ [x.ravel(), y.ravel(), np.ones(x.size)], matrix[0] @ [x.ravel(), y.ravel(), np.ones(x.size)]]
    where = [where[0].reshape(x.shape) + dy, where[1].reshape(x.shape) + dx]
    expected = ndimage.map_coordinates(
        np.pad(pixels, 1, constant_values=0.5), [w + 1 for w in where], order=1, cval=0.5
    )
    assert np.allclose(out, expected, atol=1e-9)


def test_without_displacement_warp_changes_nothing() -> None:
    pixels = a_line()
    out = np.empty_like(pixels)
    warp(pixels, np.eye(2, 3), np.zeros((2, 2, 2)), out, 0.0)
    assert np.array_equal(out, pixels)


def test_thickening_darkens_and_thinning_lightens() -> None:
    assert thicken(a_line(), 1.0).mean() < a_line().mean() < thicken(a_line(), -1.0).mean()
    assert np.array_equal(thicken(a_line(), 0.0), a_line())


def test_variation_depends_on_seed_epoch_and_index_alone() -> None:
    augment = Augment(strength=1.0, seed=3)
    first = augment(a_line(), epoch=2, index=7)
    assert np.array_equal(first, Augment(strength=1.0, seed=3)(a_line(), epoch=2, index=7))
    for other in (
        augment(a_line(), epoch=3, index=7),
        augment(a_line(), epoch=2, index=8),
        Augment(seed=4)(a_line(), epoch=2, index=7),
    ):
        assert other.shape != first.shape or not np.array_equal(other, first)


def test_worker_processes_give_the_same_variation() -> None:
    vary = partial(_vary, Augment(seed=1))
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        there = list(pool.map(vary, range(3)))
    assert all(np.array_equal(a, b) for a, b in zip(there, map(vary, range(3)), strict=True))


def _vary(augment: Augment, index: int) -> np.ndarray:
    return augment(a_line(), epoch=0, index=index)


def test_strength_zero_is_the_line_itself() -> None:
    assert Augment(strength=0.0)(a_line(), epoch=5, index=5) is not None
    assert np.array_equal(Augment(strength=0.0)(a_line(), epoch=5, index=5), a_line())


def test_a_stronger_variation_moves_further_from_the_line() -> None:
    def width_change(strength: float) -> float:
        return float(np.mean([abs(Augment(strength)(a_line(), epoch=0, index=i).shape[1] - 300) for i in range(40)]))

    assert width_change(0.2) < width_change(1.0) < width_change(2.0)


def test_an_impossible_strength_is_an_error() -> None:
    with pytest.raises(FadaError, match="strength is -1"):
        Augment(strength=-1)


@given(
    arrays(np.uint8, st.tuples(st.sampled_from([1, 2, 16, 40]), st.integers(1, 80))),
    st.floats(0, 4),
    st.integers(0, 1000),
)
@settings(max_examples=80, deadline=None)
def test_any_line_keeps_its_height_under_any_variation(pixels: np.ndarray, strength: float, index: int) -> None:
    varied = Augment(strength)(pixels, epoch=0, index=index)
    assert varied.dtype == np.uint8
    assert varied.shape[0] == pixels.shape[0]
    assert varied.shape[1] >= 1


def test_a_varied_line_still_has_its_ink() -> None:
    for index in range(30):
        batch, _ = pad_batch([Augment(1.0)(a_line(), epoch=0, index=index)])
        assert 0.02 < batch.mean() < 0.4


def test_spans_of_a_line_are_hidden_by_paper_and_nothing_else_changes() -> None:
    line = np.tile(np.array([230] * 6 + [20, 230], np.uint8), (40, 100))
    hidden = Augment(strength=0, seed=1, hidden=0.2)(line, epoch=0, index=0)
    changed = (hidden != line).any(0)
    assert (hidden[:, changed] == 230).all()
    assert 0 < changed.mean() < 2 * 0.2 / 8
    assert np.array_equal(hidden, Augment(strength=0, seed=1, hidden=0.2)(line, epoch=0, index=0))
    assert np.array_equal(line, Augment(strength=0, seed=1)(line, epoch=0, index=0))
