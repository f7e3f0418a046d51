"""Photograph JupyterLab, formgrader and report for the book: `make screenshots` writes them to book/images/.

`python book/screenshots.py report grading` takes these two only.

A small class is made up and graded in a temporary folder, JupyterLab is started on it, and a browser goes
where students and instructors go. A function whose name begins with `photograph_` is one picture: it gets
a page and the address of the server, and brings the page to where it is worth a picture. If the picture is
not to have all of the window, it gives back what part of it.
"""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import FloatRect, Locator, Page, expect, sync_playwright

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "book/images"
UNIT = "attention_operator"
PATIENCE = 300_000  # milliseconds, for a machine that has much else to do
SIZE = {"width": 1100, "height": 760}
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}


# An answer whose scores are not scaled.
WRONG = """\
def attention(query, key, value):
    scores = query @ key.transpose(-2, -1)
    return torch.softmax(scores, dim=-1) @ value"""


def make_course(folder: Path) -> None:
    """Lay out a course with one unit, what a class handed in, and its marks."""
    for place in ("solutions", "exercises"):
        shutil.copytree(ROOT / place / UNIT, folder / place / UNIT)
    shutil.copytree(ROOT / "exercises" / UNIT, folder / "homework" / UNIT)
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    grading = [sys.executable, "-m", "attncourse.grading"]
    subprocess.run([*grading, "simulate", UNIT, "--students", "6"], cwd=folder, check=True)
    subprocess.run([*grading, UNIT], cwd=folder, check=True)


@contextmanager
def jupyterlab(folder: Path):
    """Run JupyterLab on a folder; give its address and its token."""
    own = {
        "JUPYTER_CONFIG_DIR": folder / ".config",
        "JUPYTER_CONFIG_PATH": ROOT / "lab",  # as `make lab` starts it
        "JUPYTER_PATH": ROOT / "lab",
        "JUPYTER_RUNTIME_DIR": folder / ".runtime",
        "JUPYTERLAB_SETTINGS_DIR": folder / ".settings",
        "JUPYTERLAB_WORKSPACES_DIR": folder / ".workspaces",
        "IPYTHONDIR": folder / ".ipython",
    }
    for name, values in SETTINGS.items():
        path = own["JUPYTERLAB_SETTINGS_DIR"] / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.port=0"],
        cwd=folder,
        env={**os.environ, **{name: str(path) for name, path in own.items()}, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not (found := list(own["JUPYTER_RUNTIME_DIR"].glob("jpserver-*.json"))):
            if server.poll() is not None:
                raise RuntimeError("JupyterLab did not start")
            time.sleep(0.2)
        time.sleep(1)  # until that file is whole
        running = json.loads(found[0].read_text())
        yield running["url"], running["token"]
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def open_notebook(page: Page, address: str) -> None:
    page.goto(f"{address}lab/tree/homework/{UNIT}/{UNIT}.ipynb")
    expect(page.locator(".jp-Notebook h1")).to_be_visible()
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle")


def cell_with(page: Page, words: str):
    return page.locator(".jp-Notebook .jp-CodeCell").filter(has_text=words)


def photograph_jupyterlab(page: Page, address: str) -> None:
    open_notebook(page, address)


def photograph_check(page: Page, address: str) -> None:
    open_notebook(page, address)
    answer = cell_with(page, "def attention(")
    answer.locator(".cm-content").fill(WRONG)
    check = cell_with(page, "checks.attention(attention)")
    for cell in (cell_with(page, "from attncourse import checks"), answer, check):
        cell.locator(".cm-content").press("Control+Enter")
    verdict = check.locator(".jp-OutputArea-output").first  # below it stands only that the cell failed
    expect(verdict).to_contain_text("This looks like")
    answer.scroll_into_view_if_needed()
    verdict.scroll_into_view_if_needed()


def photograph_validate(page: Page, address: str) -> None:
    open_notebook(page, address)
    page.get_by_role("button", name="Validate").click()
    expect(page.get_by_role("dialog").filter(has_text="Validation Results")).to_be_visible()


def down_to(last: Locator, first: Locator | None = None) -> FloatRect:
    """The window from above `first`, or from its top, to below `last`, and all of its width."""
    space = 20
    box = last.bounding_box()
    top = max(0, first.bounding_box()["y"] - space) if first else 0
    bottom = box["y"] + box["height"] + space
    return {"x": 0, "y": top, "width": last.page.viewport_size["width"], "height": bottom - top}


def photograph_assignments(page: Page, address: str) -> FloatRect:
    page.set_viewport_size({"width": 1280, "height": 760})  # the table needs that much
    page.goto(f"{address}formgrader/manage_assignments")
    expect(page.locator("table")).to_contain_text(UNIT)
    return down_to(page.get_by_role("link", name="Add new assignment"))


def photograph_submissions(page: Page, address: str) -> FloatRect:
    page.goto(f"{address}formgrader/manage_submissions/{UNIT}")
    expect(page.locator("table")).to_contain_text("student-006")
    return down_to(page.locator("table"))


def photograph_grading(page: Page, address: str) -> FloatRect:
    listed = page.request.get(f"{address}formgrader/api/submitted_notebooks/{UNIT}/{UNIT}").json()
    for notebook in listed:
        page.goto(f"{address}formgrader/submissions/{notebook['id']}/")
        if "This looks like" in page.content():
            break
    page.set_viewport_size({"width": SIZE["width"], "height": 1400})
    message = page.locator("pre").filter(has_text="This looks like").first
    message.scroll_into_view_if_needed()
    # Formulas need a script from elsewhere, and there are none from the answer to the message.
    panel = "[contains(@class, 'panel-primary')]"
    answer = message.locator(f"""xpath=preceding::div{panel}[contains(., "Student's answer")][1]""")
    return down_to(message, first=answer)


def open_report(page: Page, address: str) -> None:
    page.set_viewport_size({"width": SIZE["width"], "height": 3000})
    page.goto(f"{address}files/reports/{UNIT}.html", referer=address)
    expect(page.locator("h1")).to_have_text(f"{UNIT}: class report")


def photograph_report(page: Page, address: str) -> FloatRect:
    open_report(page, address)
    return down_to(page.locator("table").first)


def photograph_tasks(page: Page, address: str) -> FloatRect:
    open_report(page, address)
    return down_to(page.locator("table").nth(1), first=page.get_by_role("heading", name="Tasks"))


def main(*wanted: str) -> None:
    pictures = {
        name.removeprefix("photograph_"): photograph
        for name, photograph in globals().items()
        if name.startswith("photograph_")
    }
    if unknown := set(wanted) - set(pictures):
        sys.exit(f"no picture is called {', '.join(sorted(unknown))}: expected some of {', '.join(pictures)}")
    FOLDER.mkdir(exist_ok=True)
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    expect.set_options(timeout=PATIENCE)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        make_course(Path(name))
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        with jupyterlab(Path(name)) as (address, token):
            for picture in wanted or pictures:
                context = browser.new_context(viewport=SIZE)
                context.set_default_timeout(PATIENCE)
                page = context.new_page()
                page.goto(f"{address}login?token={token}")
                part = pictures[picture](page, address)
                page.wait_for_timeout(1000)  # until what moves has come to rest
                image = Image.open(io.BytesIO(page.screenshot(clip=part)))
                # Few colours are enough, and a fraction of the size.
                path = FOLDER / f"{picture}.png"
                image.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)
                print(path.relative_to(ROOT), f"{path.stat().st_size / 1000:.0f} kB")
                context.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
