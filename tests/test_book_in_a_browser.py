"""The built book in a browser: it works offline, fits its screens, and everyone can read it."""

import functools
import http.server
import re
import threading

import pytest
from axe_playwright_python.base import AxeResults
from axe_playwright_python.sync_playwright import Axe
from built_book import CHAPTERS, LEFT_OUT, build, names_of_pages, program

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
    # Those of a page that is left meanwhile, as for a picture that comes into sight, the browser gives up.
    page.on("requestfailed", lambda request: None if given_up(request) else problems.append(request.url))
    return page, problems


def given_up(request):
    return request.failure == "net::ERR_ABORTED"


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


# Three parts of a kind are enough to look at, on whatever pages: `seen` is how many there were so far, as
# JSON. On a page those are of a kind that have the same classes and styles from the page down, and one
# letter or more: axe does not judge single ones. On another page they have the same colours, too.
KINDS = """
    const {looks, times} = JSON.parse(seen), here = new Map();
    const kindOf = (part, above) => {
        const style = part.getAttribute("style"), more = part.textContent.trim().length > 1;
        const own = [part.localName, part.getAttribute("class"), style, more].join();
        const place = `${above} ${own}`;
        if (!here.has(place)) {
            const {color, backgroundColor, fontSize, fontWeight, opacity} = getComputedStyle(part);
            const all = [own, color, backgroundColor, fontSize, fontWeight, opacity].join();
            const look = `>${looks[all] ??= Object.keys(looks).length}`;
            here.set(place, `${above}>`.includes(`${look}>`) ? above : above + look);
        }
        return here.get(place);
    };
    // What is not seen axe does not judge.
    const enough = (part, kind) =>
        !part.checkVisibility({visibilityProperty: true}) || (times[kind] = (times[kind] ?? 0) + 1) > 3;
"""
NONE = '{"looks": {}, "times": {}}'


# Most of what is on a page are the coloured words of its code. Beyond three of a kind that are seen they
# become plain text, for which they stand: they have nothing that could be wrong but their colours.
JOIN_CODE = f"""seen => {{{KINDS}
    const known = new Map();
    const kindFromPage = part => {{
        if (!part) return "code";
        if (!known.has(part)) known.set(part, kindOf(part, kindFromPage(part.parentElement)));
        return known.get(part);
    }};
    const joined = [...document.querySelectorAll("pre span:not(:has(*))")].filter(word => {{
        if (word.getAttributeNames().some(name => name != "class")) return false;
        return enough(word, kindFromPage(word));
    }});
    for (const word of joined) word.replaceWith(word.textContent);
    for (const code of document.querySelectorAll("pre")) {{
        code.normalize();
        // The shadow that says that it scrolls: before a gradient axe judges no colour.
        code.style.backgroundImage = "none";
    }}
    return JSON.stringify({{looks, times}});
}}"""


# What is hidden keeps its room, but not what is in it: each element takes axe time, seen or not.
HIDE_ALIKE = f"""seen => {{{KINDS}
    const hidden = [];
    const alike = (part, above) => {{
        const kind = kindOf(part, above);
        const known = enough(part, kind);
        // In a formula it makes no difference in what a sign stands.
        const around = part.parentElement.closest("math") ? above : kind;
        const inside = [...part.children], those = inside.filter(one => alike(one, around));
        if (known && those.length == inside.length) return true;
        hidden.push(...those);
        return false;
    }};
    alike(document.body, "");
    const rooms = hidden.map(part => [part.getBoundingClientRect(), getComputedStyle(part).display]);
    hidden.forEach((part, n) => {{
        const [room, display] = rooms[n];
        part.style.visibility = "hidden";
        if (!part.childElementCount) return;
        part.replaceChildren();
        if (["inline", "math"].includes(display)) part.style.display = "inline-block";
        part.style.minWidth = `${{room.width}}px`;
        part.style.minHeight = `${{room.height}}px`;
    }});
    return JSON.stringify({{looks, times}});
}}"""
COLOURS = ["color-contrast", "link-in-text-block"]


def ready_for_axe(page, axe, seen):
    """Put axe on a page; give what is seen of its code."""
    page.evaluate(axe.axe_script)
    return page.evaluate(JOIN_CODE, seen)


def faults_for_readers(page, name):
    """What axe finds on a page, but by the rules on colours."""
    return judged(page, name, {"rules": {rule: {"enabled": False} for rule in COLOURS}})


def faults_of_colours(page, name, seen):
    """What axe finds by the rules on colours, which take it long, in what was not `seen`; what is seen now.

    The page has little in it afterwards.
    """
    seen = page.evaluate(HIDE_ALIKE, seen)
    return judged(page, f"{name} (colours)", {"runOnly": {"type": "rule", "values": COLOURS}}), seen


def judged(page, name, rules):
    # What axe would load beforehand is styles, which from a file it cannot.
    options = {"resultTypes": ["violations"], "preload": False, **rules}
    found = AxeResults(page.evaluate("options => axe.run(options)", options))
    return {name: found.generate_report()} if found.violations_count else {}


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


# Where the first picture or figure to try ends that is seen at all.
FIRST_PICTURE = """[...document.querySelectorAll("article :is(figure img, .try, .unit img)")]
    .find(picture => picture.checkVisibility()).getBoundingClientRect().bottom"""
SHOW_THEIR_IDEA = ["index.html", *(f"book/{chapter}.html" for chapter in CHAPTERS)]


def fault_of_idea(page, name, height):
    """Whether a chapter, or the first page, shows its first picture on the first screen."""
    end = page.evaluate(FIRST_PICTURE) if name in SHOW_THEIR_IDEA else 0
    return {f"{name} (idea)": f"its first picture ends {end:.0f} px down"} if end > height else {}


# So that processes share them; each has to look at all kinds anew.
PARTS = 2


def pages_to_look_at(html):
    """All pages but those of the package's source, which have code in one template: of these the first."""
    names = names_of_pages(html)
    sources = [name for name in names if name.startswith("_modules/attncourse/")]
    return [name for name in names if name not in sources[1:]]


@pytest.mark.parametrize("part", range(PARTS))
def test_every_page_works_offline_is_accessible_fits_the_screen_and_shows_its_idea(part, html, browser):
    axe = Axe()
    context = browser.new_context(
        viewport={"width": 1280, "height": 800}, color_scheme="light", reduced_motion="reduce"
    )
    faults, seen = {}, NONE
    for name, page, found in visited(context, html.as_uri(), pages_to_look_at(html)[part::PARTS]):
        faults |= found | faults_of(page, f"{name} at 1280") | fault_of_idea(page, name, 800)
        seen = ready_for_axe(page, axe, seen)
        faults |= faults_for_readers(page, name)
        page.set_viewport_size({"width": 390, "height": 844})
        faults |= faults_of(page, f"{name} at 390") | fault_of_idea(page, name, 844)
        page.set_viewport_size({"width": 1280, "height": 800})
        more, seen = faults_of_colours(page, name, seen)
        faults |= more
    context.close()
    assert not faults, told(faults)


MADE = """<!doctype html><html lang="en"><title>Made</title><main><h1>Made</h1>{}</main></html>"""
ALIKE = '<p class="note">Some words with <em>some more</em> and <code>code</code></p>' * 8
SPOILT = {
    "a new kind": ("", '<p class="new" style="color: #aaa">Pale</p>'),
    "an old kind in another style": ("", '<p class="note" style="color: #aaa">Pale</p>'),
    "an old kind in a new place": ("", '<div style="background: #333"><p class="note">Pale</p></div>'),
    "an old kind in another sheet of styles": ("<style>em { color: #aaa }</style>", ""),
    "what is in an old kind": ("", '<p class="note">Some <b style="color: #aaa">words</b></p>'),
    "a new kind of code": ("", '<pre>a <span class="new" style="color: #aaa">word</span></pre>'),
    "an old kind of code": ("<style>.k { color: #aaa }</style>", '<pre><span class="k">word</span></pre>'),
    "what code is in": ("<style>pre { color: #aaa }</style>", '<pre><span class="k">word</span></pre>'),
}


def test_colours_are_judged_of_what_was_not_seen(browser):
    axe, page, seen = Axe(), browser.new_page(), NONE
    code = '<pre>a <span class="k">word</span></pre>' * 5
    for name, (head, pale) in {"first": ("", ""), "alike": ("", ""), **SPOILT}.items():
        page.set_content(MADE.format(head + ALIKE + code + pale))
        room = page.evaluate("document.body.scrollHeight")
        seen = ready_for_axe(page, axe, seen)
        faults, after = faults_of_colours(page, name, seen)
        assert bool(faults) == (name in SPOILT), (name, faults)
        assert page.evaluate("document.body.scrollHeight") == room
        if name == "first":
            seen = after
        if name == "alike":  # so that such a page is judged in a moment
            assert page.locator("em").count() == 0
    page.close()


def pages_that_show_everything(html, without=""):
    """A few pages that have between them every kind of element that is in the book.

    What a pattern matches is left out. What is inside of interactive figures is for
    test_interactive.py.
    """
    texts = {name: (html / name).read_text() for name in names_of_pages(html)}
    if without:
        texts = {name: re.sub(without, "", text, flags=re.DOTALL) for name, text in texts.items()}
    kinds = {name: set(re.findall(r' class="((?!try-)[^"]*)"', text)) for name, text in texts.items()}
    chosen, missing = [], set().union(*kinds.values())
    while missing:
        best = max(kinds, key=lambda name: (len(kinds[name] & missing), -len(texts[name])))
        chosen.append(best)
        missing -= kinds[best]
    return chosen


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 390), ("dark", 1280)])
def test_every_kind_of_page_is_accessible_in_other_colours_and_widths(scheme, width, html, browser):
    axe = Axe()
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
    )
    names = pages_that_show_everything(html)
    # What is in an article has the same colours whatever the width, what is around it is another there.
    coloured = names if width > 390 else pages_that_show_everything(html, "<article.*</article>")
    # In the dark a page is the same, but for its colours.
    looked_at = coloured if scheme == "dark" else {*names, *coloured}
    faults, seen = {}, NONE
    for name, page, found in visited(context, html.as_uri(), sorted(looked_at)):
        faults |= found | faults_of(page, name)
        seen_of_code = ready_for_axe(page, axe, seen)
        if scheme != "dark":
            faults |= faults_for_readers(page, name)
        if name in coloured:
            more, seen = faults_of_colours(page, name, seen_of_code)
            faults |= more
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


@pytest.mark.parametrize("unit", ["masking"])
@pytest.mark.parametrize(("scheme", "ground"), [("light", "#ffffff"), ("dark", "#121212")])
def test_figures_have_the_colours_of_the_theme(unit, scheme, ground, html, browser):
    context = browser.new_context(color_scheme=scheme)
    page, problems = opened(context, f"{html.as_uri()}/book/{unit}.html")
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
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="light")
    for name in ("masking", "scaling", "your_model", "instructors"):
        if name in LEFT_OUT:
            continue
        page, _ = opened(context, f"{html.as_uri()}/book/{name}.html")
        assert page.locator("article pre").count()
        for theme in ("light", "dark"):
            page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
            assert page.evaluate(UNSIGNED) == [], (name, theme)
        page.close()
    context.close()


WIDE = '[...document.querySelectorAll("div.math")].filter(box => box.scrollWidth > box.clientWidth)'


@pytest.mark.parametrize("unit", ["words"])
def test_a_wide_formula_is_reached_by_keyboard_however_the_window_changes(unit, html, browser):
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page, _ = opened(context, f"{html.as_uri()}/book/{unit}.html")
    found = []
    for width in (390, 1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        # The theme moves its columns for a while, frame by frame.
        page.wait_for_function(f"{WIDE}.every(box => box.tabIndex == 0)", timeout=10_000)
        found.append(page.evaluate(f"{WIDE}.length"))
    assert found[0] > found[1]
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


@pytest.mark.parametrize(("unit", "word"), [("attention_operator", "softargmax")])
@pytest.mark.parametrize("way", ["file", "http"])
def test_the_search_finds(way, unit, word, html, served, browser):
    base = html.as_uri() if way == "file" else served
    context = browser.new_context()
    page, problems = opened(context, f"{base}/index.html")
    page.keyboard.press("Control+k")
    page.get_by_role("searchbox").fill(word)
    page.keyboard.press("Enter")
    # One hit after the other appears.
    page.wait_for_selector(f'#search-results ul.search a[href*="book/{unit}.html"]')
    assert not problems
    context.close()


# So that nothing flashes or moves when the theme's scripts arrive.
@pytest.mark.parametrize(
    ("scheme", "chosen", "theme"), [("light", "", "light"), ("dark", "", "dark"), ("light", "dark", "dark")]
)
def test_a_page_has_its_colours_without_the_scripts_of_the_theme(scheme, chosen, theme, html, browser):
    context = browser.new_context(color_scheme=scheme)
    if chosen:  # on an earlier page
        context.add_init_script(f"localStorage.mode = localStorage.theme = {chosen!r}")
    page = context.new_page()
    page.route("**/*.js*", lambda route: route.abort())
    page.goto(f"{html.as_uri()}/index.html")
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


HEIGHT = "document.querySelector('article').scrollHeight"
LEAVE_ONE_CHAPTER = """[...document.querySelectorAll("article > section > .toctree-wrapper > section")]
    .slice(1).forEach(chapter => chapter.remove())"""


def test_the_book_prints_whole(one_page, html, browser, tmp_path):
    pdf = program("pdf")
    page = pdf.open_book(browser, one_page)
    figures = page.locator("article img")
    images = [
        image
        for name in names_of_pages(html)
        for image in re.findall("<img [^>]*>", (html / name).read_text())
    ]
    assert figures.count() == sum("in-dark" not in image for image in images)
    assert figures.evaluate_all("images => images.every(image => image.complete && image.naturalWidth)")
    # As wide as the paper between its margins; 96 px are an inch, 25.4 mm.
    page.set_viewport_size({"width": int((210 - 2 * 17) / 25.4 * 96 / pdf.PAPER["scale"]), "height": 1000})
    page.emulate_media(media="print")
    assert page.evaluate(CUT_OFF) == []
    # To print all of it takes long: of its length one chapter, which is printed, has the share of its height.
    height = page.evaluate(HEIGHT)
    page.evaluate(LEAVE_ONE_CHAPTER)
    page.pdf(path=tmp_path / "chapter.pdf", **pdf.PAPER)
    share = page.evaluate(HEIGHT) / height
    page.close()
    pages = len(re.findall(rb"/Type /Page\b", (tmp_path / "chapter.pdf").read_bytes()))
    assert pages > 4
    units = sum(name.startswith("exercises/") for name in names_of_pages(html))
    assert pages / share > 30 * units > 0
