"""What an instructor does around grading: marks by hand, due dates, changed exercises, giving back."""

import copy
import csv
import subprocess
import sys
from datetime import timedelta

import nbformat
import pytest
from quick_course import (
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
)

from attncourse.grading import __main__ as grading
from attncourse.grading.__main__ import main

pytestmark = pytest.mark.slow


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A new course without kernels, which is the current folder, and is graded in this process by `here`."""
    monkeypatch.chdir(tmp_path)
    return new_course(tmp_path)


def run(course, *arguments):
    """The command, in processes of its own."""
    command = [sys.executable, "-m", "attncourse.grading", *arguments]
    return subprocess.run(command, cwd=course, env=environment(), capture_output=True, text=True)


@pytest.fixture
def here(monkeypatch):
    """Submissions are graded in this process: nothing has to be started."""
    monkeypatch.setattr(grading, "on_this_machine", one_by_one)
    return lambda *arguments: main(arguments)


def test_marks_by_hand_are_for_the_answer_that_they_were_given_to(course, here, capsys):
    hand_in(course, "ada", WRONG)
    assert here() == 0
    with gradebook_of(course) as gradebook:
        gradebook.find_grade("check_double", UNIT, UNIT, "ada").manual_score = 1.5
        gradebook.find_comment("double", UNIT, UNIT, "ada").manual_comment = "You forgot the scale."
        gradebook.find_grade("check_add", UNIT, UNIT, "ada").manual_score = 1
        gradebook.db.commit()
    # An unreadable file in between changes nothing about that.
    hand_in(course, "ada").write_text("not a notebook")
    assert here() == 1
    hand_in(course, "ada", RIGHT)
    capsys.readouterr()
    assert here() == 0
    with gradebook_of(course) as gradebook:
        grades = gradebook.find_submission_notebook(UNIT, UNIT, "ada").grades
        assert {one.name: one.score for one in grades} == {"check_add": 1, "check_double": 3, "essay": 0}
        assert gradebook.find_comment("double", UNIT, UNIT, "ada").comment is None
    assert "forgot the scale" not in (course / f"feedback/ada/{UNIT}/{UNIT}.html").read_text()
    for _ in range(2):
        look_at = capsys.readouterr().out.partition("To look at")[2]
        assert "check_double: the mark by hand, 1.5, was given to an earlier answer" in look_at
        assert "double: the comment 'You forgot the scale.' was made on an earlier answer" in look_at
        assert "check_add" not in look_at
        assert here() == 0


def by_hand(folder, grade, mark):
    """Enter a mark as the formgrader does."""
    with gradebook_of(folder) as gradebook:
        row = gradebook.find_grade(grade, UNIT, UNIT, "ada")
        row.manual_score, row.needs_manual_grade = mark, False
        gradebook.db.commit()


def test_a_mark_by_hand_is_told_of_when_what_its_answer_rests_on_was_changed(course, here, capsys):
    def look_at(answers=RIGHT, helper="", file=""):
        path = hand_in(course, "ada", answers)
        notebook = nbformat.read(path, as_version=4)
        notebook.cells.insert(0, nbformat.v4.new_code_cell(helper, id="helper"))
        nbformat.write(notebook, path)
        (path.parent / "helper.py").write_text(file)
        capsys.readouterr()
        assert here() == 0
        return capsys.readouterr().out.partition("To look at")[2]

    look_at()
    by_hand(course, "check_add", 1)
    by_hand(course, "check_double", 1.5)
    by_hand(course, "essay", 2)
    other = {name: f"{answer} + 0" for name, answer in RIGHT.items()}
    told = "the mark by hand, {}, was given before cells or files were changed that it may rest on".format
    # What an answer calls counts, not what calls it.
    assert told(1) not in look_at(RIGHT | {"double": other["double"]})
    by_hand(course, "check_double", 1.5)
    changed = look_at(other)
    assert f"check_double: {told(1.5)}" in changed
    assert "check_add: the mark by hand, 1, was given to an earlier answer" in changed
    # Until a person has looked at it.
    assert told(1.5) in look_at({**other, "essay": "Another."})
    by_hand(course, "check_double", 1.5)
    assert told(1.5) not in look_at({**other, "essay": "One more."})
    # The student's own cells and files count, too, but not for what is in words.
    by_hand(course, "essay", 2)
    assert told(1.5) in (changed := look_at({**other, "essay": "One more."}, helper="scale = 2"))
    assert told(2) not in changed
    by_hand(course, "check_double", 1.5)
    assert told(1.5) in look_at({**other, "essay": "One more."}, helper="scale = 2", file="scale = 3")
    with gradebook_of(course) as gradebook:
        assert gradebook.find_grade("check_double", UNIT, UNIT, "ada").score == 1.5


def test_a_folder_is_graded_for_whom_the_gradebook_spells_otherwise(course, here, capsys):
    composed, decomposed = "Jos\u00e9", "Jose\u0301"
    with gradebook_of(course) as gradebook:
        gradebook.update_or_create_student(composed, first_name="José")
    hand_in(course, decomposed)
    for done in ("1 of 1 submissions to grade.", "1 unchanged since"):
        assert here() == 0
        assert done in capsys.readouterr().out
    with gradebook_of(course) as gradebook:
        assert [one.id for one in gradebook.students] == [composed]
        assert gradebook.find_submission(UNIT, composed).score == 5
    assert (course / "feedback" / composed / UNIT / f"{UNIT}.html").is_file()


def test_what_a_person_enters_after_grading_is_in_the_feedback_of_the_next_run(course, here, capsys):
    for student in ("ada", "ben"):
        hand_in(course, student, WRONG)
    assert here() == 0
    pages = {student: course / f"feedback/{student}/{UNIT}/{UNIT}.html" for student in ("ada", "ben")}
    before = {student: page.stat().st_mtime_ns for student, page in pages.items()}
    with gradebook_of(course) as gradebook:
        gradebook.find_grade("check_double", UNIT, UNIT, "ada").manual_score = 2.5
        gradebook.find_comment("double", UNIT, UNIT, "ada").manual_comment = "Nearly."
        gradebook.db.commit()
    capsys.readouterr()
    assert here() == 0
    assert "0 of 2 submissions to grade" in capsys.readouterr().out
    assert "Nearly." in pages["ada"].read_text()
    assert "4.5" in pages["ada"].read_text()
    assert pages["ada"].stat().st_mtime_ns > before["ada"]
    assert pages["ben"].stat().st_mtime_ns == before["ben"]


def test_a_due_date_entered_after_grading_counts_from_the_next_run_on(course, here, capsys):
    hand_in(course, "ben", RIGHT, "2026-03-01 14:00:00 UTC")
    hand_in(course, "dan", RIGHT, "2026-03-01 14:00:00 UTC")
    assert here() == 0
    enter(course)
    capsys.readouterr()
    assert here() == 0
    out = capsys.readouterr().out
    assert "0 of 2 submissions to grade" in out
    assert [line.split() for line in out.splitlines() if line.startswith(("student ", "ben", "dan"))][:3] == [
        ["student", "1", "2", "3", "late", "sum"],
        ["ben", "2", "3", "?", "-2", "3"],
        ["dan", "2", "3", "?", "0", "5"],
    ]
    with open("grades.csv", newline="") as file:
        assert {row["student_id"]: row["score"] for row in csv.DictReader(file)} == {
            "ben": "3.0",
            "dan": "5.0",
        }
    assert "3 of 9 points" in (course / f"feedback/ben/{UNIT}/{UNIT}.html").read_text()
    with open(f"reports/{UNIT}.html") as file:
        assert '<td class="number">-2</td>' in file.read()
    with gradebook_of(course) as gradebook:
        gradebook.update_or_create_submission(UNIT, "ben", extension=timedelta(hours=3))
        gradebook.db.commit()
    assert here() == 0
    assert everything(course)["ben"][2] == 0


def test_an_extension_of_nobody_is_told_of(course, here, capsys):
    hand_in(course, "ada")
    (course / "course.toml").write_text(f"[extensions]\nada = {{ {UNIT} = 2 }}\naad = {{ {UNIT} = 2 }}\n")
    assert here() == 0
    out = capsys.readouterr().out
    assert "course.toml: extensions of 'aad': nobody of that name" in out
    assert "'ada'" not in out


def test_a_late_policy_beside_the_configuration_is_found(tmp_path):
    course = new_course(
        tmp_path,
        "from late import Policy\nc.AssignLatePenalties.plugin_class = Policy\n"
        "c.Autograde.autograde_preprocessors.insert(0, 'steps.Nothing')\n",
    )
    (course / "late.py").write_text(
        "from nbgrader.plugins import BasePlugin\nclass Policy(BasePlugin):\n"
        "    def late_submission_penalty(self, student_id, score, total_seconds_late):\n        return 4\n"
    )
    (course / "steps.py").write_text(
        "from nbgrader.preprocessors import NbGraderPreprocessor\nclass Nothing(NbGraderPreprocessor):\n"
        "    def preprocess(self, nb, resources):\n        return nb, resources\n"
    )
    hand_in(course, "ada", RIGHT, "2026-03-01 14:00:00 UTC")
    with gradebook_of(course) as gradebook:
        gradebook.update_or_create_assignment(UNIT, duedate="2026-03-01 12:00:00 UTC")
    done = run(course, "--workers", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert everything(course)["ada"][1:3] == (5, 4)


def test_nbgraders_exchange_gives_the_feedback_back(course, here):
    folder = hand_in(course, "ada", RIGHT, "2026-03-01 14:00:00 UTC").parent
    (folder / "submission_secret.txt").write_text("secret")
    assert here() == 0
    exchange = f"--Exchange.root={course}/exchange"
    (course / "exchange").mkdir(mode=0o777)
    (course / "exchange").chmod(0o777)
    done = subprocess.run(
        ["nbgrader", "release_feedback", UNIT, exchange],
        cwd=course,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (page,) = (course / "exchange" / "quick" / "feedback").glob("*.html")
    assert page.read_bytes() == (course / f"feedback/ada/{UNIT}/{UNIT}.html").read_bytes()


def changed(course, remove=(), add=()):
    """The exercise with tasks removed and added since."""
    notebook = source()
    notebook.cells = [cell for cell in notebook.cells if cell.metadata.nbgrader.grade_id not in remove]
    for name in add:
        cell = copy.deepcopy(
            next(one for one in notebook.cells if one.metadata.nbgrader.grade_id == "check_add")
        )
        cell.metadata.nbgrader.grade_id, cell.id = name, name.replace("_", "-")
        notebook.cells.append(cell)
    nbformat.write(notebook, course / "solutions" / UNIT / f"{UNIT}.ipynb")


def test_a_task_may_be_removed_and_added_after_grading(course, here, capsys):
    with open("nbgrader_config.py", "a") as file:
        file.write(
            "from nbgrader.preprocessors import CheckCellMetadata, OverwriteCells\n"
            "repair = ['attncourse.grading.repair.Repair', OverwriteCells, CheckCellMetadata]\n"
            "c.Autograde.sanitize_preprocessors = repair\n"
        )
    for student in ("ada", "ben"):
        hand_in(course, student, WRONG)
    assert here() == 0
    with gradebook_of(course) as gradebook:
        gradebook.find_grade("check_double", UNIT, UNIT, "ben").manual_score = 1
        gradebook.find_grade("essay", UNIT, UNIT, "ben").manual_score = 4
        gradebook.find_comment("double", UNIT, UNIT, "ada").manual_comment = "Well tried."
        gradebook.db.commit()
    changed(course, remove=["double", "check_double"], add=["check_sums"])
    assert main(["release"]) == 0
    release = nbformat.read(course / "exercises" / UNIT / f"{UNIT}.ipynb", as_version=4)
    assert [cell.metadata.nbgrader.grade_id for cell in release.cells] == [
        "add",
        "check_add",
        "essay",
        "check_sums",
    ]
    capsys.readouterr()
    assert here() == 0
    out = capsys.readouterr().out
    assert "2 again because the course was changed since" in out
    assert f"{UNIT}: check_double is no task any more; the marks by hand for it are gone: ben 1" in out
    assert f"{UNIT}: double is no more; the comments by hand on it are gone: ada" in out
    marks = {"check_add": 2, "essay": None, "check_sums": 2}
    assert all_marks(course) == {"ada": marks, "ben": marks}
    assert everything(course)["ben"][1] == 2 + 2 + 4
    with open("grades.csv", newline="") as file:
        assert [row["max_score"] for row in csv.DictReader(file)] == ["8.0", "8.0"]


def test_a_release_that_cannot_be_made_leaves_the_old_one(course, capsys):
    assert main(["release"]) == 0
    old = (course / "exercises" / UNIT / f"{UNIT}.ipynb").read_bytes()
    (course / "solutions" / UNIT / f"{UNIT}.ipynb").write_text("{")
    assert main(["release", UNIT]) == 1
    assert f"{UNIT} is not written, and what was there is as it was" in capsys.readouterr().out
    assert (course / "exercises" / UNIT / f"{UNIT}.ipynb").read_bytes() == old
    assert [path.name for path in (course / "exercises").iterdir()] == [UNIT]
