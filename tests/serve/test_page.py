"""The desk in a real browser, against a real server: everything that a reader does, by keyboard, mouse and touch."""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
from playwright.sync_api import Browser, expect

from fada.models.crnn import CRNNRecognizer
from fada.serve.desk import Desk
from fada.serve.project import Limits, Project
from tests.support.desks import put_document
from tests.support.tabs import PATIENCE, Server, Tab, accessible, browser, in_a_browser, page_xml
from tests.support.xml_pages import BOXES, draw_page

pytestmark = in_a_browser
LATIN = ("the quick brown fox", "jumps ouer the lazy", "dog ⁊ runs away")
GREEK = ("ὦ ἄνδρες ἀθηναῖοι", "λόγος ἐν ἀρχῇ")
HEBREW = ("בראשית ברא", "את השמים")
__all__ = ["browser"]  # a fixture
DOCUMENTS = {
    "latin": (LATIN, "ltr"),
    "other": (LATIN, "ltr"),
    "greek": (GREEK, "ltr"),
    "hebrew": (HEBREW, "rtl"),
    "late": (LATIN, "ltr"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with documents whose emissions spell their texts, and a tiny model for what is read anew."""
    place = tmp_path_factory.mktemp("desk")
    texts = [text for texts, _ in DOCUMENTS.values() for text in texts]
    recognizer = CRNNRecognizer.build([*texts, "abcdefghijklmnopqrstuvwxyz ⁊ ꝑ"], "tiny")
    recognizer.save_pretrained(place / "model")
    served = Server(place / "project", place / "model")
    desk = Desk(Project(served.folder), Limits(), model=str(served.model))
    for name, (lines, direction) in DOCUMENTS.items():
        served.documents[name] = put_document(
            desk,
            lines,
            model=str(served.model),
            pages=2 if name == "late" else 1,
            symbols=recognizer.symbols,
            doubt=0.4,
            name=name,
            direction=direction,
        )
    desk.close()
    served.start()
    yield served
    served.kill()


@pytest.fixture
def tab(browser: Browser, server: Server) -> Iterator[Tab]:
    """A tab; whatever it complained of fails the test."""
    server.settings(drafts="always", confidence_colours=True)
    opened = Tab(browser, server)
    yield opened
    opened.context.close()
    assert not opened.complaints


def test_a_page_is_uploaded_confirmed_by_keyboard_and_exported(tab: Tab, server: Server, tmp_path: Path) -> None:
    draw_page(tmp_path / "leaf.png")
    (tmp_path / "leaf.xml").write_text(page_xml("leaf.png", BOXES))
    page = tab.page
    page.goto(server.address)
    page.get_by_role("heading", name="Read a manuscript").wait_for()
    accessible(page)
    page.get_by_label("Files").set_input_files([tmp_path / "leaf.png", tmp_path / "leaf.xml"])
    expect(page.locator(".line")).to_have_count(3)
    expect(page.locator("#jobs .job")).to_have_count(0)
    expect(tab.field(1)).to_be_focused()
    for number, text in enumerate(("one ⁊ two", "three"), 1):
        page.keyboard.press("Control+a")
        page.keyboard.insert_text(text)
        page.keyboard.press("Escape")
        page.keyboard.press("Enter" if number == 1 else "ArrowDown")
        expect(tab.line(number)).to_have_attribute("data-state", "confirmed")
        expect(tab.field(number + 1)).to_be_focused()
    expect(page.locator(".counted")).to_contain_text("2 of 3 confirmed")
    page.keyboard.press("ArrowUp")
    expect(tab.field(2)).to_be_focused()
    tab.saved()
    page.keyboard.press("Alt+e")
    accessible(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="ALTO").click()
    download.value.save_as(tmp_path / "out.zip")
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        xml = next(archive.read(name).decode() for name in archive.namelist() if name.endswith(".xml"))
        assert " ".join(re.findall(r'CONTENT="([^"]*)"', xml)) == "one ⁊ two three"
        assert any(name.endswith(".png") for name in archive.namelist())
    page.get_by_role("link", name="fada: all documents").click()
    card = page.locator(".documents li", has_text="leaf")
    expect(card).to_contain_text("2 confirmed")
    card.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(card).to_have_count(0)


def test_a_document_without_a_page_says_why(tab: Tab, server: Server, tmp_path: Path) -> None:
    (tmp_path / "alone.xml").write_text(page_xml("elsewhere.png", BOXES))
    page = tab.page
    page.goto(server.address)
    page.get_by_label("Files").set_input_files([tmp_path / "alone.xml"])
    foot = page.locator(".foot")
    for _ in range(2):
        expect(foot).to_contain_text("No page could be read: alone.xml: the page image elsewhere.png was not found")
        expect(page.locator(".bones")).to_have_count(0)
        page.reload()


def test_the_rest_of_a_line_follows_what_is_typed(tab: Tab, server: Server) -> None:
    page = tab.open("latin")
    field = tab.field(1)
    expect(field).to_have_value(LATIN[0])
    field.click()
    field.evaluate("field => field.setSelectionRange(4, 4)")
    page.keyboard.type("sl")  # the letters under it are read anew: what stood there goes
    expect(field).not_to_have_value(re.compile("quick"))
    expect(field).to_have_value(re.compile("^the sl.*brown fox$"))
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    expect(field).to_have_value(LATIN[0])
    tab.saved()

    server.settings(drafts="never")  # an empty line, and the reading as a proposal
    tab.open("other")
    page.reload()
    tab.line(1).wait_for()
    expect(tab.field(2)).to_have_value("")
    expect(tab.shown(2).locator(".ghost")).to_have_text(LATIN[1])
    expect(tab.field(1)).to_be_focused()
    page.keyboard.press("Alt+u")  # a line without a draft is uncertain as a whole
    expect(tab.field(2)).to_be_focused()
    page.keyboard.type("jumps ov")
    expect(tab.shown(2).locator(".ghost")).to_have_text(re.compile("^er the lazy$"))
    page.keyboard.press("ArrowRight")
    expect(tab.field(2)).to_have_value("jumps over ")
    page.keyboard.press("Enter")  # takes the proposal, and only then confirms: nothing is confirmed unseen
    expect(tab.field(2)).to_have_value("jumps over the lazy")
    expect(tab.line(2)).not_to_have_attribute("data-state", "confirmed")
    page.keyboard.press("Enter")
    expect(tab.line(2)).to_have_attribute("data-state", "confirmed")
    page.keyboard.press("Enter")  # a proposal that is right is confirmed as it is shown
    expect(tab.line(3)).to_have_attribute("data-state", "confirmed")
    expect(tab.field(3)).to_have_value(LATIN[2])
    tab.saved()
    assert [line["text"] for line in server.lines("other")][1:] == ["jumps over the lazy", LATIN[2]]


@pytest.mark.parametrize("after", ["", "x"])
def test_a_code_typed_before_the_signs_are_there_becomes_its_sign_when_they_come(tab: Tab, after: str) -> None:
    held: list[Any] = []
    tab.page.route("**/signs", lambda route: held.append(route))
    page = tab.open("other")
    tab.field(1).click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(LATIN[0])
    page.keyboard.type(rf" \et {after}")
    expect(tab.field(1)).to_have_value(f"{LATIN[0]} \\et {after}")
    for route in held:
        route.continue_()
    expect(tab.field(1)).to_have_value(f"{LATIN[0]} ⁊{after}")
    page.keyboard.type("y")  # the cursor stands behind the sign, which is not selected
    expect(tab.field(1)).to_have_value(f"{LATIN[0]} ⁊{after}y")
    tab.saved()


class Late:
    """Requests of a tab that are held back until they are let go, or answered by the server but never heard of."""

    def __init__(self, tab: Tab, address: str, *, lost: bool = False) -> None:
        self.tab, self.held, self.lost, self.open = tab, list[Any](), lost, False
        tab.page.route(address, self._take)

    def _take(self, route: Any) -> None:
        if self.open:
            route.fallback()
            return
        if self.lost:
            route.fetch()
        self.held.append(route)

    def came(self, count: int = 1) -> None:
        """Wait until so many are held."""
        while len(self.held) < count:
            self.tab.page.wait_for_timeout(20)

    def let_go(self) -> None:
        """All that are held, and all that come."""
        self.open = True
        for route in self.held:
            route.continue_()


def test_what_was_typed_while_an_answer_was_late_is_no_conflict_with_itself(tab: Tab, server: Server) -> None:
    server.settings(drafts="never")  # so that a proposal stands behind an empty field
    page = tab.open("late")
    late = Late(tab, "**/api/lines/*", lost=True)
    tab.field(1).click()
    page.keyboard.type("the q")
    late.came()  # the server has it, the page does not know
    page.keyboard.type("ui")
    late.open = True
    page.reload()
    expect(tab.field(1)).to_have_value("the qui")
    tab.saved()
    expect(tab.line(1).locator(".trouble")).to_be_empty()
    assert server.lines("late")[0]["text"] == "the qui"
    expect(tab.shown(1)).not_to_have_text(re.compile("^the quithe"))  # no proposal but the rest
    page.keyboard.press("Alt+z")  # and an action waits for what is being saved
    expect(tab.field(1)).to_have_value("the q")
    tab.field(1).click()
    late = Late(tab, "**/api/lines/*")
    page.keyboard.type("u")
    late.came()
    page.keyboard.press("Alt+z")
    late.let_go()
    expect(tab.field(1)).to_have_value("the q")
    expect(page.locator(".toast")).to_have_count(0)
    tab.saved()


def test_what_comes_late_is_not_shown_where_it_does_not_belong(tab: Tab, server: Server) -> None:
    server.settings(drafts="never")
    page = tab.open("late")
    signs = Late(tab, "**/signs")
    page.reload()
    signs.came()
    tab.field(3).click()
    proposals = Late(tab, "**/complete")
    page.keyboard.type("dog")
    proposals.came()
    page.keyboard.type(r" \et")  # a code at the end of a line that is confirmed before the signs are there
    page.keyboard.press("Enter")
    expect(tab.line(3)).to_have_attribute("data-state", "confirmed")
    proposals.let_go()
    signs.let_go()
    expect(tab.field(3)).to_have_value("dog ⁊")
    tab.saved()
    expect(tab.line(3)).to_have_attribute("data-state", "confirmed")
    expect(tab.shown(3).locator(".ghost")).to_have_count(0)
    assert server.lines("late")[2]["text"] == "dog ⁊"

    pages = Late(tab, "**/api/pages/*")  # a page that one has turned back from, and one that one has left
    first, second = (one["id"] for one in server.get(f"/documents/{server.documents['late']}")["pages"])
    base = f"#/d/{server.documents['late']}/p"
    page.evaluate("hash => { location.hash = hash }", f"{base}/{second}")
    pages.came()
    page.evaluate("hash => { location.hash = hash }", f"{base}/{first}")
    pages.came(2)
    pages.held.reverse()
    pages.let_go()
    expect(page.locator(".pages")).to_have_value(str(first))
    expect(tab.field(3)).to_have_value("dog ⁊")
    pages = Late(tab, "**/api/pages/*")
    page.evaluate("hash => { location.hash = hash }", f"{base}/{second}")
    pages.came()
    page.evaluate("() => { location.hash = '#/' }")
    page.get_by_role("heading", name="Read a manuscript").wait_for()
    pages.let_go()
    expect(page.locator(".documents li")).to_have_count(len(server.get("/documents")))
    expect(page.locator(".lines")).to_have_count(0)


def test_words_that_somebody_wrote_or_confirmed_stay_while_the_rest_is_read_again(tab: Tab, server: Server) -> None:
    page = tab.open("latin")
    field = tab.field(1)
    field.click()
    field.evaluate("field => field.setSelectionRange(10, 15)")  # brown, by hand
    page.keyboard.insert_text("bruwn")
    expect(field).to_have_value(re.compile("^the quick bruwn"))
    page.keyboard.press("End")
    page.keyboard.press("Alt+Enter")  # fox, said to be right
    expect(tab.shown(1).locator(".sure")).to_have_text("fox")
    field.evaluate("field => { field.focus(); field.setSelectionRange(4, 4) }")
    asked: list[Any] = []
    page.on("request", lambda request: asked.append(request.post_data_json) if "complete" in request.url else None)
    page.keyboard.type("sl")
    expect(field).not_to_have_value(re.compile("quick"))
    expect(field).to_have_value(re.compile("^the sl.* bruwn fox$"))
    assert any([word["text"] for word in body.get("words", ())] == ["bruwn fox"] for body in asked)
    tab.saved()
    assert server.lines("latin")[0]["text"] == field.input_value()
    accessible(page)
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    expect(field).to_have_value("the quick bruwn fox")
    tab.saved()


def test_signs_the_eye_doubt_history_and_undo(tab: Tab, server: Server) -> None:
    page = tab.open("latin")
    tab.field(3).click()
    page.keyboard.press("End")
    page.keyboard.type(r" \et ")
    expect(tab.field(3)).to_have_value(f"{LATIN[2]} ⁊")
    page.keyboard.press("Alt+s")
    page.keyboard.type("stroke through descender")
    accessible(page)
    page.get_by_role("button", name="latin small letter p with stroke through descender").click()
    expect(tab.field(3)).to_have_value(f"{LATIN[2]} ⁊ꝑ")
    page.keyboard.press("Escape")
    tab.saved()

    eye = tab.line(3).locator(".eye")  # what stands under the cursor is shown on line and page
    expect(eye).to_be_visible()
    page.keyboard.press("Home")
    left = eye.evaluate("eye => parseFloat(eye.style.left)")
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    assert eye.evaluate("eye => parseFloat(eye.style.left)") > left
    expect(page.locator("polygon.seen")).to_have_attribute("points", re.compile(r"\d"))

    page.keyboard.press("Alt+h")
    history = page.get_by_role("dialog", name="History of line 3")
    expect(history.locator("li")).not_to_have_count(0)
    accessible(page)
    page.keyboard.press("Escape")
    tab.field(3).focus()
    for _ in range(40):  # each step back is a version that was saved
        if tab.field(3).input_value() == LATIN[2]:
            break
        before = tab.field(3).input_value()
        page.keyboard.press("Alt+z")
        expect(tab.field(3)).not_to_have_value(before)
    expect(tab.line(3)).to_have_attribute("data-state", "draft")

    page.keyboard.press("Alt+u")  # the next word that is uncertain is selected
    expect(page.locator(".toast", has_text="No word")).to_have_count(0)
    chosen = page.evaluate(
        "() => { const f = document.activeElement; return f.value.slice(f.selectionStart, f.selectionEnd) }"
    )
    assert chosen
    assert " " not in chosen
    colours = page.locator(".desk.colours")
    expect(colours).to_have_count(1)
    page.keyboard.press("Alt+c")
    expect(colours).to_have_count(0)
    page.keyboard.press("F1")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    accessible(page)
    page.keyboard.press("Escape")


def test_knowledge_is_dropped_dragged_and_weighed(tab: Tab, server: Server) -> None:
    page = tab.open("latin")
    page.keyboard.press("Alt+k")
    page.get_by_label("A text of the period").fill("the lazy fox ⁊ the quick dog runs away " * 20)
    page.get_by_role("button", name="Add the text").click()
    expect(page.locator(".texts li")).to_have_count(1)
    page.locator(".drawer").evaluate(
        """drawer => {
            const files = new DataTransfer();
            files.items.add(new File(["ouer the brown fox jumps the dog ".repeat(30)], "1250.txt"));
            drawer.dispatchEvent(new DragEvent("drop", {dataTransfer: files, bubbles: true, cancelable: true}));
        }"""
    )
    expect(page.locator(".texts li")).to_have_count(2)
    expect(page.locator(".drawer > header .note")).to_have_text("read again")
    accessible(page)

    bar = page.get_by_role("slider", name="Frequency of latin small letter o")
    bar.scroll_into_view_if_needed()
    before = float(bar.get_attribute("aria-valuenow") or 0)
    box = bar.bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    expect(page.locator(".bars .edited")).to_have_count(1)
    expect(page.locator(".drawer > header .note")).to_have_text("read again")
    dragged = float(bar.get_attribute("aria-valuenow") or 0)
    assert dragged > before

    page.get_by_label("Per mille of latin small letter z").fill("0")  # forbid a character: the reading does without
    page.keyboard.press("Enter")
    page.get_by_label("The picture against the frequencies").fill("0.1")
    expect(tab.shown(2)).not_to_contain_text("z")
    expect(page.locator(".bars .edited")).to_have_count(2)
    known = server.get(f"/documents/{server.documents['latin']}/knowledge")
    assert known["weights"]["lam"] == 0.1
    targets = {one["character"]: one["frequency"] for one in known["targets"]}
    assert targets["z"] == 0
    assert targets["o"] == pytest.approx(dragged / 1000, rel=0.02)
    page.get_by_role("button", name="Measure").click()
    expect(page.locator(".bits li")).not_to_have_count(0)
    page.get_by_role("button", name="As counted").click()
    page.get_by_role("button", name="As the model suggests").click()
    expect(tab.shown(2)).to_contain_text("lazy")


def test_lines_are_split_joined_drawn_shaped_moved_and_deleted(tab: Tab, server: Server) -> None:
    page = tab.open("other")
    rows = page.locator(".line")
    tab.field(1).click()
    tab.field(1).evaluate("field => field.setSelectionRange(9, 9)")
    page.keyboard.press("Alt+x")
    expect(rows).to_have_count(4)
    expect(tab.field(2)).to_be_focused()
    first, second = server.lines("other")[:2]
    assert max(x for x, _ in first["outline"]) == min(x for x, _ in second["outline"])
    expect(page.locator(".line.reading")).to_have_count(0)
    page.keyboard.press("ArrowUp")
    expect(tab.field(1)).to_be_focused()
    page.keyboard.press("Alt+j")
    expect(rows).to_have_count(3)
    expect(page.locator(".line.reading")).to_have_count(0)

    page.keyboard.press("Alt+Shift+ArrowDown")
    expect(tab.line(2)).to_have_attribute("data-line", str(first["id"]))
    page.keyboard.press("Alt+b")
    expect(tab.line(2)).to_have_attribute("data-state", "bad")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Alt+o")
    handle = page.locator(".handle").first
    handle.focus()
    points = page.locator(".handle").count()
    page.keyboard.press("Insert")
    expect(page.locator(".handle")).to_have_count(points + 1)
    page.keyboard.press("Delete")
    expect(page.locator(".handle")).to_have_count(points)
    handle.focus()
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".handle")).to_have_count(0)
    outlines = {line["id"]: line["outline"] for line in server.lines("other")}
    while outlines[first["id"]][0] == first["outline"][0]:  # the answer of the server is not waited for
        page.wait_for_timeout(20)
        outlines = {line["id"]: line["outline"] for line in server.lines("other")}
    expect(page.locator(".line.reading")).to_have_count(0)

    page.keyboard.press("Alt+d")
    canvas = page.locator(".canvas").bounding_box()
    assert canvas
    page.mouse.move(canvas["x"] + 0.3 * canvas["width"], canvas["y"] + 0.4 * canvas["height"])
    page.mouse.down()
    page.mouse.move(canvas["x"] + 0.7 * canvas["width"], canvas["y"] + 0.5 * canvas["height"], steps=3)
    page.mouse.up()
    expect(rows).to_have_count(4)
    expect(page.locator(".line.reading")).to_have_count(0)
    tab.line(4).locator("textarea").click()
    page.keyboard.press("Alt+Delete")
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="Bring it back").click()
    expect(rows).to_have_count(4)


def test_a_late_answer_does_not_take_the_reader_away_from_where_he_has_gone(tab: Tab, server: Server) -> None:
    page = tab.open("latin")
    held: list[Any] = []
    page.route("**/order", lambda route: held.append(route))
    tab.field(1).click()
    page.keyboard.press("Alt+Shift+ArrowDown")
    page.keyboard.press("Alt+o")
    handle = page.locator(".handle").first
    handle.focus()
    moved = [str(line["id"]) for line in server.lines("latin")]
    moved[:2] = moved[1::-1]
    for route in held:
        route.continue_()
    expect(tab.line(1)).to_have_attribute("data-line", moved[0])
    page.wait_for_load_state("networkidle")
    expect(handle).to_be_focused()
    page.keyboard.press("Escape")
    page.unroute("**/order")
    page.keyboard.press("Alt+Shift+ArrowUp")  # as it was, for the other tests
    expect(tab.line(1)).to_have_attribute("data-line", moved[1])


def test_nothing_is_lost_when_the_server_is_killed(browser: Browser, server: Server) -> None:
    server.settings(drafts="always")
    tab = Tab(browser, server)
    page = tab.open("greek")
    tab.field(1).click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("λόγος")
    page.keyboard.press("Escape")
    tab.saved()
    server.kill()
    tab.field(2).click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("ἄνδρες")
    expect(page.locator(".saving")).to_contain_text("Not saved yet")
    server.start()
    tab.saved()
    page.reload()
    expect(tab.field(1)).to_have_value("λόγος")
    expect(tab.field(2)).to_have_value("ἄνδρες")

    server.kill()  # and if the tab is closed too, the browser remembers
    tab.field(2).click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("ἀρχῇ")
    expect(page.locator(".saving")).to_contain_text("Not saved yet")
    page.close(run_before_unload=False)
    server.start()
    tab.page = tab.context.new_page()
    tab.page.set_default_timeout(PATIENCE)
    tab.open("greek")
    expect(tab.field(2)).to_have_value("ἀρχῇ")
    tab.saved()
    assert [line["text"] for line in server.lines("greek")] == ["λόγος", "ἀρχῇ"]
    tab.context.close()


def test_two_tabs_do_not_overwrite_each_other(browser: Browser, server: Server) -> None:
    server.settings(drafts="always")
    mine, theirs = Tab(browser, server, viewport={"width": 1280, "height": 260}), Tab(browser, server)
    for tab in (mine, theirs):
        tab.open("hebrew")
    theirs.field(1).click()
    theirs.page.keyboard.press("Control+a")
    theirs.page.keyboard.insert_text("שלום")
    theirs.saved()
    expect(mine.field(1)).to_have_value("שלום")  # whoever does not write sees it at once

    held: list[Any] = []
    holds = [True]
    mine.page.route("**/api/lines/*", lambda route: held.append(route) if holds[0] else route.continue_())
    mine.field(1).click()
    mine.page.keyboard.press("Control+a")
    mine.page.keyboard.insert_text("אני")
    expect(mine.page.locator(".saving")).to_have_text("Saving…")
    theirs.page.keyboard.press("Control+a")
    theirs.page.keyboard.insert_text("אתה")
    theirs.page.keyboard.press("Escape")
    theirs.saved()
    holds[0] = False
    for route in held:
        route.continue_()
    trouble = mine.line(1).locator(".trouble")
    expect(trouble).to_contain_text("changed elsewhere")
    expect(trouble.get_by_role("button", name="Keep mine")).to_be_in_viewport()
    expect(trouble.locator("dd").first).to_have_text("אני")
    accessible(mine.page)
    trouble.get_by_role("button", name="Keep mine").click()
    mine.saved()
    expect(theirs.field(1)).to_have_value("אני")
    assert server.lines("hebrew")[0]["text"] == "אני"
    allowed = re.compile("409")
    assert all(allowed.search(text) for tab in (mine, theirs) for text in tab.complaints)
    for tab in (mine, theirs):
        tab.context.close()


def test_of_two_tabs_with_the_knowledge_open_the_later_sees_what_the_other_chose(
    browser: Browser, server: Server
) -> None:
    mine, theirs = Tab(browser, server), Tab(browser, server)
    for tab in (mine, theirs):
        tab.open("greek").keyboard.press("Alt+k")
        tab.page.locator("#domain").wait_for()
    strange = mine.page.get_by_label("Per mille of greek small letter alpha", exact=True)
    strange.fill("0")  # focused, so that nothing is shown anew while it is typed
    theirs.page.get_by_label("Per mille of greek small letter rho", exact=True).fill("0")
    theirs.page.keyboard.press("Enter")
    expect(theirs.page.locator(".bars .forbidden")).to_have_count(1)
    expect(theirs.page.locator(".drawer > header .note")).to_have_text("read again")
    strange.press("Enter")
    expect(mine.page.locator(".toast", has_text="changed elsewhere")).to_be_visible()
    expect(mine.page.locator(".bars .forbidden .glyph")).to_have_text("ρ")
    mine.page.get_by_role("button", name="As counted").click()
    expect(mine.page.locator(".bars .forbidden")).to_have_count(0)
    expect(mine.page.locator(".drawer > header .note")).to_have_text("read again")
    theirs.field(1).click()  # whoever leaves the drawer, or is not at it, sees what has changed
    expect(theirs.page.locator(".bars .forbidden")).to_have_count(0)
    known = server.get(f"/documents/{server.documents['greek']}/knowledge")
    assert not any(one["edited"] for one in known["targets"])
    for tab in (mine, theirs):
        assert not tab.complaints
        tab.context.close()


def test_greek_and_right_to_left_lines(tab: Tab, server: Server) -> None:
    page = tab.open("greek")
    expect(tab.field(1)).to_have_attribute("dir", "ltr")
    tab.field(1).click()
    page.keyboard.press("End")
    page.keyboard.type(r" \w)= ")  # beta code
    expect(tab.field(1)).to_have_value(re.compile(" ὦ$"))
    tab.saved()

    page.get_by_role("button", name="Settings and view").click()  # a document that was uploaded with a wrong direction
    accessible(page)
    page.get_by_role("menuitem", name="Settings…").click()
    page.get_by_label("Writing").select_option("rtl")
    page.get_by_label("Name", exact=True).fill("τὸ βιβλίον")
    page.get_by_role("button", name="Save").click()
    expect(tab.field(1)).to_have_attribute("dir", "rtl")
    expect(page.get_by_role("heading", name="τὸ βιβλίον")).to_be_visible()

    server.settings(drafts="never")
    tab.open("hebrew")
    page.reload()
    tab.line(1).wait_for()
    field, ghost = tab.field(2), tab.shown(2).locator(".ghost")
    expect(field).to_have_attribute("dir", "rtl")
    expect(ghost).to_have_text(HEBREW[1])
    field.click()
    page.keyboard.insert_text("את")
    expect(ghost).to_have_text(HEBREW[1][2:])
    leftward = """mirror => {
        const typed = new Range(), ghost = mirror.querySelector(".ghost");
        typed.selectNodeContents(mirror.firstChild);
        return ghost.getBoundingClientRect().right <= typed.getBoundingClientRect().left + 1;
    }"""
    assert tab.shown(2).evaluate(leftward)  # what follows stands to the left
    page.keyboard.press("ArrowLeft")  # forward
    expect(field).to_have_value(HEBREW[1])
    page.keyboard.press("Enter")
    expect(tab.line(2)).to_have_attribute("data-state", "confirmed")
    accessible(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_telephone_there_is_one_pane(browser: Browser, server: Server, scheme: Any) -> None:
    server.settings(drafts="always")
    size = {"width": 390, "height": 780}
    tab = Tab(browser, server, viewport=size, has_touch=True, is_mobile=True, color_scheme=scheme)
    page = tab.open("latin")
    tab.field(1).tap()
    expect(page.locator(".viewer")).to_be_hidden()
    accessible(page)

    def fits() -> None:
        assert page.evaluate("() => document.documentElement.scrollWidth") <= size["width"]

    fits()
    page.get_by_role("button", name="Page or lines").tap()
    expect(page.locator(".viewer")).to_be_visible()
    expect(page.locator(".rows")).to_be_hidden()
    page.get_by_role("button", name="Zoom in").tap()
    accessible(page)
    page.get_by_role("button", name="Page or lines").tap()
    page.get_by_role("button", name="Knowledge: what").tap()
    expect(page.locator("#domain")).to_be_visible()
    fits()
    accessible(page)
    page.get_by_role("link", name="fada: all documents").tap()
    page.locator(".card").first.wait_for()
    fits()
    accessible(page)
    assert not tab.complaints
    tab.context.close()


def test_frequencies_of_texts_and_reports(tab: Tab, server: Server, tmp_path: Path) -> None:
    run = server.folder / "runs" / "first"
    run.mkdir(parents=True)
    (run / "report.html").write_text("<!doctype html><title>a run</title><h1>It went well</h1>")
    for name, text in {"1250": "et uos et nous ", "1350.b": "und wir und ihr "}.items():
        (tmp_path / f"{name}.txt").write_text(text * 50)
    page = tab.page
    page.goto(f"{server.address}#/frequencies")
    page.get_by_label("Texts").set_input_files(sorted(tmp_path.glob("*.txt")))
    expect(page.get_by_label("Century of 1250.txt")).to_have_value("13")
    heat = page.get_by_role("region", name="Characters by domain")
    expect(heat.locator("tbody tr")).to_have_count(2)
    expect(page.locator(".drivers li")).not_to_have_count(0)
    accessible(page)
    page.get_by_role("link", name="Reports").click()
    with page.expect_popup() as popup:
        page.get_by_role("link", name="first").click()
    expect(popup.value.get_by_role("heading")).to_have_text("It went well")
    accessible(page)
    page.get_by_role("link", name="Interface").click()
    expect(page.get_by_role("heading", name="fada serve")).to_be_visible()
    page.locator("summary", has_text="/api/lines/{line}/complete").click()
    accessible(page)
    page.get_by_role("link", name="fada", exact=True).click()
    expect(page.get_by_role("heading", name="Read a manuscript")).to_be_visible()
