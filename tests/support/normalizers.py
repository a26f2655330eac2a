"""Every normaliser there is."""

from itertools import product
from typing import Any, cast

from fada.text.normalizer import TextNormalizer

NORMALIZERS = [
    TextNormalizer(*cast(tuple[Any, ...], choice))
    for choice in product(
        ("NFC", "NFD", "NFKC", "NFKD", "none"),
        ("lower", "keep"),
        ("keep", "fold"),
        ("keep", "collapse", "drop"),
        (False, True),
    )
]
