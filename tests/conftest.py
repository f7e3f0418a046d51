"""What several test files share."""

import functools
import gc
import os
import shutil
import sysconfig
from pathlib import Path

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

# Programs that tests start find this environment's (nbgrader calls alembic by its bare name).
os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])

# One process of tests on each core: more threads would only be in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Where nothing is to be written beside the sources, every program that tests start would compile them anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Whether a test passes does not depend on how busy the machine is.
hypothesis.settings.register_profile("attncourse", deadline=None)
hypothesis.settings.load_profile("attncourse")


ROOT = Path(__file__).parents[1]


def pytest_collection_modifyitems(config, items):
    """What takes long begins first, so that no core waits for it at the end.

    What needs a browser is slow, too. First comes what cannot be shared among processes, the build of the
    book among it; who needs the built book comes late, and waits for nobody.

    Of the units that are left out, by ``make test UNITS=...`` or in ``course.toml``, no test runs.
    """
    for item in items:
        if "chromium" in item.fixturenames:
            item.add_marker(pytest.mark.slow)
    items.sort(
        key=lambda item: (
            item.get_closest_marker("slow") is None,
            not makes_once(item.path),
            "html" in item.fixturenames,
        )
    )
    if (ROOT / "course.toml").exists() or os.environ.get("UNITS"):
        from attncourse import checks
        from attncourse.grading.rules import Unusable, taught

        units = sorted(path.parent.name for path in ROOT.glob("solutions/*/*.ipynb"))
        try:
            out = set(units) - set(taught(ROOT, units))
        except Unusable as reason:
            raise pytest.UsageError(str(reason)) from None
        tasks = {task.name for task in checks.tasks() if task.unit in out}
        left = [item for item in items if belongs_to(item, out, tasks)]
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=left)


def pytest_collection_finish():
    """What is there now stays to the end: the collector need not look through it time and again.

    Nor need it look after every few hundred objects of a page that is parsed.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def belongs_to(item, units, tasks):
    """Whether a test is about one of these units or tasks: by its file, its name or its parameters."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    names = [value.stem if isinstance(value, Path) else getattr(value, "name", value) for value in values]
    return (
        item.path.stem.removeprefix("test_") in units
        or any(item.name.startswith(f"test_{unit}_") for unit in units)
        or any(isinstance(name, str) and name in units | tasks for name in names)
    )


class TogetherWhereShared(LoadScopeScheduling):
    """Every test may run in another process, but those of a file with fixtures made once stay together.

    So do those of one parameter: what was computed for one test of a task is there for the next.
    """

    def _split_scope(self, nodeid):
        file, _, test = nodeid.partition("::")
        name, _, parameter = test.partition("[")
        return file if makes_once(self.config.rootpath / file) else f"{file}::{parameter or name}"


@functools.cache
def makes_once(file):
    return 'scope="module"' in file.read_text(encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One process more than cores, for there is always one that waits: for a limit of time, or a program."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False  # the order is that of the collection
    return TogetherWhereShared(config, log)


@pytest.fixture
def one_thread():
    """Weights that are to be equal bit for bit are computed by as many threads as the command's default."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the Chromium that Playwright is to drive.

    Without one the test is skipped, except where the environment sets CI: there a missing
    browser is a failure, so that browser tests cannot vanish unnoticed.
    """
    # The first is the same browser without its windows, and takes a quarter less time.
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
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
        # Each page is read once: to compile its scripts for speed takes longer than to run them.
        plain = "--js-flags=--no-opt"
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", plain, *quiet])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def built():
    """The build of the book: its status, its log and its folder."""
    from built_book import build

    return build("html")


@pytest.fixture(scope="session")
def html(built):
    """The folder of the built book's pages."""
    status, _, folder = built
    if status:
        pytest.fail("the book did not build: see test_the_book_builds_without_a_warning", pytrace=False)
    return folder / "html"
