"""What each token of a subword vocabulary adds to the text: its bytes, and its characters after normalisation."""

import codecs
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fada.errors import FadaError
from fada.text.counting import count_matrix
from fada.text.normalizer import TextNormalizer

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from transformers import PreTrainedTokenizerBase

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_TIMESTAMP = re.compile(r"<\|\d+\.\d\d\|>")
_SPACE_MARKER = "▁"


@dataclass(frozen=True, eq=False)
class TokenTable:
    """The text of every token of a vocabulary, as the bytes it contributes.

    A text is the UTF-8 decoding of the joined bytes of its tokens. That covers, without a special case, tokens that
    hold only a part of a character (byte-level BPE, byte fallback): the character appears with the token that completes
    it. A token that is not part of the text (padding, end of sequence, task and time marks) has no bytes.

    Attributes:
        pieces: the bytes of each token id; ``b""`` for special tokens.
        special: (vocabulary,) bool, True for the tokens that are not text.
    """

    pieces: list[bytes]
    special: np.ndarray

    @classmethod
    def from_tokenizer(cls, tokenizer: "PreTrainedTokenizerBase") -> "TokenTable":
        """Read the table from a tokenizer of `transformers`, or a processor that holds one.

        Understands byte-level BPE (GPT-2, RoBERTa, Whisper, Llama 3), SentencePiece with and without byte fallback
        (Llama 2, T5), WordPiece (BERT), word-end marks (GPT), ByT5, and vocabularies of characters or words. A
        leading-space marker (``Ġ``, ``▁``, no ``##``) is a space, also on the first token of a text.
        """
        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        vocabulary = tokenizer.get_vocab()
        if not vocabulary:
            raise FadaError(
                f"tokenizer {type(tokenizer).__name__}: its vocabulary is empty, expected at least one token."
            )
        added = getattr(tokenizer, "added_tokens_decoder", {})
        special_ids = {int(i) for i in tokenizer.all_special_ids if i is not None}
        special_ids |= {i for i, token in added.items() if token.special or _TIMESTAMP.fullmatch(token.content)}
        to_bytes = _token_reader(tokenizer)
        size = max(max(vocabulary.values()), max(special_ids, default=0)) + 1
        pieces = [b""] * size
        special = np.ones(size, bool)  # ids without a token are not text either
        for token, i in vocabulary.items():
            if i not in special_ids:
                special[i] = False
                pieces[i] = token.encode() if i in added else to_bytes(token)
        return cls(pieces, special)

    def __len__(self) -> int:
        return len(self.pieces)

    def resized(self, size: int) -> "TokenTable":
        """The table for a model whose output layer has `size` rows: ids beyond the vocabulary are not text."""
        missing = size - len(self)
        if missing <= 0:
            return self if missing == 0 else TokenTable(self.pieces[:size], self.special[:size])
        return TokenTable([*self.pieces, *[b""] * missing], np.concatenate([self.special, np.ones(missing, bool)]))

    def join(self, ids: Iterable[int]) -> bytes:
        """The bytes of a sequence of token ids."""
        pieces = self.pieces
        return b"".join([pieces[i] for i in ids])

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a sequence of token ids, without special tokens and without an incomplete last character.

        Bytes that are not UTF-8 become U+FFFD.
        """
        return complete_text(self.join(ids))[0]

    def counts(self, alphabet: Sequence[str], normalizer: TextNormalizer) -> "csr_matrix":
        """How often each token contains each character, after normalisation, as a sparse (vocabulary, alphabet) matrix.

        A character outside the alphabet is counted in the cell `OTHER` if the alphabet has one, else not at all. Bytes
        that are only a part of a character belong to no token and are not counted: of the 50,265 tokens of RoBERTa
        these are 208. The matrix is therefore exact for texts whose characters are whole within tokens.
        """
        return count_matrix([whole_characters(piece) for piece in self.pieces], alphabet, normalizer)


def complete_text(data: bytes) -> tuple[str, bytes]:
    """Decode UTF-8 up to an incomplete last character; returns the text and the bytes that wait for the rest."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text, pending = decoder.decode(data), decoder.getstate()[0]
    if pending[:1] == b"\xed" and pending[1:2] >= b"\xa0":  # half of a surrogate: waits in Python, never completes
        return text + pending.decode("utf-8", "replace"), b""
    return text, pending


def whole_characters(piece: bytes) -> str:
    """The characters that lie wholly within `piece`: parts of characters at its two ends are left out."""
    start = 0
    while start < len(piece) and piece[start] & 0xC0 == 0x80:
        start += 1
    return complete_text(piece[start:])[0]


@lru_cache(maxsize=1)
def _byte_of_character() -> dict[str, int]:
    """The printable stand-ins of byte-level BPE: visible Latin-1 characters for themselves, the rest from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in visible]
    return {chr(b): b for b in visible} | {chr(0x100 + i): b for i, b in enumerate(hidden)}


def _byte_level(token: str) -> bytes:
    table = _byte_of_character()
    if all(character in table for character in token):
        return bytes(table[character] for character in token)
    return token.encode()


class _SentencePiece:
    def __init__(self, marker: str, byte_fallback: bool):
        self.marker, self.byte_fallback = marker, byte_fallback

    def __call__(self, token: str) -> bytes:
        if self.byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        return token.replace(self.marker, " ").encode()


def _decoders(decoder: Any) -> list[dict[str, Any]]:
    """The steps of a decoder of the `tokenizers` library, as their settings."""
    if decoder is None:
        return []
    settings = json.loads(decoder.__getstate__())
    return settings["decoders"] if settings["type"] == "Sequence" else [settings]


def _token_reader(tokenizer: "PreTrainedTokenizerBase") -> Any:
    """The function from a token's name in the vocabulary to its bytes."""
    if type(tokenizer).__name__.startswith("ByT5"):
        return lambda token: token.encode("latin-1")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return _probing_reader(tokenizer)
    steps = {step["type"]: step for step in _decoders(backend.decoder)}
    if "ByteLevel" in steps:
        return _byte_level
    if "WordPiece" in steps:
        prefix = steps["WordPiece"]["prefix"]
        return lambda token: (token[len(prefix) :] if token.startswith(prefix) else f" {token}").encode()
    if "BPEDecoder" in steps:
        suffix = steps["BPEDecoder"]["suffix"]
        return lambda token: token.replace(suffix, " ").encode()
    if not steps:  # without a decoder the tokens are joined by spaces
        return lambda token: f" {token}".encode()
    marker = steps["Metaspace"]["replacement"] if "Metaspace" in steps else _SPACE_MARKER
    if "Metaspace" in steps or "Replace" in steps or "ByteFallback" in steps:
        return _SentencePiece(marker, "ByteFallback" in steps)
    if steps.keys() <= {"Fuse", "Strip"}:
        return str.encode
    raise FadaError(
        f"tokenizer {type(tokenizer).__name__}: its decoder ({', '.join(steps)}) is not known. Expected ByteLevel, "
        "Metaspace, Replace, ByteFallback, WordPiece, BPEDecoder, Fuse or none."
    )


def _probing_reader(tokenizer: "PreTrainedTokenizerBase") -> Any:
    """For tokenizers written in Python: what a token adds to the text when it follows another one."""
    vocabulary = tokenizer.get_vocab()
    if any(_BYTE_TOKEN.fullmatch(token) for token in vocabulary) or any(
        t.startswith(_SPACE_MARKER) for t in vocabulary
    ):
        return _SentencePiece(_SPACE_MARKER, byte_fallback=True)
    anchor = next((token for token in vocabulary if len(token) == 1 and token.isalpha()), None)
    if anchor is None:
        return str.encode
    before = tokenizer.convert_tokens_to_string([anchor])

    def read(token: str) -> bytes:
        together = tokenizer.convert_tokens_to_string([anchor, token])
        return together.removeprefix(before).encode()

    return read
