"""The published data sets: where they are, what their domains are, how they are split, how to cite them."""

import logging
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from fada.data.crop import PageCrop
from fada.data.domains import DomainRule, domain_name
from fada.data.formats import pages, xml
from fada.data.line import Line, LineSet, Log, PathLike, canonical_split
from fada.data.places import IMAGE_SUFFIXES, Base
from fada.data.read import open_lines, unique_ids
from fada.data.reading import Reading
from fada.data.splits import group_of, with_splits
from fada.errors import FadaError
from fada.text.characters import natural_key

log = logging.getLogger(__name__)

HPGT_CENTURIES: Mapping[str, str] = {
    "Barocci 184": "10",
    "Barocci 102": "11",
    "Barocci 132": "12",
    "Barocci 31": "13",
    "Barocci 127": "14",
    "Barocci 59": "15",
    "Barocci 37": "16",
}
"""One manuscript of the Bodleian Library for each century."""

EDACC_ACCENTS: Mapping[str, str] = {
    "Mainstream US English": "US English",
    "Southern British English": "Southern British English",
    "Irish English": "Irish English",
    "Indian English": "Indian English",
}
"""The four accents of the published experiment: what the corpus calls them, and what the domain is called."""


@dataclass(frozen=True)
class PublishedSet:
    """A data set that others have published.

    Attributes:
        group: what must not be in two splits: a page, a speaker.
        hub: its name on the Hugging Face hub, if it is there.
    """

    name: str
    title: str
    licence: str
    citation: str
    home: str
    domains: str
    group: str
    hub: str | None = None
    filters: Mapping[str, Sequence[str]] = field(default_factory=dict)


SETS: Mapping[str, PublishedSet] = {
    "hpgt": PublishedSet(
        name="hpgt",
        title="HPGT, Handwritten Paleographic Greek Text: 10th to 16th century, line by line",
        licence="CC BY-NC-SA 3.0; images (c) 2013 Bodleian Libraries, University of Oxford",
        citation=(
            "Paraskevi Platanou, John Pavlopoulos, Georgios Papaioannou. 2022. Handwritten Paleographic Greek Text "
            "Recognition: A Century-Based Approach. Proceedings of LREC 2022, pages 6585-6589, Marseille."
        ),
        home="https://github.com/vivianpl/HPGTR",
        domains="century",
        group="page",
    ),
    "catmus": PublishedSet(
        name="catmus",
        title="CATMuS Medieval: manuscripts in Latin script, 8th to 16th century; by default French, 13th to 16th",
        licence="CC BY 4.0",
        citation=(
            "Thibault Clérice, Ariane Pinche, Malamatenia Vlachou-Efstathiou, Alix Chagué, Jean-Baptiste Camps, et al. "
            "2024. CATMuS Medieval: A Multilingual Large-Scale Cross-Century Dataset in Latin Script for Handwritten "
            "Text Recognition and Beyond. ICDAR 2024."
        ),
        home="https://huggingface.co/datasets/CATMuS/medieval",
        domains="century",
        group="page",
        hub="CATMuS/medieval",
        filters={"language": ("French",), "century": ("13", "14", "15", "16")},
    ),
    "edacc": PublishedSet(
        name="edacc",
        title="EdAcc, Edinburgh International Accents of English Corpus; by default four accents",
        licence="CC BY-SA 4.0",
        citation=(
            "Ramon Sanabria, Nikolay Bogoychev, Nina Markl, Andrea Carmantini, Ondrej Klejch, Peter Bell. 2023. "
            "The Edinburgh International Accents of English Corpus: Towards the Democratization of English ASR. "
            "ICASSP 2023."
        ),
        home="https://huggingface.co/datasets/edinburghcstr/edacc",
        domains="accent",
        group="speaker",
        hub="edinburghcstr/edacc",
        filters={"accent": tuple(EDACC_ACCENTS)},
    ),
}


def load(
    name: str,
    source: PathLike | None = None,
    *,
    split: str | None = None,
    languages: Sequence[str] | None = None,
    centuries: Sequence[str | int] | None = None,
    accents: Sequence[str] | None = None,
    resplit: bool = False,
    quiet: bool = False,
) -> LineSet:
    """Load a published set, from the hub or from a local copy; its licence and citation are shown.

    Args:
        name: `hpgt`, `catmus` or `edacc`.
        source: local copy: the authors' repository (`hpgt`), parquet files, or anything else that can be read. Without
            it the set is taken from the Hugging Face hub, which `hpgt` is not on.
        split: `train`, `validation` or `test` only.
        languages, centuries: of `catmus`; French and 13 to 16 by default, an empty sequence takes all.
        accents: of `edacc`, as the corpus calls them; the four of the published experiment by default, an empty
            sequence takes all.
        resplit: make splits anew although the source has them.
        quiet: do not show licence and citation.

    Returns:
        The lines, each with its split. Stored splits are kept if they hold a training part; otherwise pages (speakers)
        are divided by :func:`assign_splits`.
    """
    if name not in SETS:
        raise FadaError(f"{name!r} is not a published set; there are: {', '.join(SETS)}.")
    about = SETS[name]
    if source is None and about.hub is None:
        raise FadaError(f"{name} is not on the hub: clone {about.home} and give its folder, as {name}:FOLDER.")
    if not quiet:
        _show(name)
    if name == "hpgt" and source is not None and (archive := _archive(Path(source))):
        lines = _open_hpgt(Path(source), archive)
    else:
        lines = open_lines([f"hub:{about.hub}" if source is None else os.fspath(source)], Reading())
    chosen = {
        "language": languages,
        "century": None if centuries is None else [str(century) for century in centuries],
        "accent": accents,
    }
    filters = {
        column: chosen[column] if chosen[column] is not None else values for column, values in about.filters.items()
    }
    licence, citation = _both(about.licence, lines.licence), _both(about.citation, lines.citation)
    lines = with_splits(_filtered(lines, filters, about), group_of(about.group), resplit=resplit)
    lines.name, lines.licence, lines.citation = name, licence, citation
    split = canonical_split(split)
    return lines if split is None else lines.only(split)


def open_named(source: str, reading: Reading) -> LineSet:
    """A published set by its name as a source: `catmus`, `hpgt:FOLDER`."""
    name, _, rest = source.partition(":")
    return load(name, rest or None, split=reading.split)


@lru_cache
def _show(name: str) -> None:
    """Tell licence and citation, once."""
    about = SETS[name]
    log.info("%s\nLicence: %s\nCitation: %s", about.title, about.licence, about.citation)


def _both(own: str, stored: str | None) -> str:
    """What the set says of itself, and what its copy says if that is something else."""
    return own if stored is None or stored in own or own in stored else f"{own}; {stored}"


def _filtered(lines: LineSet, filters: Mapping[str, Sequence[str] | None], about: PublishedSet) -> LineSet:
    """The lines whose columns have one of the values asked for; a column that is not there is no obstacle."""
    wanted = {column: {str(value) for value in values} for column, values in filters.items() if values}

    def read(log: Log, media: bool) -> Iterator[Line]:
        found: dict[str, set[str]] = {column: set() for column in wanted}
        left_out = kept = 0
        for line in lines._read(log, media):
            refused = False
            for column, values in wanted.items():
                value = line.extra.get(column)
                if value is not None:
                    found[column].add(str(value))
                    refused |= str(value) not in values
            if refused:
                left_out += 1
                continue
            kept += 1
            yield _named_domain(line, about)
        if left_out:
            log.note(f"{left_out} lines left out that are not {_written(wanted)}.")
        if left_out and not kept:
            raise FadaError(
                f"{lines.name}: no line is {_written(wanted)}; there are: {_written(found)}. "
                "Choose others, or all of them with an empty choice."
            )

    return LineSet(read, lines.name, expected=lines.expected)


def _written(values: Mapping[str, Iterable[str]]) -> str:
    return ", ".join(f"{column} {' / '.join(sorted(values, key=natural_key))}" for column, values in values.items())


def _named_domain(line: Line, about: PublishedSet) -> Line:
    domain = domain_name(line.extra.get(about.domains)) or line.domain
    if about.name == "edacc":
        domain = EDACC_ACCENTS.get(domain or "", domain)
    if domain is not None:
        return replace(line, domain=domain)
    if about.name == "hpgt":
        return replace(line, domain=DomainRule(rule=HPGT_CENTURIES).domain(None, line.source, line.extra, ""))
    return line


# --- HPGT ------------------------------------------------------------------------------------------------------------


def _archive(source: Path) -> Path | None:
    """The archive of XML files in the authors' repository."""
    if source.is_file() and source.suffix.lower() == ".zip":
        return source
    archive = source / "alto.zip"
    return archive if archive.is_file() else None


def _open_hpgt(source: Path, archive: Path) -> LineSet:
    """Page images in the folder, PAGE XML (in spite of its name) in the archive; pages without an image are skipped."""
    folder = source if source.is_dir() else source.parent
    reading = Reading(domain_from=HPGT_CENTURIES, images=folder, base=folder, grow=0.15)

    def read(log: Log, media: bool) -> Iterator[Line]:
        reader = pages.PageReader(Base(folder), reading, log, media)
        images = [file for file in sorted(folder.rglob("*"), key=natural_key) if file.suffix.lower() in IMAGE_SUFFIXES]
        try:
            with zipfile.ZipFile(archive) as opened:
                for member in sorted(opened.infolist(), key=lambda member: natural_key(member.filename)):
                    name = member.filename
                    if not name.lower().endswith(".xml") or "__MACOSX" in name:
                        continue
                    try:
                        if member.file_size > xml.MAX_XML_BYTES:
                            raise FadaError(f"{member.file_size:,} bytes, too large for an XML file")
                        found = pages.read_pages(xml.parse(opened.read(member), name), name)
                    except (FadaError, zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError) as error:
                        log.skip(f"{archive.name}/{name}", str(error), "XML file not read")
                        continue
                    for page in found:
                        yield from _hpgt_page(page, name, images, folder, reader)
        except zipfile.BadZipFile as error:
            raise FadaError(f"{archive}: not a zip archive ({error}). Download it again.") from None
        reader.tell_missing()

    def unique(log: Log, media: bool) -> Iterator[Line]:
        return unique_ids(read(log, media), log)

    return LineSet(unique, str(source))


def _hpgt_page(
    page: xml.XmlPage, name: str, images: Sequence[Path], folder: Path, reader: pages.PageReader
) -> Iterator[Line]:
    leaf = _leaf(name)
    names = [leaf, *(_leaf(image) for image in page.image_names)]
    found = next((image for image in images if _leaf(image.name) in names), None)
    if found is not None:
        page = replace(page, image_names=(str(found.relative_to(folder)),))
    manuscript = re.search(r"Barocci[-_ ](\d+)", name) or re.search(r"Barocci[-_ ](\d+)", " ".join(page.image_names))
    place = folder / Path(name).name
    for line in reader.lines(page, place):
        extra = {"manuscript": f"Barocci {manuscript[1]}"} if manuscript else {}
        century = HPGT_CENTURIES.get(extra.get("manuscript", ""), line.domain)
        crop = replace(line.image, xml=None) if isinstance(line.image, PageCrop) else line.image
        yield replace(line, domain=century, image=crop, extra={**line.extra, **extra, "page": leaf, "century": century})


def _leaf(name: str) -> str:
    """What names a page in the names of images and XML files, which differ in prefix: `Barocci-102_00157_fol-75r`."""
    found = re.search(r"Barocci.*", Path(name).stem)
    return found[0] if found else Path(name).stem
