"""A real browser for tests, and how to get one."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MACHINE = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
_FETCHED = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH", "~/.cache/ms-playwright")).expanduser()
THERE = MACHINE is not None or any(_FETCHED.glob("chromium*"))
HOW = "no Chromium on this machine: `apt install chromium`, or `.venv/bin/playwright install chromium`"


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window: the machine's, else the one that Playwright has fetched."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=MACHINE, args=arguments)
        yield browser
        browser.close()
