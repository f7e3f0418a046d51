"""What several test files share: a browser."""

import shutil

import pytest


@pytest.fixture(scope="session")
def browser():
    """Chromium as the system has it, driven by Playwright. Without it the test is skipped."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium on the PATH (chromium, chromium-browser or google-chrome)")
    # Chromium's own background traffic would be taken for the page's; as root it runs without a sandbox only.
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu", *quiet]
        )
        yield chromium
        chromium.close()
