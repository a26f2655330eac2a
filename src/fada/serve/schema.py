"""What goes over the wire."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints

MOST_CHARACTERS = 10_000
"""Of a line's text."""
Number = Annotated[int, Field(ge=1, le=2**53)]
"""Of a document, page, line, text or job."""
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Coordinate = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
Point = tuple[Coordinate, Coordinate]
LineText = Annotated[str, StringConstraints(max_length=MOST_CHARACTERS)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
LineState = Literal["draft", "typed", "confirmed", "bad", "not_text"]
JobState = Literal["queued", "running", "done", "failed", "cancelled"]
Direction = Literal["ltr", "rtl"]
Drafts = Literal["auto", "always", "never"]


class Given(BaseModel, extra="forbid"):
    """What a client sends: unknown names are mistakes."""


class Told(BaseModel):
    """Something went wrong: one sentence, and where."""

    error: str
    where: str | None = None


class Health(BaseModel):
    """Whether the desk works."""

    status: Literal["ok"]
    workers: int
    queued: int


class Version(BaseModel):
    """Of the package and of the interface."""

    fada: str
    api: int


class Model(BaseModel):
    """A recogniser that can be chosen."""

    name: str
    description: str
    kind: Literal["ctc", "tokens"]
    languages: list[str]


class Settings(Given):
    """Of the whole desk."""

    model: Name = "medieval"
    beam: int = Field(default=30, ge=1, le=200)
    drafts: Drafts = "auto"
    confidence_colours: bool = True


class Job(BaseModel):
    """Work that takes its time."""

    id: int
    kind: str
    document: int | None
    state: JobState
    done: int
    total: int
    message: str
    result: Any
    created: str


class _Document(BaseModel):
    id: int
    name: str
    model: str
    direction: Direction
    lines: int
    confirmed: int
    created: str


class Document(_Document):
    """A manuscript, a print, a recording: pages with lines."""

    pages: int


class _Page(BaseModel):
    id: int
    name: str
    number: int
    width: int
    height: int
    state: Literal["waiting", "reading", "read", "failed"]
    message: str


class PageHead(_Page):
    """A page without its lines."""

    lines: int
    confirmed: int


class WholeDocument(_Document):
    """A document with its pages."""

    pages: list[PageHead]


class DocumentChange(Given):
    """What to change of a document; with another model it is read again."""

    name: Name | None = None
    direction: Direction | None = None
    model: Name | None = None


class Uploaded(BaseModel):
    """A new document and the job that reads it."""

    document: Document
    job: Job


class Character(BaseModel):
    """A code point and where it stands, in fractions of the width of the line's crop."""

    character: str
    confidence: float
    start: float
    end: float


class Alternative(BaseModel):
    """Another reading, with its score relative to the best (0)."""

    text: str
    score: float


class _Reading(BaseModel):
    text: str
    characters: list[Character]
    alternatives: list[Alternative]


class Line(_Reading):
    """A line of text."""

    id: int
    page: int
    order: int
    outline: list[tuple[float, float]]
    baseline: list[tuple[float, float]]
    plain: str
    reading: str
    state: LineState
    version: int
    confidence: float | None
    direction: Direction
    domain: str | None
    expected_word_error: float | None
    audio: str | None = None


class Conflict(BaseModel):
    """Somebody else changed the line meanwhile: it is shown as it is now."""

    error: str
    line: Line


class WholePage(_Page):
    """A page with its lines in reading order."""

    document: int
    image: str
    lines: list[Line]


class Seen(Given):
    """The version of a line that the client saw."""

    version: int


class LineChange(Seen):
    """A new text or state for the version of a line that the client saw."""

    text: LineText | None = None
    state: LineState | None = None


class Step(BaseModel):
    """A version of a line."""

    version: int
    text: str
    state: LineState
    at: str
    by: str


class Word(Given):
    """A confirmed word and where it stands, in fractions of the width of the line's crop."""

    text: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    start: Fraction
    end: Fraction


class CompletionAsked(Given):
    """What of a line is known: how it begins, and words in it."""

    prefix: LineText = ""
    words: Annotated[list[Word], Field(max_length=100)] = []


class Completion(_Reading):
    """The best reading under these constraints."""

    milliseconds: float


class SplitAsked(Seen):
    """Where to cut a line, in fractions of its width."""

    at: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


class SeenLine(Seen):
    """A line as the client saw it."""

    id: Number


class JoinAsked(Given):
    """Lines of one page that are one, in the order of their text."""

    lines: Annotated[list[SeenLine], Field(min_length=2, max_length=20)]


Outline = Annotated[list[Point], Field(min_length=3, max_length=2000)]
Baseline = Annotated[list[Point], Field(max_length=2000)]


class NewLine(Given):
    """An outline that was drawn, in pixels of the page."""

    outline: Outline
    baseline: Baseline = []


class OutlineChange(NewLine, Seen):
    """A new outline for the version of a line that the client saw."""


class OrderAsked(Given):
    """All lines of a page in a new order."""

    lines: Annotated[list[Number], Field(max_length=10_000)]


class Sign(BaseModel):
    """A character that the model can write, with a short code to type it by."""

    character: str
    code: str
    name: str
    count: float


class Inferred(BaseModel):
    """The domain that a document seems to be of."""

    name: str
    certainty: float


class TextHead(BaseModel):
    """A text that was given as knowledge."""

    id: int
    name: str
    characters: int


class KnowledgeWeights(Given):
    """How much each kind of knowledge counts."""

    lam: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 1.0
    prior: Annotated[float, Field(ge=-10, le=10, allow_inf_nan=False)] = 0.0
    lm: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0
    length: Annotated[float, Field(ge=-10, le=10, allow_inf_nan=False)] = 0.0


class TargetFrequency(BaseModel):
    """How often a character is to be written: as edited, as counted, and in the recogniser's training."""

    character: str
    name: str
    frequency: float
    counted: float
    training: float | None
    edited: bool


class DocumentKnowledge(BaseModel):
    """What is known of a document; `version` counts what was chosen."""

    version: int
    domain: str | None
    inferred: Inferred | None
    domains: list[str]
    mix: dict[str, float]
    texts: list[TextHead]
    weights: KnowledgeWeights
    targets: list[TargetFrequency]


Symbol = Annotated[str, StringConstraints(min_length=1, max_length=8)]


class KnowledgeChange(Given):
    """What to change: `domain` a name, "unknown" to find it, null for a plain reading; `mix` shares of several domains;
    `weights` null for the usual ones; `targets` replaces earlier edits. `version` is the one that the client saw.
    """

    version: Annotated[int, Field(ge=0, le=2**53)]
    domain: Annotated[str, StringConstraints(max_length=200)] | None = None
    mix: Annotated[dict[Name, Fraction], Field(max_length=50)] | None = None
    weights: KnowledgeWeights | None = None
    targets: Annotated[dict[Symbol, Fraction], Field(max_length=2000)] | None = None


class KnowledgeSet(BaseModel):
    """The knowledge as it is now, and the job that reads the document with it."""

    knowledge: DocumentKnowledge
    job: Job | None


class KnowledgeConflict(BaseModel):
    """Somebody else chose meanwhile: what is known, as it is now."""

    error: str
    knowledge: DocumentKnowledge


class NewText(Given):
    """A text that was pasted."""

    name: Name
    text: Annotated[str, StringConstraints(min_length=1, max_length=20_000_000)]


class Source(BaseModel):
    """What a source of knowledge tells, in bits per character over what the recogniser expects by itself."""

    source: str
    bits: float
    characters: int


class Worth(BaseModel):
    """What each source of knowledge is worth on the document's lines."""

    sources: list[Source]
    lines: int
    note: str
    predicted: dict[str, float] | None


class FrequencyTable(BaseModel):
    """Character frequencies by domain: `table` has a row for each domain, a column for each character."""

    domains: list[str]
    characters: list[str]
    table: list[list[float]]
    correlations: list[list[float]]
    shift: list[dict[str, Any]]


class RunHead(BaseModel):
    """A run below the project folder."""

    id: str
    name: str
    report: bool
