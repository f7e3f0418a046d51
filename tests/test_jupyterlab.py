"""A student works on the exercise in JupyterLab, in a real browser."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from jupyter_core.paths import jupyter_path
from jupyterlab_server.config import get_page_config
from playwright.sync_api import expect

from attncourse import checks

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
UNIT = "attention_operator"
NOTEBOOK = f"homework/{UNIT}/{UNIT}.ipynb"
# For starting a kernel that imports torch, on a machine that has much else to do.
PATIENCE = 90_000  # milliseconds
SETTINGS = {
    # JupyterLab asks once whether it may fetch its news; a student has long answered.
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # Cells out of sight are drawn, too.
    "notebook-extension/tracker": {"windowingMode": "none"},
}


# A book of one page, as the kit installs one, with a passage that is not in sight at first.
BOOK = {
    "index.html": "<h1>Book</h1>",
    f"book/{UNIT}.html": """
        <!DOCTYPE html><link rel="stylesheet" href="../_static/style.css"><h1>Operator</h1>
        <h2 id="one-query">One query</h2><p>...</p><h2 id="why-the-scale">Why divide?</h2><p>...</p>
    """,
    "_static/style.css": "h1 { color: rgb(1, 2, 3) } p { height: 200vh }",
    ".hidden": "of some tool",
}


@pytest.fixture(scope="module")
def jupyterlab(chromium, tmp_path_factory):
    """The address of a JupyterLab of its own, as `make lab` starts it: `(address, token)`."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "exercises" / UNIT, folder / "homework" / UNIT)
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    for name, text in BOOK.items():
        path = folder / "share/attncourse-book" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "share/attncourse-book/out.html").symlink_to(folder / "nbgrader_config.py")
    settings = folder / "settings"
    for name, values in SETTINGS.items():
        path = settings / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    own = {
        "JUPYTER_CONFIG_DIR": folder / "config",
        "JUPYTER_CONFIG_PATH": ROOT / "lab",
        "JUPYTER_PATH": f"{ROOT / 'lab'}{os.pathsep}{folder / 'share'}",
        "JUPYTER_RUNTIME_DIR": folder / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": settings,
        "JUPYTERLAB_WORKSPACES_DIR": folder / "workspaces",
        "IPYTHONDIR": folder / "ipython",
    }
    environment = {**os.environ, **{name: str(path) for name, path in own.items()}, "OMP_NUM_THREADS": "1"}
    with open(folder / "log.txt", "w") as log:
        server = subprocess.Popen(
            [
                *[sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.port=0"],
                "--ServerApp.base_url=/user/ada/",  # as on a hub
            ],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield address_of(server, folder)
    finally:
        # It stops its kernels, if it is asked.
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def address_of(server, folder):
    deadline = time.monotonic() + PATIENCE / 1000
    while time.monotonic() < deadline:
        for path in (folder / "runtime").glob("jpserver-*.json"):
            try:
                running = json.loads(path.read_text())
            except ValueError:  # not written to the end yet
                continue
            return running["url"], running["token"]
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{(folder / 'log.txt').read_text()}")


@pytest.fixture(scope="module", autouse=True)
def patience():
    expect.set_options(timeout=PATIENCE)
    yield
    expect.set_options(timeout=None)


@pytest.fixture(scope="module")
def page(browser, jupyterlab):
    """The exercise, opened and drawn. What it asks of other machines is kept in `page.elsewhere`."""
    address, token = jupyterlab
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.elsewhere = []

    def note(request):
        if not request.url.startswith((address, address.replace("http", "ws"), "data:", "blob:")):
            page.elsewhere.append(request.url)

    page.on("request", note)
    page.goto(f"{address}lab/tree/{NOTEBOOK}?token={token}")
    expect(page.locator(".jp-Notebook h1")).to_be_visible()
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle")
    yield page
    context.close()


def code_cell(page, words):
    return page.locator(".jp-Notebook .jp-CodeCell").filter(has_text=words)


def fill(page, task, source):
    """Replace the code in the cell of a task."""
    code = code_cell(page, f"def {task}(")
    code.locator(".cm-content").fill(source)
    return code


def run(code):
    code.locator(".cm-content").press("Control+Enter")
    expect(code.locator(".jp-InputPrompt")).to_have_text(re.compile(r"\[\d+\]:"))


def validate(page):
    """Press Validate and return the dialog with its result."""
    page.get_by_role("button", name="Validate").click()
    dialog = page.get_by_role("dialog").filter(has_text="Validation Results")
    expect(dialog).to_be_visible()
    return dialog


def close(dialog):
    dialog.get_by_role("button", name="Ok", exact=True).click()
    expect(dialog).to_be_hidden()


def leads_to(page, link, passage):
    """Click on a link: the page of the book opens in a tab of its own, at the passage and with its styles."""
    with page.context.expect_page() as opened:
        link.click()
    book = opened.value
    expect(book).to_have_url(re.compile(rf"/user/ada/attncourse/book/{UNIT}\.html#{passage}$"))
    expect(book.locator(f"#{passage}")).to_be_in_viewport()
    expect(book.locator("h1")).to_have_css("color", "rgb(1, 2, 3)")
    book.close()
    expect(page.locator(".jp-Document")).to_have_count(1)


def photograph(page, name):
    # For people to look at, where they say.
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png")


@pytest.fixture(scope="module")
def solutions():
    notebook = nbformat.read(ROOT / "solutions" / UNIT / f"{UNIT}.ipynb", as_version=4)
    return {
        cell.metadata.nbgrader.grade_id: cell.source
        for cell in notebook.cells
        if cell.metadata.get("nbgrader", {}).get("solution")
    }


def test_the_exercise_renders(page):
    expect(page.locator(".jp-Notebook h1")).to_contain_text("Exercises: the attention operator")
    photograph(page, "opened")
    formulas = page.locator(".jp-Notebook mjx-container")
    expect(formulas.first).to_be_attached()
    assert formulas.count() > 20
    assert page.locator(".jp-Notebook mjx-merror, .jp-Notebook [data-mjx-error]").count() == 0
    # What is left of dollars stands in code, not in the text.
    text = " ".join(page.locator(".jp-Notebook .jp-RenderedMarkdown p").all_inner_texts())
    assert "$" not in text


def test_what_to_read_first_opens_the_book_at_the_passage(page):
    first = page.locator(".jp-Notebook .jp-RenderedMarkdown").filter(has_text="Read first")
    for words, passage in [("One query", "one-query"), ("Why divide by the square root?", "why-the-scale")]:
        leads_to(page, first.get_by_role("link", name=words).first, passage)


def test_a_page_that_is_not_in_the_book_is_replaced_by_words(page, jupyterlab):
    address, _ = jupyterlab
    page = page.context.new_page()
    page.goto(f"{address}attncourse/book/masking.html#padding-hides-keys")
    expect(page.locator("h1")).to_have_text("Masking")
    expect(page.locator(":target")).to_have_text("Padding hides keys, not queries")
    expect(page.locator("body")).to_contain_text("make book")
    page.close()


def test_only_files_of_the_book_are_served_and_only_after_login(page, browser, jupyterlab):
    address, _ = jupyterlab
    asked = page.request.get(f"{address}attncourse/")
    assert (asked.status, asked.text()) == (200, "<h1>Book</h1>")
    assert asked.headers["content-type"].startswith("text/html")
    for path in ("..%2f..%2fnbgrader_config.py", "%2fetc%2fpasswd", "out.html", ".hidden", "none.html"):
        assert page.request.get(f"{address}attncourse/{path}").status in (403, 404), path
    stranger = browser.new_context()
    for path in ("", f"book/{UNIT}.html", "_static/style.css", "book/masking.html"):
        assert "/login?" in stranger.request.get(f"{address}attncourse/{path}").url
    stranger.close()


INSTRUCTORS = {"assignment-list", "course-list", "create-assignment", "formgrader", "menu"}


def switched_off(monkeypatch, **environment):
    """The parts of nbgrader that JupyterLab, started in this environment, leaves out."""
    for name in ("JUPYTER_CONFIG_PATH", "JUPYTER_CONFIG_DIR", "JUPYTER_PREFER_ENV_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, str(value))
    config = get_page_config([str(path) for path in jupyter_path("labextensions")])
    assert "@jupyter/nbgrader" in {extension["name"] for extension in config["federated_extensions"]}
    names = config["disabledExtensions"]
    return {name.partition(":")[2] for name in names if name.startswith("@jupyter/nbgrader")}


def test_make_lab_leaves_out_what_is_the_instructors_and_jupyter_lab_does_not(monkeypatch, tmp_path):
    planned = subprocess.run(
        ["make", "--dry-run", "lab"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in ("JUPYTER_CONFIG_PATH", "JUPYTER_PATH"):
        said = re.search(rf'\b{name}="([^$"]+)[^\n]* jupyter lab', planned)
        assert Path(said[1]) == ROOT / "lab"
    own = {"JUPYTER_CONFIG_DIR": tmp_path}
    assert switched_off(monkeypatch, **own) == set()
    assert switched_off(monkeypatch, JUPYTER_CONFIG_PATH=ROOT / "lab", **own) == INSTRUCTORS


def test_a_student_sees_nothing_of_the_instructors(page):
    expect(page.get_by_role("button", name="Validate")).to_be_visible()
    expect(page.locator("#jp-MainMenu")).not_to_contain_text("Nbgrader")
    right_side = page.locator(".jp-SideBar.jp-mod-right")
    expect(right_side.locator("[data-id='jp-property-inspector']")).to_be_visible()
    assert right_side.locator("[data-id^='nbgrader']").count() == 0
    assert page.get_by_text(re.compile("Create Assignment|Formgrader")).count() == 0


def test_hints_unfold(page):
    hint = page.locator(".jp-Notebook details").first
    inside = hint.locator("p").first
    hint.scroll_into_view_if_needed()
    expect(inside).to_be_hidden()
    hint.locator("summary").click()
    expect(inside).to_be_visible()
    photograph(page, "hint")


def test_a_mistake_is_named_and_the_right_answer_praised(page, solutions):
    mistakes = checks.attention.task.single_mistakes
    mistake = next(wrong for wrong in mistakes if wrong.label == "the scores are not scaled")
    run(code_cell(page, "from attncourse import checks"))
    check = code_cell(page, "checks.attention(attention)")

    run(fill(page, "attention", mistake.source("attention")))
    run(check)
    output = check.locator(".jp-OutputArea-output")
    expect(output).to_have_count(2)  # the verdict, and that the cell failed
    expect(output.first).to_contain_text(f"This looks like: {mistake.label}.")
    expect(output.first.locator("td", has_text="✗").first).to_be_visible()
    expect(output.last).to_contain_text("attention: not right yet. See above.")
    expect(output.last).not_to_contain_text("Traceback")
    output.first.scroll_into_view_if_needed()
    photograph(page, "mistake")
    words = "The attention operator, “Why divide by the square root?”"
    leads_to(page, output.first.get_by_role("link", name=words).last, "why-the-scale")

    run(fill(page, "softargmax", solutions["softargmax"]))
    run(fill(page, "attention", solutions["attention"]))
    run(check)
    expect(output).to_contain_text("attention: right in all")
    expect(output).to_have_count(1)
    output.scroll_into_view_if_needed()
    photograph(page, "right")


def test_validate_lists_what_fails_and_then_says_success(page, solutions):
    mistake = checks.score_scale.task.single_mistakes[0]
    fill(page, "score_scale", mistake.source("score_scale"))
    dialog = validate(page)
    photograph(page, "validate")
    body = dialog.locator("#validation-message")
    expect(body).to_contain_text("checks.score_scale(score_scale)")
    expect(body).to_contain_text(f"This looks like: {mistake.label}.")
    expect(body).to_contain_text("single_query: not written yet.")
    # Neither what is right nor the codes for colours.
    expect(body).not_to_contain_text("checks.attention(attention)")
    assert not re.search(r"\x1b|\[\d*m", body.inner_text())
    close(dialog)

    for task, source in solutions.items():
        fill(page, task, source)
    dialog = validate(page)
    photograph(page, "success")
    expect(dialog).to_contain_text("Success! Your notebook passes all the tests.")
    close(dialog)


def test_nothing_is_asked_of_other_machines(page):
    assert page.elsewhere == []
