"""Reading sound: formats, channels, sampling rates, length, and broken files."""

import io
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fada.data.audio import load_audio
from fada.data.line import Line
from fada.errors import FadaError

soundfile = pytest.importorskip("soundfile")


def a_tone(seconds: float = 1.0, rate: int = 16_000, hertz: float = 440.0, channels: int = 1) -> np.ndarray:
    tone = 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)
    return np.repeat(tone[:, None], channels, axis=1).astype(np.float32)


def encoded(samples: np.ndarray, rate: int = 16_000, kind: str = "WAV", **options: str) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=kind, **options)
    return buffer.getvalue()


def loudest_frequency(samples: np.ndarray, rate: int = 16_000) -> float:
    return float(np.fft.rfftfreq(len(samples), 1 / rate)[np.abs(np.fft.rfft(samples)).argmax()])


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 48_000])
@pytest.mark.parametrize("channels", [1, 2])
def test_every_format_rate_and_channel_count_becomes_the_same_tone(kind: str, rate: int, channels: int) -> None:
    samples = load_audio(encoded(a_tone(1.0, rate, channels=channels), rate, kind))
    assert samples.dtype == np.float32
    assert samples.ndim == 1
    assert abs(len(samples) - 16_000) < 1600
    assert abs(loudest_frequency(samples) - 440) < 3
    assert 0.25 < np.abs(samples).max() < 0.6


def test_path_bytes_file_object_and_line_agree(tmp_path: Path) -> None:
    path = tmp_path / "tone.wav"
    path.write_bytes(encoded(a_tone()))
    expected = load_audio(path)
    assert np.array_equal(load_audio(str(path)), expected)
    assert np.array_equal(load_audio(path.read_bytes()), expected)
    with path.open("rb") as opened:
        assert np.array_equal(load_audio(opened), expected)
    samples, rate = Line("a", audio=path).load_audio()
    assert rate == 16_000
    assert np.array_equal(samples, expected)


def test_channels_are_averaged() -> None:
    stereo = np.column_stack([a_tone()[:, 0], -a_tone()[:, 0]])
    assert np.abs(load_audio(encoded(stereo))).max() < 1e-3


def test_a_long_recording_is_refused_with_a_remedy() -> None:
    data = encoded(a_tone(31, 8_000), 8_000)
    with pytest.raises(FadaError, match=r"interview: the recording is 31\.0 s long.*Cut it"):
        load_audio(data, where="interview")
    assert len(load_audio(data, max_seconds=None)) == 31 * 16_000


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"this is not sound at all", "not a sound file"),
        (encoded(a_tone())[:20], "not a sound file|no samples"),
        (encoded(np.zeros((0, 1))), "no samples"),
        (encoded(a_tone(), kind="FLAC")[:30], "not a sound file|broken|no samples"),
    ],
)
def test_a_broken_recording_is_an_error_that_names_it(data: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.wav"
    path.write_bytes(data)
    for source in (path, data, io.BytesIO(data) if data else path):
        with pytest.raises(FadaError, match=says):
            load_audio(source)
    with pytest.raises(FadaError, match=r"broken\.wav"):
        load_audio(path)


def test_a_recording_that_cannot_be_searched_in_is_read_to_its_end(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(tmp_path / "a.wav", np.sin(np.arange(1600) / 9) / 2, 16_000, subtype="GSM610")
    assert len(load_audio(tmp_path / "a.wav")) >= 1600


def test_a_recording_that_libsndfile_does_not_know_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "a.m4a").write_bytes(b"\0\0\0\x20ftypM4A \0\0\0\0M4A mp42isom" + bytes(200))
    with pytest.raises(FadaError, match="Convert it") as told:
        load_audio(tmp_path / "a.m4a")
    assert str(told.value).count("a.m4a") == 1


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match=r"gone\.wav: no such sound file"):
        load_audio(tmp_path / "gone.wav")


def test_samples_that_are_not_numbers_are_an_error() -> None:
    samples = a_tone()
    samples[5] = np.nan
    with pytest.raises(FadaError, match="not numbers"):
        load_audio(encoded(samples, subtype="FLOAT"))


@given(st.binary(max_size=200), st.sampled_from(["WAV", "FLAC", "OGG", "MP3"]), st.integers(0, 400))
@settings(max_examples=60, deadline=None)
def test_damaged_recordings_give_samples_or_our_error(junk: bytes, kind: str, at: int) -> None:
    data = encoded(a_tone(0.1), kind=kind)
    damaged = data[: at % len(data)] + junk + data[at % len(data) + len(junk) :]
    with suppress(FadaError):
        assert np.isfinite(load_audio(damaged)).all()


def test_a_wav_that_claims_gigabytes_is_not_believed() -> None:
    data = bytearray(encoded(a_tone(0.1)))
    data[40:44] = struct.pack("<I", 0xFFFFFFF0)
    with suppress(FadaError):
        assert len(load_audio(bytes(data), max_seconds=None)) < 20_000
