"""The options that say how lines are read and decoded, and what is known of them; the same everywhere."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from fada.errors import FadaError

if TYPE_CHECKING:
    from fada.common.workers import Workers
    from fada.decoding.told import Told
    from fada.jobs.cluster import Cluster
    from fada.jobs.prepare import Wanted

PANEL = "Reading"
KNOWLEDGE = "Knowledge"
DECODING = "Decoding"
CLUSTER = "On a cluster"

EQUIVALENCES = typer.Option(
    None, "--equivalences", help="Table of what counts as the same, one pair a line: ſ s, ꝑ per. See the documentation."
)
SHARD = typer.Option(
    None,
    "--shard",
    help="3/64: only the third of 64 parts of the lines, written to out.003-of-064.tsv for --out out.tsv; "
    "`fada merge` joins the parts.",
)

Beam = TypeVar("Beam", int, None, list[int])


def affordable(beam: Beam) -> Beam:
    """The value of ``--beam``; one that no memory is enough for is refused before any work."""
    from fada.decoding.weights import check_beam

    for one in beam if isinstance(beam, list) else [beam]:
        if one is not None:
            check_beam(one)
    return beam


def _option(name: str, help: str, panel: str = PANEL, **more: Any) -> Any:
    return typer.Option(f"--{name}", help=help, rich_help_panel=panel, **more)


_known, _decoding, _cluster = (partial(_option, panel=panel) for panel in (KNOWLEDGE, DECODING, CLUSTER))

Encoding = Annotated[
    str | None, _option("encoding", "Of manifests, texts, word lists and .gt.txt, if not UTF-8: latin-1, cp1252.")
]


@dataclass(frozen=True)
class ReadingOptions:
    """How lines are read, as asked for on the command line; see :class:`fada.data.reading.Reading`."""

    split: Annotated[str | None, _option("split", "Only this split.")] = None
    text_column: Annotated[str | None, _option("text-column", "Column of the transcription.")] = None
    image_column: Annotated[str | None, _option("image-column", "Column of the image.")] = None
    audio_column: Annotated[str | None, _option("audio-column", "Column of the sound.")] = None
    id_column: Annotated[str | None, _option("id-column", "Column of the line's id.")] = None
    domain_column: Annotated[str | None, _option("domain-column", "Column of the domain: century, region, accent.")] = (
        None
    )
    domain: Annotated[str | None, _option("domain", "The domain of all lines.")] = None
    domain_from: Annotated[
        str | None,
        _option(
            "domain-from",
            "'folder': the first below the source; 'folder:2', 'folder:-1': another one; 'file': the file's name; a "
            "table manuscript,domain (.csv, .json); or a regular expression over the path.",
        ),
    ] = None
    read_as: Annotated[str | None, _option("read-as", "The source's format, if it is mistaken.")] = None
    images: Annotated[Path | None, _option("images", "Folder of the page images, if not where ALTO or PAGE say.")] = (
        None
    )
    encoding: Encoding = None
    grow: Annotated[
        float, _option("grow", "Widen outlines by this share of the height, where they cut accents off.", min=0, max=2)
    ] = 0.0
    allow_outside: Annotated[bool, _option("allow-outside", "Follow paths that leave the source's folder.")] = False

    def given(self) -> dict[str, Any]:
        """What was asked for, as :func:`fada.read_lines` takes it; what is as by default is left out."""
        names = {"read_as": "format"}
        values = {names.get(one.name, one.name): getattr(self, one.name) for one in fields(self)}
        defaults = {names.get(one.name, one.name): one.default for one in fields(self)}
        return {name: value for name, value in values.items() if value != defaults[name]}


def given(context: typer.Context) -> dict[str, Any]:
    """The options that the user gave a command, by the names of its parameters."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name: value for name, value in context.params.items() if getattr(sources[name], "name", "") != "DEFAULT"}


NO_DOMAIN = ("text", "targets", "knowledge", "encoding")
"""The options of knowledge for commands that have `--domain` among those of reading."""

TEXTS = ("text_column", "domain_column", "domain", "domain_from", "encoding", "split")
"""The options that matter where only texts are read."""


@dataclass(frozen=True)
class KnowledgeOptions:
    """What is known of the lines, as told on the command line; see :class:`fada.decoding.told.Told`."""

    text: Annotated[
        list[str] | None,
        _known("text", "Text in the language of the lines, the more the better: files, folders; repeatable."),
    ] = None
    targets: Annotated[Path | None, _known("targets", "Target file: how often each character is used.")] = None
    knowledge: Annotated[
        str | None,
        _known(
            "knowledge",
            "A .fada file, the name of a built-in one (`fada knowledge list`), 'auto' to find out which, or 'none'.",
        ),
    ] = None
    domain: Annotated[str | None, _known("domain", "The domain of all lines.")] = None
    encoding: Encoding = None

    def told(self) -> "Told":
        """The same for the library."""
        from fada.decoding.told import Told

        return Told(**vars(self))


@dataclass(frozen=True)
class DecodingOptions:
    """How lines are decoded, as told on the command line; see :class:`fada.jobs.prepare.Wanted`."""

    lam: Annotated[
        float | None,
        _decoding(
            "lam", "λ of Eq. 2; 1 is plain beam search. Default: 0.5 with --targets, else as stored.", min=0, max=1
        ),
    ] = None
    scale: Annotated[float | None, _decoding("scale", "Factor of the distance; 1 is the paper. [1]", min=0)] = None
    distance: Annotated[str | None, _decoding("distance", "sorted_w2, aligned_w2, js, kl or w1. [sorted_w2]")] = None
    beam: Annotated[
        int | None, _decoding("beam", "Hypotheses kept in the search. [5, or as stored]", min=1, callback=affordable)
    ] = None
    tuned: Annotated[
        Path | None, _decoding("tuned", "Weights found by `fada tune`; what other options say goes first.")
    ] = None
    lm: Annotated[Path | None, _decoding("lm", "Character n-gram model: .npz of fada, ARPA, or a KenLM binary.")] = None
    lm_weight: Annotated[
        float | None, _decoding("lm-weight", "Weight of the language model. [0.5, or as stored]", min=0)
    ] = None
    words: Annotated[
        list[Path] | None,
        _decoding("words", "List of words that are used: one a line, with a tab its count; repeatable."),
    ] = None
    hot_word: Annotated[
        list[str] | None, _decoding("hot-word", "A word that is expected, such as a name; repeatable.")
    ] = None
    words_share: Annotated[
        float, _decoding("words-share", "How much the words count beside the model.", min=0.01, max=0.99)
    ] = 0.05

    def wanted(self, told: "Told", **more: float | None) -> "Wanted":
        """The same for the library, with what is known of the lines and further weights."""
        from fada.jobs.prepare import Wanted

        weights = {name: getattr(self, name) for name in ("lam", "scale", "distance", "beam", "lm_weight")} | more
        asked = {name: value for name, value in weights.items() if value is not None}
        return Wanted(told, asked, self.tuned, self.lm, self.words or (), self.hot_word or (), self.words_share)


@dataclass(frozen=True)
class ClusterOptions:
    """Where the work is done, as told on the command line."""

    ray: Annotated[bool, _cluster("ray", "Work on a Ray cluster on this machine.")] = False
    ray_address: Annotated[str | None, _cluster("ray-address", "Work on this Ray cluster: host:6379, or auto.")] = None
    ray_token: Annotated[Path | None, _cluster("ray-token", "File with the token that the cluster asks for.")] = None
    jobs: Annotated[
        int | None, _cluster("jobs", "Models or pieces of work side by side on the cluster. [one a CPU]", min=1)
    ] = None

    def cluster(self, device: str = "cpu", jobs: int | None = None) -> "Cluster | None":
        """The cluster that was asked for; None if none was.

        Args:
            jobs: work side by side, of a command with an option of its own for that.
        """
        if self.ray or self.ray_address:
            from fada.jobs.cluster import Cluster

            return Cluster(self.ray_address, jobs or self.jobs, device, self.ray_token)
        if self.jobs or self.ray_token:
            raise FadaError(
                "--jobs and --ray-token are for --ray and --ray-address: give one of these, or leave them out."
            )
        return None

    @contextmanager
    def workers(self, out: Path, jobs: int | None = None) -> "Iterator[Workers | int]":
        """Who does independent pieces of work: the cluster that was asked for, else `jobs` processes here, else two.

        Args:
            out: what is written; the token of a cluster that is started here lives beside it while it runs.
        """
        cluster = self.cluster(jobs=jobs)
        if cluster is None:
            yield jobs or 2
        else:
            with cluster.running(out) as running:
                yield running


JOBS = typer.Option(None, "--jobs", min=1, help="Trainings at a time. [2, on a cluster one a CPU]")
NO_JOBS = ("ray", "ray_address", "ray_token")
"""The options of a cluster for commands that have `--jobs` anyway."""


def _with(group: Any, argument: str, *only: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a group, or only some of them; it gets them as one argument."""
    hints = get_type_hints(group, include_extras=True)
    chosen = [one for one in fields(group) if not only or one.name in only]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        shared = {one.name for one in chosen} & {*signature.parameters}  # with another group of the same command
        options = [
            inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
            for one in chosen
            if one.name not in shared
        ]
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in signature.parameters.values()
            if parameter.name != argument
        ]

        @wraps(command)
        def run(**values: Any) -> None:
            given = group(**{one.name: values[one.name] for one in chosen})
            values = {name: value for name, value in values.items() if name in signature.parameters}
            command(**{argument: given}, **values)

        run.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *options]}
        return run

    return decorate


with_reading = partial(_with, ReadingOptions, "reading")
with_knowledge = partial(_with, KnowledgeOptions, "known")
with_decoding = partial(_with, DecodingOptions, "decoding")
with_cluster = partial(_with, ClusterOptions, "where")
