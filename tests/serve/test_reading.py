"""Documents read by the real worker with a small model; workers that are killed or stuck; jobs that are cancelled."""

import io
import json
import os
import signal
import time
import wave
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fada.data.crop import PageCrop
from fada.data.images import png
from fada.data.line import Line
from fada.data.segment.photographs import photographs
from fada.data.synthetic.pages import Layout, make_page
from fada.models.crnn import CRNNRecognizer
from fada.models.folders import PRETRAINED
from fada.models.looks import USUAL
from fada.models.registry import load_recognizer
from fada.serve.jobs import Cancelled, Worker, WorkerLostError
from fada.serve.reading import Reader, completed_draft, corrected_doubt, expected_word_error, word_doubt
from fada.serve.shapes import box
from fada.serve.worker import read, segment
from tests.support.desks import SYMBOLS, finished, line_picture, opened, put_document, spelt
from tests.support.drawn import drawn_lines
from tests.support.telephones import heic

ALTO = """<?xml version="1.0" encoding="UTF-8"?>
<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Description><MeasurementUnit>pixel</MeasurementUnit>
<sourceImageInformation><fileName>page.png</fileName></sourceImageInformation></Description>
<Layout><Page ID="p" WIDTH="{width}" HEIGHT="{height}"><PrintSpace><TextBlock ID="b">
<TextLine ID="l1" HPOS="0" VPOS="0" WIDTH="{width}" HEIGHT="40"><String CONTENT="given text"/></TextLine>
<TextLine ID="l2" HPOS="0" VPOS="40" WIDTH="{width}" HEIGHT="40"/>
</TextBlock></PrintSpace></Page></Layout></alto>"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model") / "tiny"
    CRNNRecognizer.build(["the quick brown fox ⁊"], "tiny").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[Any]:
    with opened(tmp_path_factory.mktemp("desk") / "project", model=str(model)) as client:
        yield client


def page_files() -> list[tuple[str, bytes]]:
    image = png(line_picture("the quick brown fox", 80))
    return [("page.png", image), ("page.xml", ALTO.format(width=248, height=80).encode())]


def upload(client: Any, files: list[tuple[str, bytes]], **form: Any) -> Any:
    return client.post("/api/documents", files=[("files", file) for file in files], data=form).json()


def test_pages_and_lines_are_read_and_given_text_stays(client: Any) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("line10.png", png(line_picture("ten")))
        archive.writestr("line9.png", png(line_picture("nine")))
    document_file = io.BytesIO()
    line_picture("of a pdf").save(document_file, format="PDF")
    files = [*page_files(), ("more.zip", stream.getvalue()), ("zoo.pdf", document_file.getvalue())]
    told = upload(client, files, name="a book")
    job = finished(client, told["job"]["id"])
    assert job["state"] == "done", job
    document = client.get(f"/api/documents/{told['document']['id']}").json()
    assert [page["name"] for page in document["pages"]] == ["page", "line9", "line10", "zoo-0001"]
    assert {page["state"] for page in document["pages"]} == {"read"}
    lines = client.get(f"/api/pages/{document['pages'][0]['id']}").json()["lines"]
    assert (lines[0]["text"], lines[0]["state"]) == ("given text", "typed")
    assert len(lines[0]["characters"]) == len("given text")
    assert lines[1]["state"] == "draft"
    assert lines[1]["text"] == lines[1]["reading"]
    signs = {sign["character"] for sign in client.get(f"/api/documents/{document['id']}/signs").json()}
    assert "⁊" in signs
    result = client.get(f"/api/jobs/{job['id']}/result").json()
    assert [page["name"] for page in result["pages"]] == ["page", "line9", "line10", "zoo-0001"]
    events = client.get(f"/api/jobs/{job['id']}/events").text
    assert json.loads(events.split("data: ")[1].split("\n")[0])["state"] == "done"
    split = client.post(f"/api/lines/{lines[0]['id']}/split", json={"version": lines[0]["version"], "at": 0.5}).json()
    newest = max(job["id"] for job in client.get("/api/jobs").json())
    assert finished(client, newest)["state"] == "done"
    again = client.get(f"/api/lines/{split[1]['id']}").json()
    assert again["state"] == "typed"
    assert client.desk.line(again["id"])["emission"]


def test_a_bad_page_is_told_and_the_others_are_read(client: Any) -> None:
    told = upload(client, [("a.wav", tone()), ("b.heic", heic(line_picture("fine")))])
    job = finished(client, told["job"]["id"])
    assert job["state"] == "done"
    assert any("reads image" in problem for problem in job["result"]["problems"])
    pages = client.get(f"/api/documents/{told['document']['id']}").json()["pages"]
    assert [(page["name"], page["state"]) for page in pages] == [("a", "failed"), ("b", "read")]
    line = client.get(f"/api/pages/{pages[0]['id']}").json()["lines"][0]
    assert client.get(line["audio"]).content.startswith(b"RIFF")
    assert client.get(f"/api/pages/{pages[0]['id']}/image").status_code == 200
    drawing = client.get(f"/api/pages/{pages[1]['id']}/drawing")
    with Image.open(io.BytesIO(drawing.content)) as picture:
        assert (picture.format, picture.mode, picture.size) == ("PNG", "RGB", (pages[1]["width"], pages[1]["height"]))


def test_the_languages_of_the_built_in_model_are_those_it_was_trained_on(client: Any) -> None:
    (medieval,) = (one for one in client.get("/api/models").json() if one["name"] == "medieval")
    card = (PRETRAINED / "medieval" / "README.md").read_text(encoding="utf-8").partition("Trained on")[2]
    assert len(medieval["languages"]) == 7
    assert all(language in card for language in medieval["languages"])


def test_a_picture_that_is_cut_off_is_told_without_the_places_of_the_disk(client: Any) -> None:
    told = upload(client, [("cut.png", png(line_picture("cut off"))[:-200])])
    job = finished(client, told["job"]["id"])
    (page,) = client.get(f"/api/documents/{told['document']['id']}").json()["pages"]
    picture = client.get(f"/api/pages/{page['id']}/image")
    assert (page["state"], picture.status_code) == ("failed", 400)
    for sentence in (*job["result"]["problems"], page["message"], picture.json()["error"]):
        assert "cut.png: the image is broken or cut off" in sentence
        assert str(client.desk.project.folder) not in sentence


def test_a_page_whose_picture_was_not_dropped_is_told_without_options_of_the_commands(client: Any) -> None:
    job = finished(client, upload(client, page_files()[1:])["job"]["id"])
    assert job["message"] == "page.xml: the page image page.png was not found, so 2 lines are left out"


def test_sound_is_read_by_a_model_that_writes_tokens(tmp_path: Path) -> None:
    from tests.support.model_folders import whisper_folder

    model = whisper_folder(tmp_path / "whisper")
    with opened(tmp_path / "desk", model=str(model)) as client:
        assert client.get("/api/models").json()[0]["kind"] == "tokens"
        told = upload(client, [("a.wav", tone())])
        job = finished(client, told["job"]["id"])
        assert job["state"] == "done"
        assert job["result"]["problems"] == []
        line = client.get("/api/pages/1").json()["lines"][0]
        assert line["text"] == line["reading"]
        completed = client.post(f"/api/lines/{line['id']}/complete", json={"prefix": "Well"}).json()
        assert completed["text"].startswith("Well")


def tone() -> bytes:
    """A second of sound."""
    sound = io.BytesIO()
    with wave.open(sound, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes((np.sin(np.arange(16000) / 20) * 8000).astype("<i2").tobytes())
    return sound.getvalue()


def test_a_worker_that_is_killed_fails_its_page_and_nothing_else(client: Any) -> None:
    desk = client.desk
    document = put_document(desk, model=desk.default_model, pages=2, emitted=False)
    desk.store.write(lambda c: c.execute("UPDATE pages SET state = 'waiting' WHERE document = ?", (document,)) and None)
    worker = desk.jobs.workers[1]
    worker.kill()
    pid = _halted(worker).pid
    assert pid is not None
    asked = repr(worker._numbers)
    job = desk.jobs.add("read", document)["id"]
    while repr(worker._numbers) == asked:  # until it was given the first page
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    assert finished(client, job)["state"] == "done"
    pages = client.get(f"/api/documents/{document}").json()["pages"]
    assert [page["state"] for page in pages] == ["failed", "read"]
    assert "ended unexpectedly" in pages[0]["message"]
    assert worker.pid not in (None, pid)


def test_the_desk_looks_at_lines_as_often_as_the_command_does(tmp_path: Path) -> None:
    picture = line_picture("the quick brown fox", 60)
    picture.save(tmp_path / "page.png")
    width, height = picture.size
    outline, baseline = box(width, height), [(0.0, 45.0), (float(width), 45.0)]
    one = {"id": 1, "page": str(tmp_path / "page.png"), "size": (width, height), "upright": True, "emission": "one"}
    list(read("medieval", [one | {"outline": outline, "baseline": baseline}], str(tmp_path), 5))
    with np.load(tmp_path / "one.npz") as stored:
        found = stored["log_probs"]
    corners = tuple((x, y) for x, y in outline)
    crop = PageCrop(tmp_path / "page.png", (width, height), corners, tuple(baseline))
    recognizer = load_recognizer("medieval")
    once = recognizer.emit([Line("1", image=crop)]).log_probs[0]
    recognizer.use_looks(USUAL)
    np.testing.assert_array_equal(found, recognizer.emit([Line("1", image=crop)]).log_probs[0])
    assert not np.array_equal(found, once)


@pytest.mark.parametrize(("lies", "told"), [(90, "lay on its side"), (180, "stood on its head")])
def test_a_page_that_was_photographed_sideways_is_turned_upright(tmp_path: Path, lies: int, told: str) -> None:
    page = make_page(drawn_lines(4), Layout(1, 4)).image.convert("RGB")
    page.rotate(-lies, expand=True).save(tmp_path / "folio.png")
    asked = {"file": str(tmp_path / "folio.png"), "upright": True, "right_to_left": False}
    answers = list(segment(**asked, model="medieval", made=str(tmp_path / "made")))  # type: ignore[arg-type]
    found = {name: value for answer in answers for name, value in answer.items()}
    assert found["notes"] == [f"It {told}, and was turned."]
    assert len(found["lines"]) == 4
    assert (found["turned"]["width"], found["turned"]["height"]) == page.size
    with Image.open(found["turned"]["file"]) as turned:
        assert turned.tobytes() == page.tobytes()  # in its colours


def test_a_stuck_worker_is_ended_and_a_cancelled_one_too(tmp_path: Path) -> None:
    asked = {"file": str(tmp_path / "page.png"), "upright": True, "right_to_left": False}
    worker = _halted(Worker(tmp_path, stuck=0.3))
    with pytest.raises(WorkerLostError, match="said nothing"):
        list(worker.run("segment", asked))
    assert worker.pid is None
    worker = _halted(Worker(tmp_path, stuck=300))
    with pytest.raises(Cancelled):
        list(worker.run("segment", asked, lambda: True))
    assert worker.pid is None


def _halted(worker: Worker) -> Worker:
    """Its process is there, and does nothing."""
    os.kill(worker._start().pid, signal.SIGSTOP)
    return worker


def test_unfinished_jobs_go_on_with_the_next_server(tmp_path: Path) -> None:
    with opened(tmp_path / "desk") as client:
        document = put_document(client.desk)
        client.desk.store.write(
            lambda c: (
                c.execute(
                    "INSERT INTO jobs (kind, document, state, created) VALUES ('again', ?, 'running', '')", (document,)
                )
                and None
            )
        )
    with opened(tmp_path / "desk") as client:
        number = client.get("/api/jobs").json()[0]["id"]
        assert finished(client, number)["state"] == "done"


def test_adapting_needs_confirmed_lines_and_can_be_cancelled(client: Any) -> None:
    document = put_document(client.desk, [f"line {'abcdef'[i]}" for i in range(6)], model=client.desk.default_model)
    page = client.get(f"/api/documents/{document}").json()["pages"][0]["id"]
    assert client.post(f"/api/documents/{document}/adapt").status_code == 400
    for line in client.get(f"/api/pages/{page}").json()["lines"]:
        client.patch(f"/api/lines/{line['id']}", json={"version": line["version"], "state": "confirmed"})
    job = client.post(f"/api/documents/{document}/adapt").json()
    assert client.post(f"/api/documents/{document}/adapt").status_code == 400
    while client.get(f"/api/jobs/{job['id']}").json()["state"] == "queued":
        time.sleep(0.02)
    client.delete(f"/api/jobs/{job['id']}")
    assert finished(client, job["id"])["state"] == "cancelled"
    assert client.get(f"/api/documents/{document}").json()["model"] == client.desk.default_model


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("", "a draft text"),
        ("a dr", "a draft text"),
        ("the dr", "the draft text"),
        ("a draft text, more", "a draft text, more"),
    ],
)
def test_without_emissions_the_draft_is_completed(prefix: str, expected: str) -> None:
    assert completed_draft("a draft text", prefix) == expected


def test_expected_word_error_is_one_minus_the_chance_that_a_word_is_right_corrected() -> None:
    assert word_doubt("ab c", [0.5, 0.5, 0.1, 1.0]) == pytest.approx(1 - (0.25 + 1) / 2)
    assert expected_word_error("ab c", [0.5, 0.5, 0.1, 1.0]) == pytest.approx(corrected_doubt(0.375), abs=1e-4)
    assert word_doubt("  ", [0.5, 0.5]) is expected_word_error("  ", [0.5, 0.5]) is None
    found = [corrected_doubt(doubt / 10) for doubt in range(11)]
    assert found == sorted(found)
    assert found[0] < 0.01
    assert found[-1] > 0.99


def test_any_text_is_placed_in_order() -> None:
    from fada import CTCBeamDecoder

    decoder = CTCBeamDecoder(SYMBOLS)
    reader = Reader(decoder, decoder)
    log_probs = spelt("the fox")
    for text in ("the fox", "the", "THE FOX", "x" * 500, "tthhee ffooxx", "ü", ""):
        cells = reader.align(log_probs, text)
        assert "".join(cell[0] for cell in cells) == text
        assert all(0 <= start <= end <= 1 for _, _, start, end in cells)
        assert [cell[2] for cell in cells] == sorted(cell[2] for cell in cells)
    middles = [(start + end) / 2 * len(log_probs) for _, _, start, end in reader.align(log_probs, "the fox")]
    assert middles == pytest.approx([1.5 + 3 * i for i in range(7)], abs=1.0)


@pytest.mark.parametrize("off", [-0.02, -0.005, 0.0, 0.005])
def test_words_are_kept_where_they_stand_also_if_their_places_touch_after_rounding(off: float) -> None:
    from fada import CTCBeamDecoder

    decoder = CTCBeamDecoder(SYMBOLS, beam_size=30)
    reader = Reader(decoder, decoder)
    log_probs = spelt("the quick fox", doubt=0.4)
    cells = reader.align(log_probs, "the quick fox")
    places = {word: (cells[at][2], cells[at + len(word) - 1][3]) for word, at in {"quick": 4, "fox": 10}.items()}
    (start, end), (second, last) = places["quick"], places["fox"]
    found = reader.complete(log_probs, "the", [("quack", start, end), ("fix", second + off, last)])
    assert found.text == "the quack fix"
    alone = reader.complete(log_probs, "", [("quack", start, end), ("fix", end + off, end)])
    assert alone.text == "the quick fox"  # no room for three letters: the words cannot be kept


def test_pages_of_a_pdf_are_shown_in_their_colours(tmp_path: Path) -> None:
    Image.new("RGB", (60, 80), (200, 30, 30)).save(tmp_path / "red.pdf")
    (page,) = photographs(tmp_path / "red.pdf", tmp_path, colours=True)
    with Image.open(page.file) as shown:
        assert np.allclose(np.asarray(shown)[40, 30], (200, 30, 30), atol=12)
