"""The page with models of one's own: learning from confirmed lines, and sound."""

import io
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
import torch
from PIL import Image
from playwright.sync_api import Browser, expect

from fada.models import registry
from fada.training.folds import AdaptSettings, fine_tune
from tests.support.machines import below
from tests.support.model_folders import whisper_folder
from tests.support.tabs import Server, Tab, accessible, browser, in_a_browser, page_xml
from tests.support.training_lines import drawn_line, image_lines, sound_lines

pytestmark = [*in_a_browser, pytest.mark.slow]
__all__ = ["browser"]  # a fixture
CONFIRMED = 8
HEIGHT = 50


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a model that has only begun to read."""
    place = tmp_path_factory.mktemp("desk")
    lines = image_lines(40)
    torch.manual_seed(0)
    recognizer = registry.build("crnn:tiny", [str(line.text) for line in lines])
    settings = AdaptSettings(epochs=1, fewest_steps=150, learning_rate=5e-3, augment=0.3)
    fine_tune(recognizer, lines, (), settings, 0)
    recognizer.save_pretrained(place / "model")
    served = Server(place / "project", place / "model")
    served.start()
    served.settings(drafts="always")
    yield served
    served.kill()


@contextmanager
def resting(server: Server) -> Iterator[None]:
    """What the server has others do stands still meanwhile."""
    assert server.process is not None
    working = below(server.process.pid)
    for process in working:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in working:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


def hand(folder: Path) -> list[str]:
    """A page in another hand, the letters that the model knows drawn as capitals, with outlines; its texts."""
    texts = [str(line.text) for line in image_lines(CONFIRMED + 2, seed=7)]
    page = Image.new("L", (200, HEIGHT * len(texts) + 10), 230)
    boxes = []
    for at, text in enumerate(texts):
        line = drawn_line(text.upper())
        page.paste(line, (5, HEIGHT * at + 5))
        boxes.append((5, HEIGHT * at + 5, 4 + line.width, HEIGHT * at + 44))
    page.save(folder / "leaf.png")
    (folder / "leaf.xml").write_text(page_xml("leaf.png", boxes, page.size))
    return texts


def test_the_model_learns_from_confirmed_lines_and_the_page_is_read_again(
    browser: Browser, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "leaf").mkdir()
    texts = hand(tmp_path / "leaf")
    tab = Tab(browser, server)
    page = tab.page
    page.goto(server.address)
    page.get_by_label("A folder").set_input_files(tmp_path / "leaf")
    expect(page.locator(".line")).to_have_count(len(texts))
    expect(page.locator("#jobs .job")).to_have_count(0)
    page.keyboard.press("Alt+l")  # nothing to learn from yet
    dialog = page.get_by_role("dialog", name="Learn from the confirmed lines")
    expect(dialog.get_by_role("button", name="Learn", exact=True)).to_be_disabled()
    accessible(page)
    page.keyboard.press("Escape")
    tab.field(1).click()
    for number, text in enumerate(texts[:CONFIRMED], 1):
        page.keyboard.press("Control+a")
        page.keyboard.insert_text(text)
        page.keyboard.press("Escape")
        page.keyboard.press("Enter")
        expect(tab.line(number)).to_have_attribute("data-state", "confirmed")
    tab.saved()
    document = server.get("/documents")[0]["id"]
    before = [line["reading"] for line in server.get("/pages/1")["lines"]]

    def learn() -> None:
        page.keyboard.press("Alt+l")
        expect(dialog).to_contain_text(f"{CONFIRMED} lines")
        dialog.get_by_role("button", name="Learn", exact=True).click()

    learn()
    job = page.locator("#jobs .job", has_text="Learning")
    expect(job.locator("progress")).to_be_visible()
    with resting(server):  # or it has learnt before the page is looked at
        accessible(page)
        job.get_by_role("button", name="Stop").click()  # and nothing has changed
    expect(job).to_have_count(0)
    assert server.get("/jobs")[0]["state"] == "cancelled"
    assert server.get(f"/documents/{document}")["model"] == str(server.model)

    learn()
    expect(job).to_be_visible()
    told = page.locator(".toast", has_text="Learnt from the confirmed lines")
    told.wait_for(timeout=600_000)
    result = server.get("/jobs")[0]["result"]
    assert result["after"] < result["before"]
    expect(told).to_contain_text(f"{result['before']:.1f} % before, {result['after']:.1f} % after")
    found = server.get(f"/documents/{document}")
    assert found["model"] == result["model"] == "leaf-1"
    lines = server.get("/pages/1")["lines"]
    assert [line["text"] for line in lines[:CONFIRMED]] == texts[:CONFIRMED]
    assert {line["state"] for line in lines[:CONFIRMED]} == {"confirmed"}
    assert [line["reading"] for line in lines] != before
    for number, line in enumerate(lines, 1):  # what nobody typed is shown as the new model reads it
        expect(tab.field(number)).to_have_value(line["text"])
        assert line["state"] == "confirmed" or line["text"] == line["reading"]
    assert not tab.complaints
    tab.context.close()


def test_sound_is_dropped_heard_and_typed(browser: Browser, tmp_path: Path) -> None:
    served = Server(tmp_path / "project", whisper_folder(tmp_path / "whisper"))
    served.start()
    try:
        tab = Tab(browser, served)
        page = tab.page
        page.goto(served.address)
        data = sound_lines(1)[0].audio
        assert isinstance(data, bytes)
        page.locator(".table").wait_for()
        page.locator(".table").evaluate(
            """(table, bytes) => {
                const files = new DataTransfer();
                files.items.add(new File([new Uint8Array(bytes)], "arctic.wav"));
                table.dispatchEvent(new DragEvent("drop", {dataTransfer: files, bubbles: true, cancelable: true}));
            }""",
            list(data),
        )
        expect(page.locator(".line")).to_have_count(1)
        expect(page.locator("#jobs .job")).to_have_count(0)
        audio = page.locator("audio")
        expect(audio).to_be_visible()
        audio.evaluate(
            """async audio => {
                audio.preload = "auto";
                audio.load();
                await new Promise((heard, not) => {
                    audio.onloadedmetadata = heard;
                    audio.onerror = () => not(audio.error.message);
                });
            }"""
        )
        assert audio.evaluate("audio => audio.duration") == pytest.approx(len(_samples(data)) / 16000, abs=0.05)
        audio.evaluate("audio => { audio.onplay = () => { audio.dataset.played = 'yes' } }")
        tab.field(1).click()
        page.keyboard.press("Alt+a")
        expect(audio).to_have_attribute("data-played", "yes")
        read = served.get("/pages/1")["lines"][0]
        assert read["reading"] == read["text"]
        tab.field(1).click()
        page.keyboard.press("Control+a")
        page.keyboard.insert_text("a b c")
        page.keyboard.press("Escape")
        page.keyboard.press("Enter")
        expect(tab.line(1)).to_have_attribute("data-state", "confirmed")
        tab.saved()
        accessible(page)
        assert served.get("/pages/1")["lines"][0]["text"] == "a b c"
        assert not tab.complaints
        tab.context.close()
    finally:
        served.kill()


def _samples(data: bytes) -> Any:
    import soundfile

    return soundfile.read(io.BytesIO(data))[0]
