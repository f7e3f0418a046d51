"""Write what the passages of the book are called, for messages and for readers without the built book.

`python book/passages.py` writes `attncourse/checks/passages.json`: the title of every page, and by its label
the title of every section that has one.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PASSAGES = ROOT / "attncourse/checks/passages.json"


def written() -> str:
    """What stands in the file."""
    pages = {}
    for path in sorted(ROOT.glob("book/*.md")):
        text = path.read_text(encoding="utf-8")
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        labelled = re.findall(r"^\(([\w-]+)\)=\n#{2,} (.+)$", text, re.MULTILINE)
        sections = {label: plain(words) for label, words in labelled}
        pages[path.stem] = {"title": plain(title[1]), "sections": sections}
    return json.dumps(pages, indent=1, ensure_ascii=False) + "\n"


def plain(words: str) -> str:
    """A heading without its markup."""
    return re.sub(r"[*`]", "", words)


if __name__ == "__main__":
    PASSAGES.write_text(written(), encoding="utf-8")
