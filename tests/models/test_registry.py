"""Names and folders to recognisers: ours, those of other packages, and files that are not what they should be."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import wave
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCTC
from typer.testing import CliRunner

from fada.cli import app
from fada.data.line import Line
from fada.errors import FadaError
from fada.models.crnn import PRESETS, CRNNForCTC, CRNNRecognizer
from fada.models.registry import BUILT, load_recognizer
from tests.support.model_folders import (
    trocr_folder,
    wav2vec2_folder,
    wav2vec2_with_alphabet_folder,
    whisper_folder,
)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crnn")
    CRNNRecognizer.build(["abc def"], "tiny").save_pretrained(folder)
    return folder


@pytest.fixture
def model(stored: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stored, tmp_path / "model"))


def test_listing_the_models_needs_no_torch() -> None:
    code = "import sys, fada.models.registry; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert {name for name in BUILT if name.startswith("crnn:")} == {f"crnn:{preset}" for preset in PRESETS}


def test_the_c_rnn_is_found_by_the_auto_classes_of_transformers(model: Path, tmp_path: Path) -> None:
    for auto in (AutoModel, AutoModelForCTC):
        found = auto.from_pretrained(model)
        assert isinstance(found, CRNNForCTC)
    found.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "model.safetensors").is_file()


@pytest.mark.parametrize("order", ["import fada", "import transformers.models.auto.modeling_auto, fada"])
def test_after_importing_fada_the_auto_classes_know_the_c_rnn(model: Path, order: str) -> None:
    code = f"import sys; {order}; from transformers import AutoModelForCTC as Auto"
    code += "; print(type(Auto.from_pretrained(sys.argv[1])))"
    done = subprocess.run([sys.executable, "-c", code, str(model)], capture_output=True, text=True, check=True)
    assert "CRNNForCTC" in done.stdout


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as an upload of small files needs; what was sent is kept."""

    sent: ClassVar[dict[str, bytes]]
    refuses: ClassVar[bool]

    def do_POST(self) -> None:
        """Answer, and keep what is committed."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer: dict[str, Any] = {}
        if self.path == "/api/repos/create":
            answer = {"url": f"http://{self.headers['Host']}/me/mine", "name": json.loads(body)["name"]}
        elif "/preupload/" in self.path:
            files = [one["path"] for one in json.loads(body)["files"]]
            answer = {"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in files]}
        elif "/commit/" in self.path:
            for line in body.splitlines():
                one = json.loads(line)
                if one["key"] == "file":
                    self.sent[one["value"]["path"]] = base64.b64decode(one["value"]["content"])
            place = f"http://{self.headers['Host']}/me/mine/commit/0"
            answer = {"success": True, "commitOid": "0" * 40, "commitUrl": place}
        self._answer(403 if self.refuses else 200, answer)

    def do_GET(self) -> None:
        """There is nothing yet."""
        self._answer(200, {"siblings": [], "id": "me/mine", "sha": "0" * 40})

    def _answer(self, code: int, content: object) -> None:
        data = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


def test_a_model_is_put_on_the_hub_whole(model: Path) -> None:
    (model / "decoder").mkdir(exist_ok=True)
    (model / "decoder" / "note.txt").write_text("beside")
    (model / ".hidden").write_text("not to be shared")
    Hub.sent, Hub.refuses = {}, False
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    code = (
        "import sys, fada\ntry:\n    print(fada.load_recognizer(sys.argv[1]).push_to_hub('me/mine', token='hf_no'))\n"
        "except fada.FadaError as error:\n    print('refused:', error)"
    )
    command = [sys.executable, "-c", code, str(model)]
    environment = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HUB_OFFLINE": "0"}
    try:
        told = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert "/me/mine" in told.stdout, told.stderr
        names = {path.relative_to(model).as_posix() for path in model.rglob("*") if path.is_file()} - {".hidden"}
        assert Hub.sent == {name: (model / name).read_bytes() for name in names}
        Hub.refuses = True
        told = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert told.stdout.startswith("refused: me/mine: the hub did not take the model (")
    finally:
        server.shutdown()
        server.server_close()


def test_another_package_adds_a_family_by_an_entry_point(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "other_models-1.0.dist-info").mkdir(parents=True)
    (site / "other_models-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other-models\n")
    (site / "other_models-1.0.dist-info" / "entry_points.txt").write_text("[fada.models]\nother = other_models:Other\n")
    (site / "other_models.py").write_text(
        "class Other:\n    @classmethod\n    def load(cls, name, texts=()):\n"
        "        other = cls()\n        other.name = name\n        return other\n"
    )
    monkeypatch.syspath_prepend(site)
    (model / "config.json").write_text('{"model_type": "other"}')
    assert vars(load_recognizer(model)) == {"name": model, "folder": model}
    (model / "config.json").write_text('{"model_type": "nobody"}')
    with pytest.raises(FadaError, match=r"a model of type 'nobody', expected .* or of another package: other"):
        load_recognizer(model)


def lfs_pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")


def truncated(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def not_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"not weights at all")


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def fewer_weights(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights.pop("output.weight")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def broken_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "fada-crnn", ')


def no_processor(folder: Path) -> None:
    (folder / "crnn_processor.json").unlink()


def fewer_symbols(folder: Path) -> None:
    path = folder / "crnn_processor.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**settings, "symbols": settings["symbols"][:-2]}), encoding="utf-8")


def other_settings(folder: Path) -> None:
    (folder / "crnn_processor.json").write_text('{"symbols": ["", "a"], "size": 3}', encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lfs_pointer, "pointer of git-lfs.*git lfs pull"),
        (truncated, "cannot be loaded as a model"),
        (not_weights, "cannot be loaded as a model"),
        (no_weights, "cannot be loaded as a model: .*model.safetensors"),
        (fewer_weights, "1 weights of the network are missing, such as output.weight"),
        (broken_config, "config.json: not readable as JSON"),
        (no_processor, "cannot be loaded as a model: .*crnn_processor.json"),
        (fewer_symbols, "has 8 classes, but its processor names 6 symbols"),
        (other_settings, "cannot be loaded as a model"),
    ],
)
def test_files_that_are_damaged_or_missing_are_a_sentence(
    model: Path, damage: Callable[[Path], None], says: str
) -> None:
    damage(model)
    with pytest.raises(FadaError, match=says) as error:
        load_recognizer(model)
    assert "\n" not in str(error.value)


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "cut short": lambda data: data[: len(data) // 2],
    "no text": lambda data: b"\xff\xfe\x00 garbage" * 20,
    "a list": lambda data: b"[]",
    "too deep": lambda data: b"[" * 100_000,
    "a pointer": lambda data: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n",
}


FOLDERS = {"trocr": trocr_folder, "whisper": whisper_folder, "wav2vec": wav2vec2_with_alphabet_folder}


@pytest.mark.parametrize("kind", FOLDERS)
def test_every_file_of_a_model_that_is_damaged_or_missing_is_named(kind: str, tmp_path: Path) -> None:
    sound = FOLDERS[kind](tmp_path / "sound")
    files = sorted(path.name for path in sound.iterdir())
    assert {"config.json", "model.safetensors", "preprocessor_config.json"} < set(files)
    for name in files:
        for damage, change in DAMAGES.items():
            folder = Path(shutil.copytree(sound, tmp_path / "model"))
            data = change((folder / name).read_bytes())
            (folder / name).unlink()
            if data is not None:
                (folder / name).write_bytes(data)
            if data is None and name in ("generation_config.json", "tokenizer_config.json"):
                load_recognizer(folder)  # what is in them can be told from the others
            else:
                with pytest.raises(FadaError, match=re.escape(str(folder))) as error:
                    load_recognizer(folder)
                assert name in str(error.value) or data is None or name == "model.safetensors", (name, damage)
            shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        ("trocr", "config.json", {"decoder": "x"}),
        ("trocr", "tokenizer.json", {"decoder": -1}),
        ("trocr", "preprocessor_config.json", {"size": "x"}),
        ("whisper", "config.json", {"d_model": "x"}),
        ("whisper", "config.json", {"vocab_size": -1}),
        ("whisper", "config.json", {"decoder_attention_heads": -1}),
        ("whisper", "config.json", {"d_model": 32}),
        ("whisper", "generation_config.json", {"eos_token_id": "x"}),
        ("whisper", "tokenizer.json", {"model": {}}),
        ("whisper", "preprocessor_config.json", {"hop_length": -1}),
        ("wav2vec", "config.json", {"conv_dim": "x"}),
        ("wav2vec", "config.json", {"hidden_size": 32}),
        ("wav2vec", "config.json", {"num_attention_heads": 0}),
        ("wav2vec", "ctc_symbols.json", {"symbols": 3}),
        ("wav2vec", "preprocessor_config.json", {"sampling_rate": "x"}),
    ],
)
def test_values_of_a_wrong_type_or_size_in_a_model_are_a_sentence(
    kind: str, name: str, change: dict[str, Any], tmp_path: Path
) -> None:
    path = FOLDERS[kind](tmp_path / "model") / name
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises(FadaError, match=re.escape(str(path.parent))) as error:
        read_one(path.parent, kind, tmp_path)
    assert "\n" not in str(error.value)


def silence(file: Path) -> Path:
    with wave.open(str(file), "wb") as sound:
        sound.setparams((1, 2, 16000, 0, "NONE", ""))
        sound.writeframes(bytes(8000))
    return file


def read_one(folder: Path, kind: str, place: Path) -> None:
    line = Image.new("L", (60, 20), 255) if kind == "trocr" else silence(place / "a.wav")
    load_recognizer(folder).transcribe(line)


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_model_that_lacks_weights_or_holds_others_is_refused(kind: str, tmp_path: Path) -> None:
    folder = FOLDERS[kind](tmp_path / "model")
    read_one(folder, kind, tmp_path)
    weights = load_file(folder / "model.safetensors")
    first = next(name for name in weights if "attn" in name or "attention" in name)
    for change, says in (
        ({name: one for name, one in weights.items() if name != first}, "1 weights of the network are missing"),
        ({f"other.{name}": one for name, one in weights.items()}, "weights of the network are missing"),
        (weights | {first: torch.zeros(3, 5)}, "cannot be loaded as a model"),
        (weights | {first: weights[first] * float("nan")}, "1 weights of the network are no numbers"),
    ):
        save_file(change, folder / "model.safetensors", {"format": "pt"})
        with pytest.raises(FadaError, match=says):
            load_recognizer(folder)


def test_a_model_without_an_alphabet_reads_nothing_until_it_is_trained(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="it was never trained to write"):
        load_recognizer(wav2vec2_folder(tmp_path))


def test_a_model_that_cannot_be_run_ends_the_command_before_any_line_is_counted_as_failed(tmp_path: Path) -> None:
    path = whisper_folder(tmp_path / "model") / "config.json"
    changed = json.loads(path.read_text(encoding="utf-8")) | {"decoder_attention_heads": -1}
    path.write_text(json.dumps(changed), encoding="utf-8")
    sounds = [str(silence(tmp_path / name)) for name in ("a.wav", "b.wav")]
    done = CliRunner().invoke(app, ["transcribe", str(path.parent), *sounds])
    assert isinstance(done.exception, FadaError)
    assert "the model cannot be run" in str(done.exception)


def test_a_trocr_begins_to_write_where_its_configuration_says_nothing_of_it(tmp_path: Path) -> None:
    folder = trocr_folder(tmp_path)
    line = Line("1", image=Image.new("L", (60, 20), 255))
    read = load_recognizer(folder).transcribe([line])
    settings = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    settings = {key: value for key, value in settings.items() if not key.endswith("token_id")}
    (folder / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
    assert load_recognizer(folder).transcribe([line]) == read


def test_a_damaged_model_ends_the_command_with_a_sentence(tmp_path: Path) -> None:
    folder = trocr_folder(tmp_path / "model")
    (folder / "tokenizer.json").write_text("{", encoding="utf-8")
    Image.new("L", (60, 20), 255).save(tmp_path / "a.png")
    done = CliRunner().invoke(app, ["transcribe", str(folder), str(tmp_path / "a.png")])
    assert isinstance(done.exception, FadaError)
    assert f"{folder / 'tokenizer.json'}: not readable as JSON" in str(done.exception)


def test_code_of_a_model_folder_is_never_run(tmp_path: Path) -> None:
    folder = trocr_folder(tmp_path)
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    for name, auto in (("preprocessor_config.json", "AutoImageProcessor"), ("tokenizer_config.json", "AutoTokenizer")):
        path = folder / name
        before = path.read_text(encoding="utf-8")
        settings = json.loads(before)
        settings["auto_map"] = {auto: ["evil.Evil", None] if auto == "AutoTokenizer" else "evil.Evil"}
        for key in ("image_processor_type", "feature_extractor_type", "tokenizer_class", "processor_class"):
            settings.pop(key, None)
        path.write_text(json.dumps({**settings, "image_processor_type": "Evil"}), encoding="utf-8")
        answered = CliRunner().invoke(app, ["models", "describe", str(folder)], input="y\ny\n")
        assert not (tmp_path / "ran").exists(), answered.output
        path.write_text(before, encoding="utf-8")
