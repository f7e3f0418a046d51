"""What the formgrader's pages may load and run, as browsers are told by a Content-Security-Policy."""

import base64
import hashlib
import re
from pathlib import Path

from jupyter_core.paths import jupyter_config_path

# Where Jupyter is told to load formgrader.py, beside which it stands in the package.
SWITCH = "jupyter_server_config.d/attncourse.json"

NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'"


def formgrader(nonce: str, page: str) -> str:
    """The policy of a page that runs scripts with this nonce, and what stands in its `on...` attributes.

    Parameters
    ----------
    nonce : str
    page : str
        HTML in which nobody but nbgrader has written a tag.
    """
    allowed = re.findall(r"<script[^>]*>(.+?)</script>", page, flags=re.DOTALL)
    allowed += re.findall(r'\son\w+="([^"]*)"', page, flags=re.IGNORECASE)
    hashes = " ".join(f"'sha256-{_sha256(text)}'" for text in allowed if "{{" not in text)
    return (
        f"{NOTHING}; style-src 'unsafe-inline' 'self'; img-src data: 'self'; font-src 'self'; "
        f"connect-src 'self'; script-src 'nonce-{nonce}' 'unsafe-hashes' {hashes}"
    )


def is_in_force() -> bool:
    """Whether a Jupyter server of this environment guards the formgrader at all."""
    return any((Path(folder) / SWITCH).is_file() for folder in jupyter_config_path())


def with_nonce(nonce: str, page: str) -> str:
    """The page, whose scripts carry the nonce."""
    return page.replace("<script", f'<script nonce="{nonce}"')


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
