"""Photographs as telephones store them."""

import io
from typing import Any

from PIL import Image


def heic(image: Image.Image, **options: Any) -> bytes:
    """The image as HEIC."""
    import pillow_heif

    stream = io.BytesIO()
    pillow_heif.from_pillow(image).save(stream, quality=90, **options)
    return stream.getvalue()
