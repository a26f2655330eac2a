"""Knowledge of a document: domain, texts, weights, targets; what it is worth; frequencies of texts; reports."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, File, Query, UploadFile

from fada.errors import FadaError
from fada.serve import adapting, worth
from fada.serve.api.common import ERRORS, Number, OfDesk
from fada.serve.chosen import UNKNOWN
from fada.serve.desk import Desk, MissingError
from fada.serve.jobs import shown
from fada.serve.schema import (
    DocumentKnowledge,
    Inferred,
    Job,
    KnowledgeChange,
    KnowledgeConflict,
    KnowledgeSet,
    KnowledgeWeights,
    NewText,
    TargetFrequency,
    TextHead,
    Worth,
)
from fada.serve.store import insert
from fada.text.characters import OTHER, unicode_name

router = APIRouter(tags=["knowledge"], responses=ERRORS)
Page = Annotated[int | None, Query(ge=1, le=2**53, description="The open page, which is read again first.")]
_CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {
        "model": KnowledgeConflict,
        "description": "Somebody else chose meanwhile; what is known comes with the answer.",
    }
}
_TEXT = 20_000_000
"""Characters of one text at most."""


def as_known(desk: Desk, document: int) -> DocumentKnowledge:
    """What is known of a document, as clients see it."""
    chosen = desk.chosen(document)
    known = desk.known(document)
    texts = "SELECT id, name, length(text) AS characters FROM texts WHERE document = ? ORDER BY id"
    counted, target = known.counted, known.target
    training = known.prior
    targets = []
    if counted is not None and target is not None:
        for symbol, frequency in sorted(
            zip(target.symbols, target.frequencies.tolist(), strict=True), key=lambda one: -counted.frequency(one[0])
        ):
            if symbol != OTHER:
                targets.append(
                    TargetFrequency(
                        character=symbol,
                        name=unicode_name(symbol),
                        frequency=frequency,
                        counted=counted.frequency(symbol),
                        training=None if training is None else training.frequency(symbol),
                        edited=symbol in known.chosen.targets,
                    )
                )
    return DocumentKnowledge(
        version=chosen.version,
        domain=chosen.domain,
        inferred=known.inferred and Inferred(name=known.inferred[0], certainty=known.inferred[1]),
        domains=known.domains,
        mix=dict(known.chosen.mix),
        texts=[TextHead(**text) for text in desk.store.rows(texts, document)],
        weights=KnowledgeWeights(**known.weights),
        targets=targets,
    )


@router.get("/documents/{document}/knowledge")
def get_knowledge(desk: OfDesk, document: Number) -> DocumentKnowledge:
    """What is known of a document."""
    return as_known(desk, document)


@router.put("/documents/{document}/knowledge", responses=_CONFLICT)
def set_knowledge(desk: OfDesk, document: Number, given: KnowledgeChange, page: Page = None) -> KnowledgeSet:
    """Change what is given; the document is read again from its emissions, the open page first."""
    change = {name: value for name, value in given.model_dump().items() if name in given.model_fields_set - {"version"}}
    domains = desk.known(document).domains
    if (domain := change.get("domain")) not in (None, UNKNOWN, *domains):
        raise FadaError(f"no domain {domain!r} here. There are: {', '.join(domains) or 'none'}.")
    if "domain" in change or "mix" in change:  # a domain takes the place of a mixture
        change["mix"] = change.get("mix") or {}
    if "targets" in change:
        change["targets"] = change["targets"] or {}
    if mix := change.get("mix", {}):
        change.setdefault("domain", UNKNOWN)  # also where no knowledge was used before
    if strange := [name for name in mix if name not in domains]:
        raise FadaError(f"no domain {strange[0]!r} here to mix.")
    if mix and sum(mix.values()) <= 0:
        raise FadaError("the shares of a mixture are all zero.")
    job = desk.choose(document, given.version, change, page)
    return KnowledgeSet(knowledge=as_known(desk, document), job=Job(**shown(job)))


def _add_text(desk: Desk, document: int, name: str, text: str, page: int | None) -> KnowledgeSet:
    desk.document(document)
    text = text.replace("\0", "")
    if not text.strip():
        raise FadaError(f"{name}: there is no text in it.")
    desk.jobs.check_room()
    values = {"document": document, "name": name, "text": text}
    taken = {row["name"] for row in desk.store.rows("SELECT name FROM texts WHERE document = ?", document)}
    number = 2
    while values["name"] in taken:
        values["name"] = f"{name}~{number}"
        number += 1
    desk.store.write(lambda connection: insert(connection, "texts", values))
    return _read_again(desk, document, page)


def _read_again(desk: Desk, document: int, page: int | None) -> KnowledgeSet:
    """Texts came or went."""
    desk.tell_knowledge(document)
    job = desk.again(document, page)
    return KnowledgeSet(knowledge=as_known(desk, document), job=Job(**shown(job)))


@router.post("/documents/{document}/texts", status_code=201)
def add_text(desk: OfDesk, document: Number, given: Annotated[NewText, Body()], page: Page = None) -> KnowledgeSet:
    """A text that was pasted: its frequencies and a language model of it guide the reading."""
    return _add_text(desk, document, given.name, given.text, page)


@router.post("/documents/{document}/texts/files", status_code=201)
def add_text_files(
    desk: OfDesk,
    document: Number,
    files: Annotated[list[UploadFile], File(description="Plain text, UTF-8.")],
    page: Page = None,
) -> KnowledgeSet:
    """Texts that were dropped as files."""
    result = None
    for name, text in [text_of(file) for file in files]:
        result = _add_text(desk, document, name, text, page)
    if result is None:
        raise FadaError("no file was sent.")
    return result


def text_of(file: UploadFile) -> tuple[str, str]:
    """Name and text of a file that was uploaded."""
    data = file.file.read(4 * _TEXT + 1)
    name = (file.filename or "text").rsplit("/")[-1][:200]
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FadaError(f"{name}: not UTF-8 text. Save it as UTF-8, as plain text.") from None
    if len(text) > _TEXT:
        raise FadaError(f"{name}: more than {_TEXT:,} characters. Give a part of it.")
    return name, text


@router.delete("/documents/{document}/texts/{text}")
def delete_text(desk: OfDesk, document: Number, text: Number, page: Page = None) -> KnowledgeSet:
    """Forget a text; the document is read again without it."""
    if not desk.store.row("SELECT id FROM texts WHERE id = ? AND document = ?", text, document):
        raise MissingError(f"there is no text {text} of document {document}.")
    desk.jobs.check_room()
    desk.store.write(lambda connection: connection.execute("DELETE FROM texts WHERE id = ?", (text,)) and None)
    return _read_again(desk, document, page)


@router.post("/documents/{document}/adapt", status_code=202)
def adapt_model(desk: OfDesk, document: Number, page: Page = None) -> Job:
    """Adapt the document's model to its confirmed lines; unless it reads worse, the document is read again with it."""
    return Job(**shown(adapting.ask(desk, document, page)))


@router.get("/documents/{document}/worth")
def get_worth(desk: OfDesk, document: Number) -> Worth:
    """Bits per character that each source of knowledge carries over the recogniser's own prior."""
    return Worth(**worth.of_document(desk, document))
