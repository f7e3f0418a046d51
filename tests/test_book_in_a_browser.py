"""The built book in a browser: it works offline, fits its screens, and everyone can read it."""

import functools
import http.server
import re
import threading

import pytest
from axe_playwright_python.sync_playwright import Axe
from bs4 import BeautifulSoup
from built_book import CHAPTERS, build, names_of_pages, program

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def served(html):
    """The address of the book on a web server of its own."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=html))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def listened_to(context):
    """A new page, and the list of what goes wrong on it."""
    page = context.new_page()
    problems = []
    page.on("console", lambda message: message.type == "error" and problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: problems.append(request.url) if leaves(request.url) else None)
    page.on("requestfailed", lambda request: problems.append(f"{request.url} {request.failure}"))
    return page, problems


def opened(context, address):
    page, problems = listened_to(context)
    page.goto(address, wait_until="load")
    return page, problems


def leaves(url):
    return not re.match(r"(file|data|blob|http://127\.0\.0\.1)[:/]", url)


# Of those that are loaded only when they come into sight nothing could be said before.
DISTORTED = """Promise.all([...document.querySelectorAll("main img")].map(async image => {
    if (!image.checkVisibility()) return "";  // that of the other theme
    image.loading = "eager";
    await image.decode().catch(() => null);
    const around = side => parseFloat(getComputedStyle(image)[`padding${side}`]);
    const width = image.clientWidth - around("Left") - around("Right");
    const height = image.clientHeight - around("Top") - around("Bottom");
    const off = Math.abs(width / height * image.naturalHeight / image.naturalWidth - 1);
    return off <= 0.02 ? "" : image.src;
})).then(all => all.filter(Boolean))"""


# What browsers report as the cumulative layout shift; they call 0.1 good.
MOVED = """new Promise(resolve => {
    let moved = 0;
    new PerformanceObserver(list => { for (const entry of list.getEntries()) moved += entry.value })
        .observe({type: "layout-shift", buffered: true});
    setTimeout(() => resolve(moved), 50);
})"""


# Wide formulas whose beginning is out of sight, and those that a line parts from their punctuation.
BROKEN = """[
    ...[...document.querySelectorAll("div.math")].filter(box =>
        box.querySelector("math").getBoundingClientRect().left < box.getBoundingClientRect().left - 1),
    ...[...document.querySelectorAll(".unbroken")].filter(part => {
        const pieces = [...part.getClientRects()];
        return pieces.length && pieces.at(-1).left < pieces[0].left;  // none where it is folded
    }),
].map(part => part.textContent)"""


TOO_WIDE = "document.documentElement.scrollWidth - window.innerWidth"


# Of all that look alike, having the same classes and styles from the page down, three are enough to look
# at, and three with more than one letter: axe does not judge single ones. What is hidden keeps its room.
HIDE_ALIKE = """{
    const seen = {};
    const alike = (part, above) => {
        const look = ["class", "style"].map(name => part.getAttribute(name));
        const own = `>${[part.localName, ...look, part.textContent.trim().length > 1]}`;
        const kind = above.includes(own) ? above : above + own;
        if (part.checkVisibility({visibilityProperty: true})) seen[kind] = (seen[kind] ?? 0) + 1;
        // In a formula it makes no difference in what a sign stands.
        const around = part.parentElement.closest("math") ? above : kind;
        const inside = [...part.children], those = inside.filter(one => alike(one, around));
        if (seen[kind] > 3 && those.length == inside.length) return true;
        for (const one of those) one.style.visibility = "hidden";
        return false;
    };
    alike(document.body, "");
}"""
COLOURS = ["color-contrast", "link-in-text-block"]


# Most of what is on a page are the coloured words of its code. Beyond three of a kind that are seen they
# become plain text, for which they stand: they have nothing that could be wrong but their colours.
JOIN_CODE = """{
    const seen = {};
    const enough = [...document.querySelectorAll("pre span:not(:has(*))")].filter(word => {
        if (word.getAttributeNames().some(name => name != "class")) return false;
        let kind = word.textContent.trim().length > 1;
        for (let part = word; part; part = part.parentElement)
            kind += `>${[part.localName, part.className, part.getAttribute("style")]}`;
        const shown = word.checkVisibility({visibilityProperty: true});
        if (shown) seen[kind] = (seen[kind] ?? 0) + 1;
        return !shown || seen[kind] > 3;
    });
    for (const word of enough) word.replaceWith(word.textContent);
    for (const code of document.querySelectorAll("pre")) {
        code.normalize();
        // The shadow that says that it scrolls: before a gradient axe judges no colour.
        code.style.backgroundImage = "none";
    }
}"""


def faults_for_readers(page, name, axe, *, colours_only=False):
    """What axe finds on a page: by the rules on colours, which take it long, of what looks alike a part."""
    page.evaluate(JOIN_CODE)
    others = {"rules": {rule: {"enabled": False} for rule in COLOURS}}
    found = [] if colours_only else [axe.run(page, options={"resultTypes": ["violations"], **others})]
    page.evaluate(HIDE_ALIKE)
    only = {"runOnly": {"type": "rule", "values": COLOURS}}
    found.append(axe.run(page, options={"resultTypes": ["violations"], **only}))
    return {f"{name} ({n})": one.generate_report() for n, one in enumerate(found) if one.violations_count}


def faults_of(page, name):
    """What is wrong with a page as it is shown: {what: how}."""
    faults = {}
    if (wide := page.evaluate(TOO_WIDE)) > 0:
        faults[f"{name} (width)"] = f"{wide} px wider than the screen"
    if broken := page.evaluate(BROKEN):
        faults[f"{name} (formulas)"] = f"{broken} broken, or cut off at their beginning"
    if distorted := page.evaluate(DISTORTED):
        faults[f"{name} (pictures)"] = f"{distorted} not in proportion"
    return faults


def visited(context, base, names):
    """Go to one page after the other; give each when it is loaded, with what is wrong with that so far."""
    page, problems = listened_to(context)
    for name in names:
        page.goto("about:blank")
        problems.clear()
        page.goto(f"{base}/{name}", wait_until="load")
        page.evaluate("document.fonts.ready.then(() => null)")
        page.evaluate(DISTORTED)  # which waits for the pictures
        faults = {f"{name} (loading)": [*problems]} if problems else {}
        if (moved := page.evaluate(MOVED)) > 0.1:
            faults[f"{name} (moves)"] = f"the text moves by {moved:.2f} while the page loads"
        yield name, page, faults


def told(faults):
    return "\n".join(f"{name}: {fault}" for name, fault in faults.items())


@pytest.mark.parametrize("part", range(4))
def test_every_page_works_offline_is_accessible_and_fits_the_screen(part, html, browser):
    axe = Axe()
    context = browser.new_context(
        viewport={"width": 1280, "height": 800}, color_scheme="light", reduced_motion="reduce"
    )
    names = names_of_pages(html)
    # Those of one template, with nothing in them but code in its colours.
    sources = [name for name in names if name.startswith("_modules/attncourse/")]
    faults = {}
    for name, page, found in visited(context, html.as_uri(), names[part::4]):
        faults |= found | faults_of(page, f"{name} at 1280")
        if name not in sources[1:]:
            faults |= faults_for_readers(page, name, axe)
        page.set_viewport_size({"width": 390, "height": 800})
        faults |= faults_of(page, f"{name} at 390")
        page.set_viewport_size({"width": 1280, "height": 800})
    context.close()
    assert not faults, told(faults)


def pages_that_show_everything(html):
    """A few pages that have between them every kind of element that is in the book.

    What is inside of interactive figures is for test_interactive.py.
    """
    kinds = {
        name: set(re.findall(r' class="((?!try-)[^"]*)"', (html / name).read_text()))
        for name in names_of_pages(html)
    }
    chosen, missing = [], set().union(*kinds.values())
    while missing:
        best = max(kinds, key=lambda name: len(kinds[name] & missing))
        chosen.append(best)
        missing -= kinds[best]
    return chosen


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 390), ("dark", 1280)])
def test_every_kind_of_page_is_accessible_in_other_colours_and_widths(scheme, width, html, browser):
    axe = Axe()
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
    )
    # In the dark a page is the same, but for its colours.
    dark = scheme == "dark"
    faults = {}
    for name, page, found in visited(context, html.as_uri(), pages_that_show_everything(html)):
        faults |= found | faults_of(page, name) | faults_for_readers(page, name, axe, colours_only=dark)
    context.close()
    assert not faults, told(faults)


def test_every_kind_of_page_works_from_a_server(html, served, browser):
    context = browser.new_context()
    faults = {}
    for _, _, found in visited(context, served, pages_that_show_everything(html)):
        faults |= found
    context.close()
    assert not faults, told(faults)


# Of each pair of figures the one that is seen, if there are two and it is loaded.
SEEN_FIGURES = """[...document.querySelectorAll("article img:is(.in-light, .in-dark)")]
    .filter(image => image.checkVisibility()).map(image => image.className)"""


@pytest.mark.parametrize(("scheme", "ground"), [("light", "#ffffff"), ("dark", "#121212")])
def test_figures_have_the_colours_of_the_theme(scheme, ground, html, browser):
    context = browser.new_context(color_scheme=scheme)
    page, problems = opened(context, f"{html.as_uri()}/book/masking.html")
    figures = page.locator("article img.in-light").count()
    assert page.evaluate(SEEN_FIGURES) == [f"in-{scheme}"] * figures
    assert figures
    # The ground on which test_plots.py measures the contrasts.
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert [int(part) for part in re.findall(r"\d+", colour)] == list(bytes.fromhex(ground[1:]))
    page.locator(f"img.in-{scheme}").last.scroll_into_view_if_needed()
    # Pictures are loaded when they come into sight.
    page.wait_for_function(f"document.querySelectorAll('img.in-{scheme}').item({figures} - 1).naturalWidth")
    assert not problems
    context.close()


# Code or a table that is wider than its box, without the shadow that says so.
UNSIGNED = """[...document.querySelectorAll("article *")].filter(box => {
    const style = getComputedStyle(box);
    return box.scrollWidth > box.clientWidth + 1 && ["auto", "scroll"].includes(style.overflowX)
        && !box.matches("div.math") && (style.backgroundImage.match(/gradient/g) ?? []).length < 4;
}).map(box => box.outerHTML.slice(0, 200))"""


def test_what_scrolls_on_a_phone_says_so(html, browser):
    context = browser.new_context(viewport={"width": 390, "height": 844})
    for name in ("book/masking.html", "book/instructors.html"):
        page, _ = opened(context, f"{html.as_uri()}/{name}")
        assert page.locator("article pre").count()
        assert page.evaluate(UNSIGNED) == [], name
        page.close()
    context.close()


LOADED_FONTS = (
    "document.fonts.ready.then(fonts => [...fonts].filter(f => f.status == 'loaded').map(f => f.family))"
)


def test_formulas_have_their_font_from_a_file_too(html, browser):
    context = browser.new_context()
    page, _ = opened(context, f"{html.as_uri()}/book/api.html")
    assert page.locator("math").count()
    assert "STIX Two Math" in page.evaluate(LOADED_FONTS)
    context.close()


@pytest.mark.parametrize("way", ["file", "http"])
def test_the_search_finds(way, html, served, browser):
    base = html.as_uri() if way == "file" else served
    context = browser.new_context()
    page, problems = opened(context, f"{base}/index.html")
    page.keyboard.press("Control+k")
    page.get_by_role("searchbox").fill("softargmax")
    page.keyboard.press("Enter")
    # One hit after the other appears.
    page.wait_for_selector('#search-results ul.search a[href*="book/attention_operator.html"]')
    assert not problems
    context.close()


# So that nothing flashes or moves when the theme's scripts arrive.
@pytest.mark.parametrize(
    ("scheme", "chosen", "theme"), [("light", "", "light"), ("dark", "", "dark"), ("light", "dark", "dark")]
)
def test_a_page_has_its_colours_without_the_scripts_of_the_theme(scheme, chosen, theme, html, browser):
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.route("**/*.js*", lambda route: route.abort())
    page.goto(f"{html.as_uri()}/index.html")
    if chosen:
        page.evaluate("theme => { localStorage.mode = localStorage.theme = theme }", chosen)
        page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    context.close()


def test_a_page_has_colours_in_a_browser_without_scripts(html, browser):
    context = browser.new_context(java_script_enabled=False)
    page, _ = opened(context, f"{html.as_uri()}/book/students.html")
    code = page.locator("article code").first
    assert code.evaluate("code => getComputedStyle(code).backgroundColor") != "rgba(0, 0, 0, 0)"
    context.close()


def test_the_theme_can_be_switched(html, browser):
    context = browser.new_context(color_scheme="light")
    page, _ = opened(context, f"{html.as_uri()}/index.html")
    themes = set()
    for _ in range(3):
        page.locator(".theme-switch-button:visible").click()
        themes.add(page.evaluate("document.documentElement.dataset.theme"))
    assert themes == {"light", "dark"}
    context.close()


# Where the first picture or figure to try ends that is seen at all.
FIRST_PICTURE = """[...document.querySelectorAll("article :is(figure img, .try)")]
    .find(picture => picture.checkVisibility()).getBoundingClientRect().bottom"""


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_a_chapter_shows_its_idea_on_the_first_screen(width, height, html, browser):
    context = browser.new_context(viewport={"width": width, "height": height})
    for chapter in CHAPTERS:
        page, _ = opened(context, f"{html.as_uri()}/book/{chapter}.html")
        assert page.evaluate(FIRST_PICTURE) <= height, chapter
        page.close()
    page, _ = opened(context, f"{html.as_uri()}/index.html")
    card = page.locator(".unit img").first.bounding_box()
    assert card["y"] + card["height"] <= height, card
    context.close()


# The book on paper


@pytest.fixture(scope="session")
def one_page(html):
    """The whole book as one HTML page, in the folder of the other pages' build."""
    status, log, folder = build("singlehtml")
    assert status == 0, log
    return folder / "singlehtml/index.html"


CUT_OFF = """
[...document.querySelectorAll("article :is(pre, table, img, math, figure, svg, p, li, dt)")].filter(part => {
    const box = part.getBoundingClientRect();
    return box.width && (box.right > innerWidth + 1 || part.scrollWidth > part.clientWidth + 1
        && getComputedStyle(part).overflowX != "visible");
}).map(part => part.outerHTML.slice(0, 300))
"""


def test_the_book_prints_whole(one_page, html, browser, tmp_path):
    pdf = program("pdf")
    page = pdf.open_book(browser, one_page)
    figures = page.locator("article img")
    soups = [BeautifulSoup((html / name).read_text(), "html.parser") for name in names_of_pages(html)]
    assert figures.count() == sum(len(soup.select("article img:not(.in-dark)")) for soup in soups)
    assert figures.evaluate_all("images => images.every(image => image.complete && image.naturalWidth)")
    # As wide as the paper between its margins; 96 px are an inch, 25.4 mm.
    page.set_viewport_size({"width": int((210 - 2 * 17) / 25.4 * 96 / pdf.PAPER["scale"]), "height": 1000})
    page.emulate_media(media="print")
    assert page.evaluate(CUT_OFF) == []
    page.pdf(path=tmp_path / "book.pdf", **pdf.PAPER)
    page.close()
    assert len(re.findall(rb"/Type /Page\b", (tmp_path / "book.pdf").read_bytes())) > 100
