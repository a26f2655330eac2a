"""A desk in a real browser: the server as a process, tabs that remember what they complained of."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.support import browsers
from tests.support.desks import SERVER

PATIENCE = 600_000
"""Milliseconds: tests share their machine."""
in_a_browser = [
    pytest.mark.browser,
    pytest.mark.skipif(not browsers.THERE, reason=browsers.HOW),
    pytest.mark.skipif(sys.platform == "win32", reason="kills the server in the way of POSIX"),
]
_PAGE_XML = """<?xml version="1.0" encoding="UTF-8"?>
<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15">
<Page imageFilename="{name}" imageWidth="{width}" imageHeight="{height}">
<TextRegion id="r">{lines}</TextRegion></Page></PcGts>"""


def page_xml(name: str, boxes: Sequence[tuple[int, int, int, int]], size: tuple[int, int] = (400, 300)) -> str:
    """PAGE XML of an image with lines in boxes (left, top, right, bottom), without their texts."""
    lines = "".join(
        f'<TextLine id="l{i}"><Coords points="{a},{b} {c},{b} {c},{d} {a},{d}"/>'
        f'<Baseline points="{a},{d - 8} {c},{d - 8}"/></TextLine>'
        for i, (a, b, c, d) in enumerate(boxes)
    )
    return _PAGE_XML.format(name=name, width=size[0], height=size[1], lines=lines)


class Server:
    """`fada serve` as a process, which can be killed and started again at the same address."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.model, self.port = folder, model, 0
        self.process: subprocess.Popen[str] | None = None
        self.documents: dict[str, int] = {}

    def start(self) -> None:
        command = [*SERVER, str(self.folder), "--no-browser", "--port", str(self.port), "--model", str(self.model)]
        log = (self.folder.parent / "log").open("a")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        address = self.process.stdout.readline().strip()
        assert address, (self.folder.parent / "log").read_text()
        self.port = int(address.rstrip("/").rsplit(":")[-1])

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.address}api{path}") as answer:
            return json.load(answer)

    def put(self, path: str, value: Any) -> None:
        request = urllib.request.Request(f"{self.address}api{path}", json.dumps(value).encode(), method="PUT")
        request.add_header("content-type", "application/json")
        urllib.request.urlopen(request).close()

    def settings(self, **change: Any) -> None:
        self.put("/settings", {**self.get("/settings"), **change})

    def lines(self, name: str) -> list[dict[str, Any]]:
        page = self.get(f"/documents/{self.documents[name]}")["pages"][0]["id"]
        return list(self.get(f"/pages/{page}")["lines"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of a module."""
    expect.set_options(timeout=PATIENCE)
    with browsers.chromium() as started:
        yield started
    expect.set_options(timeout=5_000)


class Tab:
    """A tab that remembers what it complained of."""

    def __init__(self, browser: Browser, server: Server, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.server = server
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self._said(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", lambda request: self._failed(request))

    def _said(self, message: str) -> None:
        if (
            "409 (Conflict)" not in message
        ):  # the browser tells every answer of this kind; the page takes the newer line
            self.complaints.append(message)

    def _failed(self, request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # by leaving the page
            self.complaints.append(f"{request.method} {request.url}: {request.failure}")

    def open(self, name: str) -> Page:
        self.page.goto(f"{self.server.address}#/d/{self.server.documents[name]}")
        self.page.locator(".line").first.wait_for()
        return self.page

    def line(self, number: int) -> Locator:
        return self.page.locator(".line").nth(number - 1)

    def field(self, number: int) -> Locator:
        return self.line(number).locator("textarea")

    def shown(self, number: int) -> Locator:
        return self.line(number).locator(".mirror")

    def saved(self) -> None:
        expect(self.page.locator(".saving")).to_have_text("Saved")


def accessible(page: Page) -> None:
    """No rule of axe is broken by what is shown."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    told = [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]
    assert not told, told
