"""Zip files from anywhere: members named beforehand, and never more read than allowed."""

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from fada.common.files import BROKEN_ARCHIVE, replacing
from fada.errors import FadaError

_WRITTEN = (1980, 1, 1, 0, 0, 0)
"""The time of every member, so that the same content is the same file."""


def write_members(path: str | os.PathLike[str], members: Mapping[str, bytes]) -> None:
    """Write a zip file, all or nothing; the same members give the same bytes."""
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, content in members.items():
            member = zipfile.ZipInfo(name, _WRITTEN)
            archive.writestr(member, content, zipfile.ZIP_DEFLATED, 9)


def read_members(source: Path | IO[bytes], most: Mapping[str, int], what: str) -> dict[str, bytes]:
    """The members of a zip file that are named in `most`, each at most so many bytes; others are not looked at.

    Sizes are checked before anything is unpacked, and no more is unpacked than was announced.

    Args:
        what: the file and what it should be, for errors.
    """
    try:
        with zipfile.ZipFile(source) as archive:
            found: dict[str, bytes] = {}
            for member in archive.infolist():
                if member.filename not in most:
                    continue
                if member.filename in found:
                    raise FadaError(f"{what}: {member.filename} is in it twice. Get or build it again.")
                if member.file_size > most[member.filename]:
                    raise FadaError(
                        f"{what}: {member.filename} would unpack to {member.file_size:,} bytes, expected at most "
                        f"{most[member.filename]:,}. It is damaged or made to do harm: do not use it."
                    )
                with archive.open(member) as stream:
                    found[member.filename] = stream.read(member.file_size)
            return found
    except FileNotFoundError:
        raise FadaError(f"{what}: no such file.") from None
    except (OSError, ValueError, NotImplementedError, *BROKEN_ARCHIVE) as error:
        raise FadaError(f"{what}: cannot be read ({error}). Get or build it again.") from None
