"""Print the one-page book to a PDF with Chromium: `python book/pdf.py PAGE PDF`, which `make pdf` runs."""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

# What is folded on a screen cannot be unfolded on paper.
UNFOLD = """
document.querySelectorAll("details").forEach(details => details.open = true);
document.querySelectorAll(".toggle-hidden").forEach(part => part.classList.remove("toggle-hidden"));
document.documentElement.dataset.theme = "light";
"""
PAPER = {
    "format": "A4",
    "scale": 0.75,
    "margin": {"top": "18mm", "bottom": "18mm", "left": "17mm", "right": "17mm"},
    "outline": True,
    "tagged": True,
    "display_header_footer": True,
    "header_template": "<span></span>",
    "footer_template": '<div style="margin:auto;font-size:9px"><span class="pageNumber"></span></div>',
}


def open_book(browser: Browser, page: Path) -> Page:
    """Open `page`, an HTML file, as it is to be printed."""
    tab = browser.new_page(color_scheme="light")
    tab.set_default_timeout(0)  # a whole book takes its time
    tab.goto(page.resolve().as_uri(), wait_until="load")
    tab.evaluate(UNFOLD)
    tab.evaluate("document.fonts.ready.then(() => 0)")
    return tab


def main(page: str, pdf: str) -> None:
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if not found:
        sys.exit(
            f"Printing needs Chromium: none of {', '.join(names)} is on PATH. On Debian: apt install chromium"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        open_book(browser, Path(page)).pdf(path=pdf, **PAPER)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
