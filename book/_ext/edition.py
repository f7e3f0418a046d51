"""An edition of the book: the units that are taught, under the title, authors and logo of ``course.toml``.

``make book UNITS="attention_operator masking"``, or a line ``units`` in ``course.toml``, leaves out the
chapters and exercises of all other units, with their cards and with the ways through the whole course. A link
to what is left out becomes plain text.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.errors import ConfigError
from sphinx.transforms import SphinxTransform

# The ways through the course, whose hours and chapters are those of all units.
WAYS = "book/paths"
# What a unit's links stand in on the front page, and what is true of the whole course only.
CARD, WHOLE = "unit", "whole-course"


def use_the_rules(app: Sphinx, config) -> None:
    """Take from ``course.toml`` what it says about the book, and leave out what is not taught."""
    site = getattr(config, "external_site_map", None)
    if site is None:  # a book without a table of contents
        return
    folder = Path(app.srcdir)
    if not (folder / "course.toml").exists() and "UNITS" not in os.environ:
        return
    from attncourse.grading import rules  # with PyTorch: two seconds

    units = [PurePosixPath(name).name for name in site if name.startswith("exercises/")]
    try:
        said, taught = rules.read(folder), rules.taught(folder, units)
    except rules.Unusable as reason:
        raise ConfigError(str(reason)) from None
    if said.title:
        config.project = config.html_title = said.title
    if said.authors:
        config.copyright += f"; this edition: {said.authors}"
        config.author = said.authors
    if said.logo:
        config.html_logo = said.logo
    if said.book:
        config.html_baseurl = said.book
    config.left_out = [name for one in units if one not in taught for name in _pages(one)]
    if config.left_out:
        config.left_out.append(WAYS)
        config.exclude_patterns = [*config.exclude_patterns, *(f"{name}.*" for name in config.left_out)]
        for page in site.values():
            for tree in page.subtrees:
                tree.items = [name for name in tree.items if name not in config.left_out]
                # "The core: 15 hours" are those of all its units.
                tree.caption = tree.caption and tree.caption.partition(":")[0]
            page.subtrees = [tree for tree in page.subtrees if tree.items]
        for name in config.left_out:
            del site[name]


def _pages(unit: str) -> tuple[str, str]:
    return f"book/{unit}", f"exercises/{unit}/{unit}"


class NameTheBook(SphinxTransform):
    """The front page is called as the book is."""

    default_priority = 200

    def apply(self) -> None:
        if self.env.docname == self.config.root_doc and getattr(self.config, "external_site_map", None):
            title = next(self.document.findall(nodes.title))
            title.children = []
            title += nodes.Text(self.config.html_title)


class LeaveOut(SphinxTransform):
    """Take away the cards, and the links, that lead to what is left out."""

    default_priority = 200

    def apply(self) -> None:
        if not self.config.left_out:
            return
        for whole in list(self.document.findall(lambda node: _is(node, WHOLE))):
            whole.parent.remove(whole)
        for link in list(self.document.findall(pending_xref)):
            name = link["reftarget"]
            if link.get("refdomain") != "doc" or name not in self.config.left_out:
                continue
            card = next((one for one in _ancestors(link) if _is(one, CARD)), None)
            if card is not None:
                if card in card.parent:  # not with an earlier link
                    card.parent.remove(card)
            elif name == WAYS:
                without_sentence(link)
            else:
                link.replace_self(list(link.findall(nodes.Text)))


def _is(node: nodes.Node, name: str) -> bool:
    return isinstance(node, nodes.container) and name in node["classes"]


def _ancestors(node: nodes.Node) -> Iterator[nodes.Node]:
    while node.parent is not None:
        node = node.parent
        yield node


def without_sentence(link: nodes.Element) -> None:
    """Take the sentence out of a paragraph in which a link stands."""
    paragraph = link.parent
    place = paragraph.index(link)
    before, after = paragraph.children[:place], paragraph.children[place + 1 :]
    while before:
        head, dot, _ = before.pop().astext().rpartition(". ")
        if dot:
            before.append(nodes.Text(f"{head}."))
            break
    while after:
        found = re.match(r".*?\.(?=\s|$)(.*)", after.pop(0).astext(), re.DOTALL)
        if found:
            after.insert(0, nodes.Text(found[1]))
            break
    paragraph.children = []
    paragraph.extend([*before, *after])
    if not paragraph.astext().strip():
        paragraph.parent.remove(paragraph)


def remove_what_is_left_out(app: Sphinx, exception: Exception | None) -> None:
    """Remove the pages of an earlier build of more units."""
    for name in () if exception else app.config.left_out:
        for path in Path(app.outdir).glob(f"{name}.html"):
            path.unlink()
        for path in Path(app.outdir, "_sources").glob(f"{name}.*"):
            path.unlink()


def setup(app: Sphinx) -> None:
    app.add_config_value("left_out", [], "env")
    app.connect("config-inited", use_the_rules, priority=950)  # after the table of contents is read
    app.add_transform(NameTheBook)
    app.add_transform(LeaveOut)
    app.connect("build-finished", remove_what_is_left_out)
