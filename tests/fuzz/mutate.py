"""Damage for files: a seeded mutator of bytes, and of the text and numbers that are written in them."""

import random

TOKENS = (
    *b'|\x00|\xff\xfe|\xed\xa0\x80|\x1b[2J|[]|{}|""|null|true|NaN|-Infinity|1e400|-1|0|2147483648'.split(b"|"),
    b"99999999999999999999",
    *b"&a;|<x>|</|]]>|<!--|*a|&a [*a,*a]|!!python/object:os.system|/dev/zero|,|\t|\n|\r|\"|'".split(b"|"),
    b"[" * 3000,
    b'{"a":' * 3000,
    b"../" * 8 + b"etc/passwd",
    "\u202e".encode(),
    "\u0301".encode(),
)


def mutated(data: bytes, seed: str) -> bytes:
    """`data` with one to four damages; the same for the same seed."""
    rng = random.Random(seed)
    result = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        rng.choice(_DAMAGES)(result, rng)
    return bytes(result)


def _place(data: bytearray, rng: random.Random) -> int:
    return rng.randrange(len(data) + 1)


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _number(data: bytearray, rng: random.Random) -> None:
    """Four or eight bytes become a length that is far too large, or negative."""
    size = rng.choice((4, 8))
    if len(data) > size:
        at = rng.randrange(len(data) - size)
        value = rng.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)) % 2 ** (8 * size)
        data[at : at + size] = value.to_bytes(size, "little")


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[_place(data, rng) :]


def _remove(data: bytearray, rng: random.Random) -> None:
    at = _place(data, rng)
    del data[at : at + rng.choice((1, 4, 16, 64, 256))]


def _repeat(data: bytearray, rng: random.Random) -> None:
    at = _place(data, rng)
    data[at:at] = data[at : at + rng.choice((1, 8, 64, 512))] * rng.choice((1, 2, 20))


def _insert(data: bytearray, rng: random.Random) -> None:
    at = _place(data, rng)
    data[at:at] = rng.choice(TOKENS)


def _replace(data: bytearray, rng: random.Random) -> None:
    """A word of the file (a number, a name, a value) becomes something else."""
    at = _place(data, rng)
    end = at
    while end < len(data) and chr(data[end]).isalnum():
        end += 1
    while at > 0 and chr(data[at - 1]).isalnum():
        at -= 1
    data[at:end] = rng.choice(TOKENS)


_DAMAGES = (_flip, _flip, _set, _number, _cut, _remove, _repeat, _insert, _replace, _replace)
