"""Pictures as ``data:`` URLs, small enough that a page can hold thousands of them."""

from __future__ import annotations

import base64
import io
from typing import Any

from PIL import Image


def compact_url(picture: Image.Image, most_characters: int) -> str:
    """PNG, or where its URL would be longer than ``most_characters`` WebP of the best quality that fits."""
    half = picture.resize((max(1, picture.width // 2), max(1, picture.height // 2)), Image.Resampling.BOX)
    url = png_url(picture)
    for smaller, quality in ((picture, 75), (picture, 40), (half, 40), (half, 10)):
        if len(url) <= most_characters:
            break
        url = _url(smaller, "WEBP", quality=quality)
    return url


def png_url(picture: Image.Image) -> str:
    """The picture without any loss."""
    return _url(picture, "PNG", optimize=True)


def decoded(url: str) -> Image.Image:
    """The picture in a URL that was made here."""
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB")


def _url(picture: Image.Image, kind: str, **options: Any) -> str:
    data = io.BytesIO()
    picture.save(data, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(data.getvalue()).decode()}"
