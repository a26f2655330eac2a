"""Every reader of a file that comes from outside: a sound example, and how it is read to the end."""

import gzip
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

from PIL import Image

from tests.support.drawn import png

OLD = Path(__file__).parents[1] / "files" / "format-0.1"
RESULTS = Path(__file__).parents[2] / "results" / "more-subword-synthetic-trocr"


@dataclass(frozen=True)
class Reader:
    """`make` writes a sound example into a folder and names the file to damage; `read` reads it to the last byte.

    `needs` is a package that is not always installed; of a slow reader one case in so many as `share` is tried.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    needs: str = "fada"
    share: int = 1


def _file(name: str, text: str) -> Callable[[Path], Path]:
    """A text file, with an image beside it."""

    def make(folder: Path) -> Path:
        (folder / "a.png").write_bytes(png(30, 10))
        (folder / name).write_text(text, encoding="utf-8")
        return folder / name

    return make


def _by(place: str) -> Callable[..., Any]:
    """What reads a path by itself: `module:function`, imported when it is needed."""
    module, _, names = place.partition(":")
    return lambda path: attrgetter(names)(import_module(f"fada.{module}"))(path)


_pairs = _file("a.gt.txt", "a saint dénis\n")
_arpa = _file(
    "lm.arpa",
    "\\data\\\nngram 1=5\nngram 2=3\n\n\\1-grams:\n-1.0\t<unk>\n-99\t<s>\t-0.5\n-0.8\t</s>\n-0.7\ta\t-0.3\n"
    "-0.8\tb\t-0.2\n\n\\2-grams:\n-0.2\t<s> a\n-0.4\ta b\n-0.3\tb </s>\n\n\\end\\\n",
)
_HOCR = """<html xmlns="http://www.w3.org/1999/xhtml"><body>
        <div class="ocr_page" title='image "a.png"; bbox 0 0 30 10'>
        <p class="ocr_par" id="p"><span class="ocr_line" id="a" title="bbox 1 1 29 5; baseline 0.01 -1">
        <span class="ocrx_word" title="bbox 1 1 14 5">en</span> <span class="ocrx_word">france</span></span>
        <span class="ocr_line" title="bbox 1 5 29 9">a saint</span></p></div></body></html>"""
_RECIPE = "model: crnn:tiny\ndata: [lines.parquet]\nlam: 0.5\nout: run\nepochs: 3\nseed: 1\n"


def _read_lines(path: Path, **options: Any) -> None:
    import fada

    for line in fada.read_lines(path, **options):
        if line.image is not None:
            line.load_image()


def _arrow(packed: str | None = None) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        import pyarrow as pa

        path = folder / "data-00000-of-00001.arrow"
        image = {"bytes": png(30, 10), "path": "a.png"}
        centuries = pa.array(["13", "14", None]).dictionary_encode()
        table = pa.table({"text": ["ab", "cd", "é"], "century": centuries, "image": [image] * 3})
        new, options = pa.ipc.new_file if packed else pa.ipc.new_stream, pa.ipc.IpcWriteOptions(compression=packed)
        with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=2)
        return path

    return make


def _jsonl(folder: Path) -> Path:
    (folder / "a.png").write_bytes(png(30, 10))
    rows = [
        {"image": "a.png", "text": "ab", "domain": "13", "page": 3},
        {"image": "a.png", "text": "ē", "domain": None},
    ]
    path = folder / "lines.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    return path


def _page_file(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from tests.support.xml_pages import write_example

        return write_example(folder, name)

    return make


def _ids(folder: Path) -> Path:
    _pairs(folder)
    (folder / "ids.json").write_text(json.dumps({"a": "MS 1/fol. 2 é", "b": "x"}), encoding="utf-8")
    return folder / "ids.json"


def _images(folder: Path) -> Path:
    """One of every kind and of what is told apart by content alone, whatever its name says."""
    images = folder / "images"
    images.mkdir()
    grey = Image.radial_gradient("L").resize((30, 10))
    for ending in ("png", "jpg", "tif", "webp", "gif", "jp2", "bmp", "pgm"):
        grey.save(images / f"a.{ending}")
    for packing in ("tiff_lzw", "tiff_adobe_deflate", "group4"):
        grey.convert("1" if packing == "group4" else "RGB").save(images / f"{packing}.tif", compression=packing)
    for mode in ("RGB", "1", "F"):
        grey.convert(mode).save(images / f"{mode}.ppm", "PPM")
    (images / "plain.ppm").write_text(f"P3\n30 10\n255\n{' 9 200 30' * 300}\n", encoding="ascii")
    return images


def _read_image(path: Path) -> None:
    _read_lines(path, untranscribed=True)


def _avif(folder: Path) -> Path:
    Image.radial_gradient("L").resize((30, 10)).save(folder / "a.avif")
    return folder / "a.avif"


def _zip(folder: Path) -> Path:
    path = folder / "lines.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/a.png", png(30, 10))
        archive.writestr("a/a.gt.txt", "a saint\n")
    return path


def _desk(folder: Path) -> Path:
    from fada.serve.store import Store, insert

    values = {"name": "a", "model": "medieval", "direction": "ltr", "created": "2026", "knowledge": {}}
    with closing(Store(folder / "desk.sqlite")) as store:
        store.write(lambda connection: insert(connection, "documents", values))
    return folder / "desk.sqlite"


def _read_desk(path: Path) -> None:
    from fada.serve.store import Store

    with closing(Store(path)) as store:
        store.rows("SELECT * FROM documents")


def _model_folder(kind: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from tests.support import model_folders

        return Path(getattr(model_folders, f"{kind}_folder")(folder))

    return make


def _heic(folder: Path) -> Path:
    import pillow_heif

    pillow_heif.from_pillow(Image.linear_gradient("L").convert("RGB")).save(folder / "a.heic")
    return folder / "a.heic"


def _copied(name: str, beside: str | None = None) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        if beside is not None:
            shutil.copytree(OLD / beside, folder, dirs_exist_ok=True)
            return folder / name
        return Path(shutil.copy(OLD / name, folder / Path(name).name))

    return make


def _read_emissions(path: Path) -> None:
    import fada

    emissions = fada.Emissions.load(path.with_name("test.npz"))
    decoder = fada.CTCBeamDecoder(emissions.symbols, blank=emissions.blank, beam_size=2, threads=1)
    decoder.decode_batch(emissions.log_probs)


def _read_targets(path: Path) -> None:
    import fada

    for p in fada.TargetSet.load(path).values():
        p.frequencies.sum()


def _read_recipe(path: Path) -> None:
    from fada.common.settings import read_recipe
    from fada.training.settings import TrainSettings

    TrainSettings.of(read_recipe(path), str(path))


def _read_model(path: Path) -> None:
    import fada
    from fada.models.registry import _blank

    recognizer = fada.load_recognizer(path.parent)
    recognizer.transcribe(_blank(recognizer.modality))


def _decoder(folder: Path) -> Path:
    return Path(shutil.copytree(OLD / "model" / "decoder", folder / "decoder"))


def _read_decoder(path: Path) -> None:
    from fada.decoding.knowledge import Decoder

    decoder = Decoder.of_model(path.parents[1])
    if decoder is not None:
        for domain in decoder.knowledge.domain_lms:
            model = decoder.knowledge.lm_of("domain", domain)
            assert model is not None
            model.log_prob("arma viro", end=True)


def _language_model() -> Any:
    from fada.decoding.lm import CharNgram

    return CharNgram.train(["arma virumque cano", "troiae qui primus"], order=3)


def _read_language_model(path: Path) -> None:
    from fada.decoding.lm_files import read_lm

    read_lm(path, "abc ").log_prob("arma viro", end=True)


def _npz(folder: Path) -> Path:
    path = folder / "lm.npz"
    _language_model().save(path, bits=8)
    return path


def _gzipped(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
    def pack(folder: Path) -> Path:
        plain = make(folder)
        path = plain.with_name(f"{plain.name}.gz")
        path.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
        return path

    return pack


def _knowledge(folder: Path) -> Path:
    from fada.decoding.knowledge import Knowledge, write_knowledge

    path = folder / "latin.fada"
    write_knowledge(Knowledge.from_texts(["arma virumque cano", "troiae qui primus"], name="latin", order=3), path)
    return path


def _read_knowledge(path: Path) -> None:
    from fada.decoding.knowledge import read_knowledge

    known = read_knowledge(path)
    if known.global_lm is not None:
        known.global_lm.log_prob("arma viro", end=True)
    if known.overall is not None:
        known.overall.frequencies.sum()


def _members(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
    """The members of a zip file one after the other, so that damage gets past its checksums."""

    def unpack(folder: Path) -> Path:
        packed = make(folder)
        with zipfile.ZipFile(packed) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        packed.with_suffix(".sizes").write_text(json.dumps({name: len(one) for name, one in members.items()}), "utf-8")
        path = packed.with_suffix(".members")
        path.write_bytes(b"".join(members.values()))
        return path

    return unpack


def _packed(suffix: str, read: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def pack(path: Path) -> None:
        from fada.common.archive import write_members

        content, members = path.read_bytes(), {}
        for name, size in json.loads(path.with_suffix(".sizes").read_text("utf-8")).items():
            members[name], content = content[:size], content[size:]
        write_members(path.with_suffix(suffix), members)
        read(path.with_suffix(suffix))

    return pack


def _read_words(path: Path) -> None:
    from fada.decoding.wordlist import read_words, word_model

    word_model(read_words(path)).log_prob("arma viro", end=True)


def _manifest(folder: Path) -> Path:
    (folder / "a.png").write_bytes(png(30, 10))
    body = {"id": "https://example.org/iiif/a.png", "type": "Image"}
    canvas = {"items": [{"items": [{"body": body}]}]}
    old = {"images": [{"resource": {"@id": "a.png", "default": {"@id": "a.png"}}}]}
    path = folder / "manifest.json"
    path.write_text(json.dumps({"items": [canvas], "sequences": [{"canvases": [old]}]}), encoding="utf-8")
    return path


def _read_manifest(path: Path) -> None:
    from fada.data.segment.photographs import find_files

    for file in find_files(path):
        assert file.parent == path.parent.resolve(), f"{file} is outside"


def _boxes(folder: Path) -> Path:
    (folder / "a.png").write_bytes(png(30, 10))
    lines = [
        {"outline": [[1, 1], [29, 1], [29, 5], [1, 5]], "baseline": [[1, 4], [29, 4.5]]},
        {"outline": [[1, 5], [29, 5], [15, 9]], "zone": "margin"},
    ]
    path = folder / "boxes.json"
    path.write_text(json.dumps({"a.png": lines}), encoding="utf-8")
    return path


def _read_boxes(path: Path) -> None:
    from fada.data.segment.photographs import Photograph
    from fada.jobs.segmenters import segmenter

    photograph = Photograph("a", path.with_name("a.png"))
    segmenter(str(path))(photograph, photograph.load())


def _read_journal(path: Path) -> None:
    from fada.data.line import Line
    from fada.jobs.journal import Journal

    job = json.loads((OLD / "out.tsv.journal").read_text("utf-8").partition("\n")[0])
    with Journal(path, job) as journal:
        for line, domain in ("test0", "old"), ("test1", "new"), ("test2", "old"):
            journal.has(Line(line, domain=domain))
        for row in journal.rows.values():
            row["id"].encode()


def _sounds(folder: Path) -> Path:
    """One of every format that libsndfile can write, for it goes by content, whatever a name says."""
    import numpy as np
    import soundfile

    sounds = folder / "sounds"
    sounds.mkdir()
    left = np.sin(np.arange(800) / 9)[:, None] / 2
    for kind in {*soundfile.available_formats()} - {"RAW", "SD2"}:  # one tells nothing of itself, one is two files
        for channels in (left.repeat(2, 1), left):
            with suppress(soundfile.SoundFileError, ValueError):
                soundfile.write(sounds / f"{kind}.wav", channels, 8000, format=kind)
                break
    soundfile.write(sounds / "a.opus", left, 8000, format="OGG", subtype="OPUS")
    for packing in ("ALAW", "MS_ADPCM", "IMA_ADPCM", "GSM610"):
        soundfile.write(sounds / f"{packing}.wav", left, 8000, subtype=packing)
    return sounds


def _part_note(folder: Path) -> Path:
    from fada.jobs.shards import PartNote

    note = PartNote(shard=1, of=2, job="a1", total=4, count=2, positions=[0, 2], left_out=[], unit="lines")
    return note.write(folder / "out.001-of-002.tsv")


def _read_part_note(path: Path) -> None:
    from fada.jobs.merge import _Part

    with tempfile.TemporaryFile() as file:
        found = _Part.read(path.with_name("out.001-of-002.tsv"), file)
        found.positions  # noqa: B018


def _kenlm(kind: str) -> Callable[[Path], Path]:
    return lambda folder: Path(shutil.copy(OLD.parent / f"kenlm-{kind}.bin", folder / "lm.bin"))


def _read_kenlm(path: Path) -> None:
    from importlib.util import find_spec

    from fada.decoding.lm_files import read_kenlm
    from fada.errors import FadaError

    try:
        read_kenlm(path, "ab ")
    except FadaError as error:
        if find_spec("kenlm") or "needs the package kenlm" not in str(error):
            raise


def _pdf(folder: Path) -> Path:
    page = Image.radial_gradient("L").resize((60, 40))
    page.save(folder / "a.pdf", save_all=True, append_images=[page.convert("RGB")])
    return folder / "a.pdf"


def _read_pdf(path: Path) -> None:
    from fada.data.segment.photographs import photographs

    with tempfile.TemporaryDirectory() as folder:
        for page in photographs(path, Path(folder), colours=True):
            page.load()


def _search() -> Any:
    from fada.decoding.knowledge import Knowledge
    from fada.decoding.search import BeamSearch
    from tests.support.emission_sets import make_emissions

    return BeamSearch(make_emissions(1, 3), Knowledge())


def _trials(folder: Path) -> Path:
    from fada.decoding.weights import Weights
    from fada.tuning.trials import Trials

    trials = Trials(_search(), store=folder / "trials.jsonl")
    for beam in (2, 3, 4):
        trials.evaluate(Weights(beam=beam))
    return folder / "trials.jsonl"


def _read_trials(path: Path) -> None:
    from fada.decoding.weights import Weights
    from fada.tuning.trials import Trials

    trials = Trials(_search(), store=path)
    for beam in (2, 3, 4):
        trials.evaluate(Weights(beam=beam))


def _search_jointly(path: Path, count: int) -> None:
    from fada.tuning.grid import Grid
    from fada.tuning.joint import Space, search_jointly
    from fada.tuning.trials import Trials

    trials = Trials(_search())
    search_jointly(trials, Space(Grid(lam=()), (2, 3), (), prior=False, length=True), count, path)
    trials.best()


def _study(folder: Path) -> Path:
    _search_jointly(folder / "study.db", 2)
    return folder / "study.db"


def _result(ending: str) -> Callable[[Path], Path]:
    """A small result: five lines of three systems, and what is told of them without the lines' fingerprint."""

    def make(folder: Path) -> Path:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        place = folder / RESULTS.name
        place.mkdir()
        told = json.loads((RESULTS / "0.json").read_text("utf-8"))
        del told["made"]
        for arm in told["arms"].values():
            arm["history"] = arm["history"][:1]
        (place / "0.json").write_text(json.dumps(told), encoding="utf-8")
        texts = pq.read_table(RESULTS / "0.parquet")
        lines, systems = texts["id"].unique()[:5], ["systems//standard", "systems//FADA-GD", "beams/standard/1"]
        few = texts.filter(pc.and_(pc.is_in(texts["id"], lines), pc.is_in(texts["system"], pa.array(systems))))
        pq.write_table(few, place / "0.parquet", compression="none", use_dictionary=False, store_schema=False)
        return place / f"0.{ending}"

    return make


def _read_results(path: Path) -> None:
    from fada.experiments.document import document
    from fada.experiments.scoring import check_results

    document(path.parents[1])
    for _ in check_results(path.parents[1]):
        pass


def _lipogram(folder: Path) -> Path:
    """A small experiment: two stories of one letter, and two of a rate with what is usual."""
    source, place = RESULTS.parent / "lipogram", folder / "lipogram"
    (place / "stories").mkdir(parents=True)
    recipe = json.loads((source / "recipe.json").read_text("utf-8"))
    recipe |= {"letters": ["a"], "variants": ["plain"], "rates": {"e": [0.5]}, "topics": recipe["topics"][:2]}
    recipe["searches"][0]["seeds"] = [0]
    (place / "recipe.json").write_text(json.dumps(recipe), encoding="utf-8")
    for name in ("own.json", "tuning.json"):
        shutil.copy(source / name, place / name)
    for name in ("sample-0-a-plain", "usual-0", "rate-0-e-0.5"):
        told = json.loads((source / "stories" / f"{name}.json").read_text("utf-8"))
        told["stories"] = told["stories"][:2]
        (place / "stories" / f"{name}.json").write_text(json.dumps(told), encoding="utf-8")
    return place


def _read_lipogram(path: Path) -> None:
    from fada.experiments.lipogram.experiment import Experiment, LipogramRecipe

    folder = path.parent if path.parent.name == "lipogram" else path.parents[1]
    experiment = Experiment(LipogramRecipe.load(folder / "recipe.json"), folder)
    for _ in experiment.differing():
        pass
    experiment.summary().to_markdown()


@cache
def _trainer(folder: Path, epochs: int) -> Any:
    from fada.models import registry
    from fada.targets.target_set import TargetSet
    from fada.training.lines import LineDataset
    from fada.training.settings import TrainSettings
    from fada.training.trainer import FadaTrainer
    from tests.support.training_lines import image_lines

    lines = list(image_lines(4, 0, "train"))
    settings = TrainSettings.of(
        {
            "model": "crnn:tiny",
            "data": "lines",
            "out": folder,
            "epochs": epochs,
            "threads": 1,
            "device": "cpu",
            "lam": 1,
        }
    )
    domains = sorted({str(line.domain) for line in lines})
    recognizer = registry.build("crnn:tiny", [str(line.text) for line in lines], domains=domains)
    targets = TargetSet.from_texts({domain: ["ab"] for domain in domains})
    data = LineDataset(recognizer, lines, domains)
    return FadaTrainer(settings, recognizer, targets, data, data, folder / "checkpoints")


def _checkpoint(folder: Path) -> Path:
    """The checkpoint after the first of two epochs."""
    _trainer(folder, 2).fit(None)
    shutil.rmtree(folder / "checkpoints/checkpoint-2")
    return folder / "checkpoints" / "checkpoint-1"


def _read_checkpoint(path: Path) -> None:
    """As it was written, and as earlier versions wrote it: without checksums."""
    from fada.training.checkpoints import CHECKSUMS, last_checkpoint

    for without in ((), (CHECKSUMS,)):
        with tempfile.TemporaryDirectory() as folder:
            copied = Path(folder) / "checkpoints"
            shutil.copytree(path.parent.parent, copied, ignore=shutil.ignore_patterns(*without))
            found = last_checkpoint(copied)
            if found is not None:
                trainer = _trainer(path.parents[2], 2)
                trainer.args.output_dir = str(copied)
                trainer.fit(found)


READERS = {
    "parquet": Reader(_copied("lines.parquet"), _read_lines),
    "arrow": Reader(_arrow(), lambda path: _read_lines(path.parent)),
    "arrow-packed": Reader(_arrow("zstd"), lambda path: _read_lines(path.parent)),
    "csv": Reader(_file("lines.csv", 'image,text,domain\na.png,"ab, cd",13\na.png,"é\n2",14\n'), _read_lines),
    "jsonl": Reader(_jsonl, _read_lines),
    "alto": Reader(_page_file("alto4"), _read_lines),
    "page": Reader(_page_file("page2019"), _read_lines),
    "hocr": Reader(_file("page.hocr", _HOCR), _read_lines),
    "pairs": Reader(_pairs, lambda path: _read_lines(path.parent)),
    "ids": Reader(_ids, lambda path: _read_lines(path.parent)),
    "images": Reader(_images, _read_image),
    "avif": Reader(_avif, _read_image, needs="PIL.AvifImagePlugin"),
    "text": Reader(
        _file("text.txt", "a saint dénis\n\nꝑ in\n"), lambda path: _by("decoding.knowledge:read_texts")([path])
    ),
    "topics": Reader(
        _file("topics.txt", "a dog at the park\n\n# no\nun été à Paris\n"),
        _by("experiments.lipogram.story:read_topics"),
    ),
    "domains": Reader(
        _file("domains.json", json.dumps({"MS 1": "13", "Paris, lat. 2": "14"})), _by("data.domains:_read_table")
    ),
    "zip": Reader(_zip, _read_lines),
    "desk": Reader(_desk, _read_desk),
    "heic": Reader(_heic, _read_image, needs="pillow_heif"),
    "emissions": Reader(_copied("test.npz", "run/emissions"), _read_emissions),
    "symbols": Reader(_copied("symbols.json", "run/emissions"), _read_emissions),
    "targets": Reader(_copied("targets.json"), _read_targets),
    "tuned": Reader(_copied("run/tuned.json"), _by("tuning.tuned:Tuned.load")),
    "recipe": Reader(_file("recipe.yaml", _RECIPE), _read_recipe),
    "nbest": Reader(_copied("nbest.parquet"), _by("decoding.nbest:NBest.load")),
    "model-config": Reader(_copied("config.json", "model"), _read_model),
    "model-processor": Reader(_copied("crnn_processor.json", "model"), _read_model),
    "model-weights": Reader(_copied("model.safetensors", "model"), _read_model),
    "model-decoder": Reader(_decoder, _read_decoder),
    **{
        kind: Reader(_model_folder(kind), _read_model, share=4)
        for kind in ("trocr", "whisper", "wav2vec2_with_alphabet")
    },
    "run-config": Reader(_copied("config.json", "run"), lambda path: _open_run(path.parent)),
    "run-predictions": Reader(_copied("predictions.parquet", "run"), lambda path: _evaluate(path.parent)),
    "knowledge": Reader(_knowledge, _read_knowledge),
    "knowledge-members": Reader(_members(_knowledge), _packed(".fada", _read_knowledge)),
    "lm": Reader(_npz, _read_language_model),
    "lm-members": Reader(_members(_npz), _packed(".npz", _read_language_model)),
    "arpa": Reader(_arpa, _read_language_model),
    "arpa-gzip": Reader(_gzipped(_arpa), _read_language_model),
    "words": Reader(_file("words.txt", "arma\nvirumque\t12\nTroiae\t0.5\nab oris\n"), _read_words),
    "equivalences": Reader(
        _file("same.txt", "# signs\nſ s\nꝑ\tper\nu=v\n¶\n"), _by("evaluation.edits:read_equivalences")
    ),
    "iiif": Reader(_manifest, _read_manifest),
    "outlines": Reader(_boxes, _read_boxes),
    "journal": Reader(_copied("out.tsv.journal"), _read_journal),
    "part-note": Reader(_part_note, _read_part_note),
    "sounds": Reader(_sounds, _by("data.audio:load_audio"), needs="soundfile"),
    "kenlm-trie": Reader(_kenlm("trie"), _read_kenlm),
    "kenlm-probing": Reader(_kenlm("probing"), _read_kenlm),
    "pdf": Reader(_pdf, _read_pdf),
    "trials": Reader(_trials, _read_trials),
    "study": Reader(_study, lambda path: _search_jointly(path, 3)),
    "result": Reader(_result("json"), _read_results),
    "result-texts": Reader(_result("parquet"), _read_results),
    "lipogram": Reader(_lipogram, _read_lipogram, share=4),
    "checkpoint": Reader(_checkpoint, _read_checkpoint, share=8),
}


def _open_run(folder: Path) -> None:
    import fada

    run = fada.load_run(folder)
    run.config, run.metrics, run.targets  # noqa: B018


def _evaluate(folder: Path) -> None:
    from fada.evaluation.sources import read_systems

    read_systems(folder)
