"""The pictures of the desk in the documents: `python docs/images/make_desk.py PAGE.jpg TEXT.txt TEXT.txt …`.

Starts `fada serve` on a folder of its own, uploads the page, reads some of it as a person would, and takes pictures,
light and dark, for a desktop and a telephone. The texts are shown in the frequency explorer.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import expect, sync_playwright

HERE = Path(__file__).parent
DESKTOP = {"viewport": {"width": 1440, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 800}, "device_scale_factor": 2, "is_mobile": True, "has_touch": True}
TYPED = {2: "siue scienter siue incogitatione mala siue", 3: "inuerbo. seu inopere uel etiam assidui"}
"""Of Latin 13388, f. 19: what is typed into which line; the rest of each follows."""


TITLE = "Paris, BnF, Latin 13388, f. 19"
SEEN = """() => [...document.querySelectorAll(".crop img")].every(
    (one) => one.getBoundingClientRect().top > innerHeight || !one.offsetParent || (one.complete && one.naturalWidth)
)"""


def taken(page: Any, name: str) -> None:
    """A picture, when all that is on the screen has come."""
    page.wait_for_timeout(700)
    while not page.evaluate(SEEN):
        page.wait_for_timeout(200)
    page.wait_for_timeout(700)
    page.screenshot(path=HERE / f"desk-{name}.jpg", type="jpeg", quality=82)


def main(image: Path, texts: list[Path]) -> None:
    """Take all pictures."""
    expect.set_options(timeout=100_000)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        command = [sys.executable, "-m", "fada", "serve", folder, "--no-browser"]
        server = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        named = Path(folder) / "tmp" / f"{TITLE}{image.suffix}"
        shutil.copy(image, named)
        try:
            pictures(playwright, address, named, texts)
        finally:
            server.terminate()
            server.wait()


def pictures(playwright: Any, address: str, image: Path, texts: list[Path]) -> None:
    """Everything that is done and shown."""
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])

    def opened(where: str = "", scheme: str = "light", **options: Any) -> Any:
        page = browser.new_context(color_scheme=scheme, **options).new_page()
        page.set_default_timeout(100_000)
        page.goto(address + where)
        return page

    page = opened(**DESKTOP)
    page.get_by_label("Files").set_input_files(image)
    page.locator(".line").first.wait_for()
    expect(page.locator("#jobs .job")).to_have_count(0)
    for number, text in TYPED.items():
        page.locator(".line textarea").nth(number - 1).click()
        page.keyboard.press("Control+a")
        page.keyboard.insert_text(text)
        expect(page.locator(".saving")).to_have_text("Saved")
        if number == max(TYPED):
            page.locator(".line.active .ghost").wait_for()
        else:
            page.keyboard.press("Escape")
            page.keyboard.press("Enter")
    taken(page, "light")
    page.keyboard.press("Alt+k")
    page.locator("#domain").wait_for()
    taken(page, "knowledge")
    here = page.url.removeprefix(address)
    dark = opened(here, "dark", **DESKTOP)
    dark.locator(".line textarea").nth(4).click()
    taken(dark, "dark")
    phone = opened(here, "light", **PHONE)
    phone.locator(".line textarea").nth(4).click()
    taken(phone, "phone")
    phone.get_by_role("button", name="Page or lines").click()
    taken(phone, "phone-page")
    page.goto(f"{address}#/")
    page.locator(".card").wait_for()
    taken(page, "start")
    page.goto(f"{address}#/frequencies")
    page.get_by_label("Texts").set_input_files(texts)
    page.locator(".drivers li").first.wait_for()
    page.locator(".result").scroll_into_view_if_needed()
    taken(page, "frequencies")
    browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
