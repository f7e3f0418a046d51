"""What several test files share."""

import functools
import os
import shutil
import sysconfig

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

# Programs that tests start find this environment's (nbgrader calls alembic by its bare name).
os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])

# One process of tests on each core: more threads would only be in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Whether a test passes does not depend on how busy the machine is.
hypothesis.settings.register_profile("attncourse", deadline=None)
hypothesis.settings.load_profile("attncourse")


def pytest_collection_modifyitems(items):
    """What takes long begins first, so that no core waits for it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


class TogetherWhereShared(LoadScopeScheduling):
    """Every test may run in another process, but those of a file with fixtures made once stay together."""

    def _split_scope(self, nodeid):
        file = nodeid.partition("::")[0]
        return file if makes_once(self.config.rootpath / file) else nodeid


@functools.cache
def makes_once(file):
    return 'scope="module"' in file.read_text(encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False  # the order is that of the collection
    return TogetherWhereShared(config, log)


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
