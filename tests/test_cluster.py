"""A class is graded by many processes and machines, which hang, die and are cut off from each other.

The course is one without kernels (see quick_course.py): what is tested is everything around them.
"""

import contextlib
import csv
import gc
import html
import io
import itertools
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from commands import Command
from nbgrader.apps import NbGraderApp
from quick_course import (
    MARKS,
    RIGHT,
    UNIT,
    WRONG,
    all_marks,
    enter,
    environment,
    everything,
    gradebook_of,
    hand_in,
    new_course,
    one_by_one,
    source,
    without_kernels,
)
from sqlalchemy import Engine, event
from traitlets.config import Config

from attncourse.grading import __main__ as grading
from attncourse.grading import autograding, cluster, policy
from attncourse.grading import job as jobs
from attncourse.grading.__main__ import main

pytestmark = pytest.mark.slow

WRONG_MARKS = {**MARKS, "check_double": 0.0}
COMMAND = (sys.executable, "-m", "attncourse.grading")


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A new course, which is the current folder, and is graded in this process by `here`."""
    monkeypatch.chdir(tmp_path)
    return new_course(tmp_path)


@pytest.fixture
def here(monkeypatch):
    """Submissions are graded in this process: nothing has to be started."""
    monkeypatch.setattr(grading, "on_this_machine", one_by_one)
    return lambda *arguments: main(arguments)


def graders_of(process):
    """The processes that grade for this one: the nursery's children but for the zygote."""
    nurseries = psutil.Process(process.pid).children()
    return [
        one
        for nursery in nurseries
        for one in nursery.children()
        if "attncourse.grading.kernels.zygote" not in one.cmdline()
    ]


def begin(course, *arguments):
    return Command(without_kernels, course, *arguments, environment=environment())


def run(course, *arguments):
    return begin(course, *arguments).ended()


def summary(course):
    """What a run leaves, by content."""
    files = {
        str(path.relative_to(course)): path.read_bytes()
        for step in ("autograded", "feedback")
        for path in (course / step).rglob("*")
        if path.is_file()
    }
    return everything(course), files


# --- a run that ends at any moment ---


def killed_at(moment, course, command):
    """Run the command in a copy of this process, killed at its so-manieth write; whether it was."""
    child = os.fork()
    if child == 0:
        try:
            sys.stdout = sys.stderr = io.StringIO()
            moments = itertools.count()

            def write(*_):
                if next(moments) == moment:
                    os.kill(os.getpid(), signal.SIGKILL)

            def audit(name, arguments):
                writing = name in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod")
                writing = writing or (name == "open" and "w" in str(arguments[1]))
                if writing and str(arguments[0]).startswith((f"{course}/autograded", f"{course}/feedback")):
                    write()

            sys.addaudithook(audit)
            event.listen(Engine, "commit", write)
            command()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def known_by_now(known):
    """What grades in this process, and notes what came of it: copies of this process need not do it again."""

    def grade(work, *_):
        for submission, unit, job in work:
            asked = pickle.dumps((unit.name, job))
            if asked not in known:
                known[asked] = autograding.outcome(unit, job)
            yield submission, unit, job, known[asked]

    return grade


def test_a_run_may_be_killed_at_any_moment(course, here, monkeypatch):
    monkeypatch.setattr(grading, "on_this_machine", known_by_now({}))
    for student in ("ada", "ben"):
        hand_in(course, student, WRONG)
    assert here() == 0
    before = summary(course)
    for student in ("ada", "ben"):
        hand_in(course, student, RIGHT)
    undisturbed = course / "undisturbed"
    for name in ("solutions", "submitted", "autograded", "feedback"):
        shutil.copytree(course / name, undisturbed / name)
    for name in ("nbgrader_config.py", "gradebook.db"):
        shutil.copy(course / name, undisturbed)
    os.chdir(undisturbed)
    assert here() == 0
    after = summary(undisturbed)
    os.chdir(course)
    assert all_marks(course) == dict.fromkeys(("ada", "ben"), WRONG_MARKS)
    assert all_marks(undisturbed) == dict.fromkeys(("ada", "ben"), MARKS)

    moments = itertools.count(0, 3)
    kills = 0
    while killed_at(next(moments), course, here):
        kills += 1
        rows, files = summary(course)
        for student in ("ada", "ben"):
            # A notebook in its place stands for everything else.
            notebook = f"autograded/{student}/{UNIT}/{UNIT}.ipynb"
            if notebook in files:
                rows_then, files_then = before if files[notebook] == before[1][notebook] else after
                assert rows[student] == rows_then[student], (kills, student)
                own = {name for name in files_then if f"/{student}/" in name}
                found = {name: files[name] for name in own if name in files}
                assert found == {name: files_then[name] for name in found}
                # The page of feedback comes last; no run leaves an old one.
                assert all(name.startswith("feedback") for name in own - found.keys())
    assert kills >= 8
    assert summary(course) == after


def test_the_class_goes_on_where_it_was_killed(course):
    students = [f"student-{number}" for number in range(8)]
    for student in students:
        hand_in(course, student, {**RIGHT, "add": f"import time\ntime.sleep(0.2)\n{RIGHT['add']}"})
    first = begin(course, "--workers", "2")
    first.wait_until_it_says("[2/8]")
    family = psutil.Process(first.pid).children(recursive=True)
    first.kill()
    first.ended()
    # Nothing of it stays: neither its workers nor their graders.
    assert psutil.wait_procs(family, timeout=60)[1] == []
    done = {path.parts[-3]: path.stat().st_mtime_ns for path in course.glob("autograded/*/*/*.ipynb")}
    assert 2 <= len(done) < 8

    second = run(course, "--workers", "2")
    assert (second.returncode, second.stderr) == (0, "")
    assert f"{8 - len(done)} of 8 submissions to grade, {len(done)} unchanged" in second.stdout
    assert all_marks(course) == dict.fromkeys(students, MARKS)
    for student, written in done.items():
        assert (course / "autograded" / student / UNIT / f"{UNIT}.ipynb").stat().st_mtime_ns == written


def test_ctrl_c_ends_everything_and_says_how_to_go_on(course):
    for number in range(4):
        hand_in(course, f"student-{number}", {**RIGHT, "add": "import time\ntime.sleep(600)"})
    with subprocess.Popen(
        [*COMMAND, "--workers", "2"],
        cwd=course,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell lets what it starts in the background ignore Ctrl-C, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert "4 of 4" in process.stdout.readline()
        family = []
        while len(graders_of(process)) < 2:
            time.sleep(0.1)
        family = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        errors = process.stderr.read()
        assert process.wait() == 130
    assert errors == "\nInterrupted. Run the same command again to go on.\n"
    assert psutil.wait_procs(family, timeout=60)[1] == []
    assert not (course / "autograded").exists()


def test_a_run_on_this_machine_listens_to_no_network_and_a_killed_nursery_is_replaced(course):
    students = [f"student-{number}" for number in range(6)]
    for student in students:
        hand_in(course, student, {**RIGHT, "add": f"import time\ntime.sleep(1)\n{RIGHT['add']}"})
    said = course / "said"
    first, open_to_others, killed = Counter(), [], []
    with (
        open(said, "w") as file,
        subprocess.Popen(
            [*COMMAND, "--workers", "2"], cwd=course, env=environment(PYTHONUNBUFFERED="1"), stdout=file
        ) as process,
    ):
        run = psutil.Process(process.pid)
        while process.poll() is None:
            for one in [run, *run.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    # What is connected was listened for.
                    open_to_others += one.net_connections("inet")
            if not killed:
                with contextlib.suppress(psutil.NoSuchProcess):
                    first.update(graders_of(process))
                if "[2/6]" in said.read_text():
                    [nursery] = run.children()
                    killed = [nursery, *nursery.children(recursive=True)]
                    for one in killed:
                        one.kill()
            time.sleep(0.5)
    assert process.returncode == 0, said.read_text()
    assert all_marks(course) == dict.fromkeys(students, MARKS)
    # The zygote looks like a grader, too, between its fork and its own program.
    assert sum(times > 1 for times in first.values()) == 2
    assert killed
    assert open_to_others == []


def test_two_runs_do_not_work_in_one_folder(course, here, capsys):
    hand_in(course, "ada")
    fcntl = pytest.importorskip("fcntl")
    grading.Nursery.begin()  # which would else be begun with the lock in hand, and keep it
    with open(course / ".nbgrader.log", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(SystemExit) as stop:
            here()
    assert stop.value.code == 2
    assert "another run is grading" in capsys.readouterr().err
    assert here() == 0


# --- submissions that hang or kill what grades them ---


def test_a_submission_that_hangs_kills_or_is_lost_costs_nobody_else_a_mark(course):
    """Who hangs or kills is given up; of whom the machine cost its kernel, the next run tries again."""
    with open(course / "nbgrader_config.py", "a") as file:
        file.write("from quick_course import Lost\nc.Autograde.autograde_preprocessors.insert(0, Lost)\n")
    once = course / "killed"
    bodies = {
        "hangs": "import time\ntime.sleep(600)",
        "kills": "import os\nos.kill(os.getpid(), 9)",
        "kills_once": f"import os, pathlib\nonce = pathlib.Path({str(once)!r})\n"
        f"if not once.exists():\n    once.touch()\n    os.kill(os.getpid(), 9)\n{RIGHT['add']}",
        "lost_once": f"# lost: {course / 'lost_once'}\n{RIGHT['add']}",
        "lost_twice": f"# lost: {course / 'lost_twice'}\n{RIGHT['add']}",
    }
    for name, times in (("lost_once", 1), ("lost_twice", 2)):
        (course / name).write_text("x" * times)
    for name, body in bodies.items():
        hand_in(course, name, {**RIGHT, "add": body})
    others = [f"student-{number}" for number in range(4)]
    for student in others:
        hand_in(course, student)
    done = run(course, "--workers", "2", "--limit", "10")
    assert (done.returncode, done.stderr) == (1, "")
    marks = dict.fromkeys([*others, "kills_once", "lost_once"], MARKS)
    assert all_marks(course) == marks
    problems = done.stdout.partition("To look at")[2]
    assert f"submitted/hangs/{UNIT}/{UNIT}.ipynb: was stopped after 10 s, 2 times" in problems
    assert f"submitted/kills/{UNIT}/{UNIT}.ipynb: killed the process that graded it, 2 times" in problems
    assert f"submitted/lost_twice/{UNIT}/{UNIT}.ipynb: lost its process, 2 times" in problems
    assert {path.name for path in (course / "autograded").iterdir()} == marks.keys()

    for name in ("hangs", "kills"):
        shutil.rmtree(course / "submitted" / name)
    again = run(course, "--workers", "1")
    assert again.returncode == 0
    assert "1 of 7 submissions to grade, 6 unchanged" in again.stdout
    assert all_marks(course) == {**marks, "lost_twice": MARKS}


# --- the cluster ---


def test_workers_on_other_hosts_one_of_them_lost(course):
    """Two hosts, as network namespaces: they see each other and the scheduler, but not the course."""
    students = [f"student-{number:02}" for number in range(16)]
    for number, student in enumerate(students):
        slow = f"import time\ntime.sleep(0.3)\n{RIGHT['add']}"
        hand_in(course, student, {**(WRONG if number % 3 else RIGHT), "add": slow})
    unshare = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid():
        unshare += ["--user", "--map-root-user"]
    network = f"{NETWORK}\nhost 1\nhost 2\n"
    try:
        tried = subprocess.run(
            [*unshare, "bash", "-euc", network], env=environment(), capture_output=True, text=True
        )
        reason = tried.stderr.strip()
    except FileNotFoundError as error:
        reason = str(error)
    if reason:
        pytest.skip(f"needs network namespaces: {reason}")
    done = subprocess.run(
        [*unshare, "bash", "-euc", network + CLUSTER],
        cwd=course,
        env=environment(COURSE=str(course), PYTHON=sys.executable),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "16 done" in done.stdout
    assert all_marks(course) == {
        student: WRONG_MARKS if number % 3 else MARKS for number, student in enumerate(students)
    }
    # The lost one had begun to work.
    assert int((course / "before").read_text()) >= 4


NETWORK = """
mount -t tmpfs none /run
ip link set lo up
ip link add hosts type bridge
ip address add 10.9.8.1/24 dev hosts
ip link set hosts up
host() {
  ip netns add host$1
  ip link add port$1 type veth peer name eth0 netns host$1
  ip link set port$1 master hosts up
  ip -n host$1 address add 10.9.8.1$1/24 dev eth0
  ip -n host$1 link set eth0 up
  ip -n host$1 link set lo up
}
"""

# As README.md says to do it.
CLUSTER = r"""
openssl req -x509 -newkey rsa:3072 -nodes -days 365 -subj /CN=grading \
  -keyout grading.key -out grading.pem 2> key.log
KEYS="--tls-ca-file $COURSE/grading.pem --tls-cert $COURSE/grading.pem --tls-key $COURSE/grading.key"
export DASK_DISTRIBUTED__COMM__TLS__CA_FILE=grading.pem
export DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT=grading.pem
export DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY=grading.key
dask scheduler --protocol tls $KEYS --host 10.9.8.1 --port 8786 --no-dashboard 2> scheduler.log &
worker="mount -t tmpfs none $COURSE/submitted; cd /run; \
  exec dask worker tls://10.9.8.1:8786 $KEYS --nworkers 1 --nthreads 1 --no-dashboard"
setsid ip netns exec host1 sh -c "$worker" 2> worker1.log &
first=$!
setsid ip netns exec host2 sh -c "$worker" 2> worker2.log &
$PYTHON -m attncourse.grading --scheduler tls://10.9.8.1:8786 > output &
grading=$!
until [ "$(grep -c points output)" -ge 5 ]; do sleep 0.1; done
kill -9 -- -$first
grep -c '^\[' output > before
wait $grading
cat output
"""


def test_who_has_no_guard_before_the_formgrader_is_told(course, here, capsys, monkeypatch, tmp_path_factory):
    hand_in(course, "ada", RIGHT)
    folder = tmp_path_factory.mktemp("etc")
    monkeypatch.setattr(policy, "jupyter_config_path", lambda: [str(folder)])
    assert here() == 0
    advice = re.search(r"the formgrader: is not guarded .* copy (\S+) to \S+", capsys.readouterr().out)
    (folder / policy.SWITCH).parent.mkdir()
    shutil.copy(advice[1], folder / policy.SWITCH)
    assert here() == 0
    assert "not guarded" not in capsys.readouterr().out


def test_an_address_without_a_scheduler_is_reported(course, here, capsys, monkeypatch):
    hand_in(course, "ada")
    monkeypatch.setattr(grading, "cluster_at", lambda address: cluster.cluster_at(address, seconds=1))
    assert main(["--scheduler", "tcp://127.0.0.1:1"]) == 1
    said = capsys.readouterr()
    assert "no scheduler at tcp://127.0.0.1:1" in said.out
    assert "is not tls://" in said.err
    assert main(["--scheduler", "tls://127.0.0.1:1"]) == 1
    said = capsys.readouterr()
    assert "tls://127.0.0.1:1 needs a key" in said.out
    assert said.err == ""


def test_a_worker_with_another_version_of_the_course_grades_nothing():
    unit = jobs.Unit(UNIT, {}, b"", Config(), course="another")
    assert "another version of the course" in autograding.outcome(unit, jobs.Job("ada", {}, "")).words


@pytest.mark.parametrize("student", ["=2+5", "{{7*7}}", "a'b", "ada", "\x1b[2Jred"])
def test_a_page_of_feedback_has_the_name_of_the_folder(course, here, student):
    hand_in(course, student)
    assert here() == 0
    page = (course / "feedback" / student / UNIT / f"{UNIT}.html").read_text()
    name = html.escape(student).replace("\x1b", r"\x1b")
    assert f"{UNIT}: {name}</title>" in page.replace("&#39;", "&#x27;")
    assert "\x1b" not in page


# --- the gradebook ---


def test_marks_and_comments_of_a_person_survive(course, here):
    hand_in(course, "ada", WRONG)
    assert here() == 0
    with gradebook_of(course) as gradebook:
        gradebook.find_grade("essay", UNIT, UNIT, "ada").manual_score = 3
        double = gradebook.find_grade("check_double", UNIT, UNIT, "ada")
        double.manual_score, double.extra_credit = 2, 0.5
        gradebook.find_comment("essay", UNIT, UNIT, "ada").manual_comment = "Well put."
        gradebook.db.commit()
    # Graded again, for what was handed in has changed; these answers have not.
    hand_in(course, "ada", {**WRONG, "add": f"# a sum\n{RIGHT['add']}"})
    assert here() == 0
    with gradebook_of(course) as gradebook:
        double = gradebook.find_grade("check_double", UNIT, UNIT, "ada")
        assert (double.auto_score, double.manual_score, double.extra_credit) == (0, 2, 0.5)
        assert double.needs_manual_grade
        assert gradebook.find_submission(UNIT, "ada").score == 2 + 2.5 + 3
        assert gradebook.find_comment("essay", UNIT, UNIT, "ada").comment == "Well put."
    feedback = (course / "feedback" / "ada" / UNIT / f"{UNIT}.html").read_text()
    assert "Well put." in feedback
    assert "7.5" in feedback
    with open("grades.csv", newline="") as file:
        assert [row["score"] for row in csv.DictReader(file)] == ["7.5"]


def a_class(course):
    """Right, wrong, nothing, late, and late with a reason; the exercise has a due date."""
    hand_in(course, "ada", RIGHT, "2026-03-01 14:00:00 UTC")
    hand_in(course, "ben", WRONG, "2026-03-01 13:30:00 UTC")
    hand_in(course, "cem", {"add": "", "double": ""}, "2026-03-01 11:30:00 UTC")
    hand_in(course, "dan", {**RIGHT, "essay": source().cells[-1].source}, "2026-03-01 15:30:00 UTC")
    hand_in(course, "eve", RIGHT)


@pytest.fixture(scope="module")
def by_nbgrader(tmp_path_factory):
    """The class, graded by nbgrader's own commands."""
    course = new_course(tmp_path_factory.mktemp("course"))
    a_class(course)
    for command in ("generate_assignment", "autograde", "generate_feedback"):
        if command == "autograde":
            enter(course)
        done = Command(NbGraderApp.launch_instance, course, command, UNIT, environment=environment()).ended()
        assert done.returncode == 0, done.stderr
    return summary(course)


def graded_like_nbgrader(course, here, by_nbgrader, url=None):
    a_class(course)
    assert here() == 0  # makes the exercise known
    enter(course, url)
    assert here("--force") == 0
    rows, files = by_nbgrader
    assert everything(course, url) == rows
    assert {score for _, score, *_ in rows.values()} == {0, 2, 5}
    assert [penalty for _, _, penalty, *_ in rows.values()].count(1) == 2
    for name, content in files.items():
        if name.endswith(".html"):
            assert (course / name).read_bytes() == content
    assert {str(path.relative_to(course)) for path in course.glob("autograded/*/*/*")} == {
        name for name in files if name.startswith("autograded")
    }


def test_the_gradebook_is_what_nbgrader_itself_would_make_of_it(course, here, by_nbgrader):
    graded_like_nbgrader(course, here, by_nbgrader)


def test_the_gradebook_may_be_on_postgresql(course, here, by_nbgrader, postgresql):
    with open("nbgrader_config.py", "a") as file:
        file.write(f"c.CourseDirectory.db_url = {postgresql!r}\n")
    (course / "gradebook.db").unlink()
    graded_like_nbgrader(course, here, by_nbgrader, postgresql)
    assert not (course / "gradebook.db").exists()


@pytest.fixture
def postgresql():
    """The address of a PostgreSQL server of its own."""
    programs = max(Path("/usr/lib/postgresql").glob("*/bin/initdb"), default=None)
    if programs is None:
        reason = "needs PostgreSQL: Debian's package postgresql"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    # PostgreSQL refuses to run as root, and root's temporary folders are closed to others.
    user = "nobody" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    if user:
        shutil.chown(folder, user)

    def program(name, *arguments):
        command = [programs.with_name(name), *arguments]
        subprocess.run(
            command, cwd=folder, user=user, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )

    data = folder / "data"
    program("initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
    listen = f"-k {folder} -c listen_addresses='' -c fsync=off"
    program("pg_ctl", "-D", data, "-o", listen, "-l", folder / "log", "-w", "start")
    try:
        yield f"postgresql+psycopg2://postgres@/postgres?host={folder}"
    finally:
        # Connections that nobody has any more end while there is a server: else they end with an error in the
        # middle of another test, which Python 3.11 cannot bear where it makes a syntax tree.
        gc.collect()
        program("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder)
