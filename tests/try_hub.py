"""The course on a real JupyterHub, from the release of an exercise to a student's feedback.

As the page *On a hub* says it, with nbgrader's exchange. Everybody is called jovyan, as in Jupyter's
container images: here by bubblewrap, which gives the student's server an ``/etc/passwd`` of its own. It is
no test of pytest: it needs bubblewrap, ``pip install jupyterhub`` and
``npm install -g configurable-http-proxy``::

    python tests/try_hub.py
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNIT = "attention_operator"
TEACHER, STUDENT = "teacher", "student-01"
TOKEN = "a-token-of-this-trial"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


HUB, PORT, PROXY = f"http://127.0.0.1:{free_port()}", free_port(), f"http://127.0.0.1:{free_port()}"

FOR_EVERYONE = """
c = get_config()
c.Exchange.root = {exchange!r}
c.CourseDirectory.course_id = "attncourse"
"""

CONFIG = """
import os, sys

c = get_config()
c.JupyterHub.bind_url = {hub!r}
c.JupyterHub.hub_port = {port}
c.ConfigurableHTTPProxy.api_url = {proxy!r}
c.JupyterHub.db_url = "sqlite:///{work}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{work}/cookies"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = "{work}/{{username}}"
as_jovyan = ["bwrap", "--dev-bind", "/", "/", "--bind", "{work}/passwd", "/etc/passwd"]
c.Spawner.cmd = [*as_jovyan, sys.executable, "-m", "jupyterhub.singleuser", "--allow-root"]
c.Spawner.environment = {{"JUPYTER_CONFIG_PATH": "{work}/etc", "PATH": os.environ["PATH"]}}
c.Spawner.http_timeout = c.Spawner.start_timeout = 300
c.JupyterHub.services = [{{"name": "trial", "api_token": {token!r}}}]
c.JupyterHub.load_roles = [{{
    "name": "trial", "services": ["trial"], "scopes": ["admin:users", "admin:servers", "access:servers"],
}}]
"""


def ask(path, data=None):
    """What the hub, or somebody's server, answers."""
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(f"{HUB}{path}", body, {"Authorization": f"token {TOKEN}"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read() or b"null")


def until(condition):
    for _ in range(600):
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(1)
    raise TimeoutError("the hub does not answer")


def as_teacher(work, *command):
    """A command in the teacher's terminal, in the folder of the course."""
    print("$", *command, flush=True)
    environment = {**os.environ, "HOME": f"{work}/{TEACHER}", "JUPYTER_CONFIG_PATH": f"{work}/etc"}
    subprocess.run(command, cwd=work / TEACHER / "course", env=environment, check=True)


def prepare(work):
    """The folders of the exchange, of everybody's settings and of the two people."""
    (work / "exchange").mkdir()
    (work / "exchange").chmod(0o777)
    (work / "etc").mkdir()
    settings = FOR_EVERYONE.format(exchange=str(work / "exchange"))
    (work / "etc/nbgrader_config.py").write_text(settings)
    (work / "passwd").write_text(f"jovyan:x:{os.getuid()}:{os.getgid()}::{work}:/bin/sh\n")
    course = work / TEACHER / "course"
    shutil.copytree(ROOT / "solutions" / UNIT, course / "solutions" / UNIT)
    shutil.copy(ROOT / "nbgrader_config.py", course)
    (work / STUDENT).mkdir()


def solve(path):
    """Answer the first task, as its solution does."""
    release = json.loads(path.read_text())
    solved = json.loads((ROOT / f"solutions/{UNIT}/{UNIT}.ipynb").read_text())
    cells = {cell["id"]: cell for cell in solved["cells"]}
    first = next(cell for cell in release["cells"] if cell["metadata"].get("nbgrader", {}).get("solution"))
    first["source"] = cells[first["id"]]["source"]
    path.write_text(json.dumps(release))


def trial(work):
    prepare(work)
    python = sys.executable
    os.environ["PATH"] = f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    (work / "hub.py").write_text(CONFIG.format(work=work, hub=HUB, port=PORT, proxy=PROXY, token=TOKEN))
    with (work / "hub.log").open("w") as log:
        hub = subprocess.Popen(
            [python, "-m", "jupyterhub", "-f", work / "hub.py"], cwd=work, stdout=log, stderr=log
        )
    try:
        until(lambda: ask("/hub/api/"))
        ask(f"/hub/api/users/{STUDENT}", {})
        ask(f"/hub/api/users/{STUDENT}/server", {})
        until(lambda: ask(f"/hub/api/users/{STUDENT}")["servers"][""]["ready"])
        as_teacher(work, python, "-m", "attncourse.grading", "release", UNIT)
        as_teacher(work, "nbgrader", "release_assignment", UNIT)
        which = {"assignment_id": UNIT, "course_id": "attncourse"}
        ask(f"/user/{STUDENT}/assignments/fetch", which)
        notebook = work / STUDENT / UNIT / f"{UNIT}.ipynb"
        solve(notebook)
        ask(f"/user/{STUDENT}/assignments/submit", which)
        as_teacher(work, "nbgrader", "collect", UNIT)
        as_teacher(work, python, "-m", "attncourse.grading", UNIT, *sys.argv[1:])
        as_teacher(work, "nbgrader", "release_feedback", UNIT)
        ask(f"/user/{STUDENT}/assignments/fetch_feedback", which)
        (page,) = (work / STUDENT / UNIT / "feedback").glob(f"*/{UNIT}.html")
        text = " ".join(re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8")).split())
        assert f"{STUDENT}: 2 of" in text, text[:2000]
        print(f"The student has {page.relative_to(work)}, with the points of one right answer.")
    except Exception:
        print((work / "hub.log").read_text()[-5000:])
        raise
    finally:
        hub.terminate()
        hub.wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        trial(Path(folder))
