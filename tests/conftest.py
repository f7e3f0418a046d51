"""What several test files share."""

import os
import shutil
import sysconfig

import hypothesis
import pytest

# Programs that tests start find this environment's (nbgrader calls alembic by its bare name).
os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])

# One process of tests on each core: more threads would only be in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Whether a test passes does not depend on how busy the machine is.
hypothesis.settings.register_profile("attncourse", deadline=None)
hypothesis.settings.load_profile("attncourse")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items):
    """What takes long begins first, so that no core waits for it at the end.

    With `--dist loadgroup` every test may run in another process. Those that share a fixture of
    their file stay together: it is made once.
    """
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs.values()
        if any(fixture.scope == "module" for (*_, fixture) in fixtures):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the Chromium that Playwright is to drive.

    Without one the test is skipped, except where the environment sets CI: there a missing
    browser is a failure, so that browser tests cannot vanish unnoticed.
    """
    names = ("chromium", "chromium-browser", "google-chrome")
    for name in names:
        if path := shutil.which(name):
            return path
    reason = f"needs a browser: none of {', '.join(names)} is on PATH"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser(chromium):
    """A running Chromium, one for all tests: Playwright can be started only once."""
    from playwright.sync_api import sync_playwright

    # Chromium's own traffic would be taken for the pages'; as root it runs only without its sandbox.
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", *quiet])
        yield browser
        browser.close()
