"""Sound on its way to a recogniser: any common format, one channel, 16,000 samples a second."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fada.errors import FadaError, needing

SAMPLE_RATE = 16_000
"""Samples per second of what is read."""

AudioSource = str | os.PathLike[str] | bytes | BinaryIO

MAX_SECONDS = 30.0
"""Longer recordings are refused: what Whisper takes in at once."""


def load_audio(
    source: AudioSource, *, rate: int = SAMPLE_RATE, max_seconds: float | None = MAX_SECONDS, where: str | None = None
) -> np.ndarray:
    """Read a recording: wav, flac, ogg, mp3 and what else libsndfile knows.

    Args:
        source: path, encoded bytes, or binary file object.
        rate: samples per second of the result.
        max_seconds: longer recordings are refused; None to read any length.
        where: how errors name the recording; the path, if there is one, by default.

    Returns:
        (n,) float32 in [-1, 1]: the mean of the channels.

    Raises:
        FadaError: the recording is missing, empty, broken, or too long.
    """
    where = where or (str(source) if isinstance(source, str | os.PathLike) else "recording")
    with _opened(source, where) as sound:
        seconds = sound.frames / sound.samplerate
        if max_seconds is not None and seconds > max_seconds:
            raise FadaError(
                f"{where}: the recording is {seconds:.1f} s long, expected at most {max_seconds:g} s. Cut it at pauses."
            )
        samples = _read(sound, sound.frames, where)
        if sound.samplerate == rate:
            return samples
    with needing("soxr", "audio", f"Changing the sampling rate from {sound.samplerate} to {rate}"):
        import soxr
    return np.clip(soxr.resample(samples, sound.samplerate, rate), -1.0, 1.0).astype(np.float32)


@contextmanager
def _opened(source: AudioSource, where: str) -> Iterator[Any]:
    """A `soundfile.SoundFile`."""
    with needing("soundfile", "audio", "Reading sound"):
        import soundfile
    if isinstance(source, bytes | bytearray | memoryview):
        if len(source) == 0:
            raise FadaError(f"{where}: the recording is empty (0 bytes).")
        source = io.BytesIO(source)
    elif isinstance(source, str | os.PathLike):
        path = Path(source)
        if not path.is_file():
            raise FadaError(f"{where}: no such sound file.")
        if path.stat().st_size == 0:
            raise FadaError(f"{where}: the recording is empty (0 bytes).")
    try:
        sound = soundfile.SoundFile(source)
    except (soundfile.SoundFileError, TypeError) as error:
        reason = str(getattr(error, "error_string", error)).rstrip(".")  # without the name, which is told already
        raise FadaError(
            f"{where}: not a sound file that can be read (wav, flac, ogg, mp3), or broken: {reason}. "
            "Convert it to one of these."
        ) from None
    with sound:
        yield sound


def _read(sound: Any, frames: int, where: str) -> np.ndarray:
    """(n,) float32, the mean of the channels of the first `frames`, or of as many as there are."""
    import soundfile

    try:
        samples = sound.read(frames, dtype="float32", always_2d=True).mean(axis=1, dtype=np.float32)
    except (soundfile.SoundFileError, ValueError, MemoryError) as error:
        raise FadaError(f"{where}: the recording is broken or cut off ({error}). Export it again.") from None
    if len(samples) == 0:
        raise FadaError(f"{where}: the recording has no samples.")
    if not np.isfinite(samples).all():
        raise FadaError(f"{where}: the recording has samples that are not numbers. Export it again.")
    return np.clip(samples, -1.0, 1.0)
