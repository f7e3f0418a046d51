"""What learning platforms deliver and export, made by code: nobody in it exists."""

import io
import zipfile


def people(number):
    """The first and last names of so many students, with signs that platforms change."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return [("Stúdent", f"O'{letters[one // 26]}{letters[one % 26].lower()}x") for one in range(number)]


def ids(number):
    return [f"student-{one:02}" for one in range(1, number + 1)]


def archive(files, times=None):
    """A zip with these files, each changed at its time."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as made:
        for name, data in files.items():
            made.writestr(zipfile.ZipInfo(name, (times or {}).get(name, (2026, 3, 1, 10, 0, 0))), data)
    return content.getvalue()


def moodle_name(number, person, *, folder=True):
    first, last = person
    return f"{first} {last}_{9000 + number}_assignsubmission_file{'_/' if folder else '_'}"


def canvas_name(number, person, name, *, late=False):
    first, last = person
    plain = "".join(letter for letter in (last + first).lower() if letter.isalnum())
    return f"{plain}_{'LATE_' if late else ''}{100 + number}_{70000 + number}_{name}"


def brightspace_name(number, person, time):
    return f"{500 + number}-{60000 + number} - {' '.join(person)} - {time}/"


def moodle_worksheet(class_, maximum="100.00"):
    head = "Identifier,Full name,Email address,Status,Grade,Maximum Grade,Grade can be changed,"
    lines = [f"{head}Last modified (submission),Last modified (grade),Feedback comments"]
    for number, (id_, (first, last)) in enumerate(class_, 1):
        lines.append(
            f'Participant {9000 + number},"{first} {last}",{id_}@example.org,Submitted for grading,,'
            f"{maximum},Yes,-,-,"
        )
    return ("\ufeff" + "\r\n".join(lines) + "\r\n").encode()


def canvas_gradebook(class_, columns, points):
    """Canvas's export, with its row of points and its test student."""
    lines = [",".join(["Student,ID,SIS User ID,SIS Login ID,Section", *columns, "Final Score"])]
    lines += [",".join(["    Points Possible,,,,", *map(str, points), "(read only)"])]
    for number, (id_, (first, last)) in enumerate(class_, 1):
        lines.append(",".join([f'"{last}, {first}",{100 + number},,{id_},All', *[""] * len(columns), ""]))
    lines.append(",".join(['"Student, Test",9999,,,All', *[""] * len(columns), ""]))
    return ("\n".join(lines) + "\n").encode()


def brightspace_grades(class_, columns):
    lines = [
        ",".join(["OrgDefinedId,Username,Last Name,First Name,Email", *columns, "End-of-Line Indicator"])
    ]
    for number, (id_, (first, last)) in enumerate(class_, 1):
        cells = [f"#{800 + number},#{id_},{last},{first},{id_}@example.org", *[""] * len(columns), "#"]
        lines.append(",".join(cells))
    return ("\n".join(lines) + "\n").encode()
