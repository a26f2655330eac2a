"""Small sets of lines to train on, drawn with Pillow's own font or made of tones: seconds to learn, no file needed."""

import io
import random
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fada.data.formats.parquet import write_parquet
from fada.data.line import Line

ALPHABETS = {"old": "aabbc ", "new": "bccdd "}


def drawn_line(text: str, height: int = 40) -> Image.Image:
    """A line of large, widely spaced letters."""
    font = ImageFont.load_default(size=24)
    image = Image.new("L", (18 * len(text) + 16, height), 230)
    for i, character in enumerate(text):
        ImageDraw.Draw(image).text((8 + 18 * i, 4), character, font=font, fill=20)
    return image


def image_lines(count: int, seed: int = 0, prefix: str = "line") -> list[Line]:
    """Lines of two domains that use four letters with different frequencies."""
    rng = random.Random(seed)
    lines = []
    for i in range(count):
        domain = ("old", "new")[i % 2]
        text = "".join(rng.choice(ALPHABETS[domain]) for _ in range(rng.randint(3, 7))).strip() or "b"
        data = io.BytesIO()
        drawn_line(text).save(data, "PNG")
        lines.append(Line(f"{prefix}{i}", text, domain, image=data.getvalue(), source=f"{prefix}{i}"))
    return lines


def image_folder(folder: Path, train: int = 24, validation: int = 6, test: int = 6) -> Path:
    """A folder with train, validation and test parquet files."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (split, count) in enumerate({"train": train, "validation": validation, "test": test}.items()):
        write_parquet(image_lines(count, seed, split), folder / f"{split}.parquet")
    return folder


def sound_lines(count: int, seed: int = 0) -> list[Line]:
    """Recordings of half a second per line: each letter is a tone of its own."""
    import soundfile

    rng = random.Random(seed)
    lines = []
    for i in range(count):
        domain = ("old", "new")[i % 2]
        text = "".join(rng.choice(ALPHABETS[domain].strip()) for _ in range(3))
        time = np.arange(2400) / 16000
        tones = [np.sin(2 * np.pi * (300 + 200 * "abcd".index(c)) * time) for c in text]
        data = io.BytesIO()
        soundfile.write(data, np.concatenate(tones).astype(np.float32) * 0.5, 16000, format="WAV")
        lines.append(Line(f"sound{seed}_{i}", text, domain, audio=data.getvalue(), source=f"sound{i}"))
    return lines


def sound_folder(folder: Path, train: int = 8) -> Path:
    """A folder with train and validation parquet files of sounds."""
    folder.mkdir(parents=True, exist_ok=True)
    write_parquet(sound_lines(train, 0), folder / "train.parquet")
    write_parquet(sound_lines(4, 1), folder / "validation.parquet")
    return folder
