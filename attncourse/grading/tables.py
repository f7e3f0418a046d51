"""Tables of other programs: CSV in whatever way they wrote it, and written back the same way."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attncourse.grading.rules import Unusable

ENCODINGS = ("utf-8-sig", "cp1252")


@dataclass
class Table:
    """A table with a line of headings.

    Parameters
    ----------
    path : Path
    heading : list of str
    rows : list of list of str
        All lines below it, each as long as the heading.
    lines : list of int
        In which line of the file each row ends.
    """

    path: Path
    heading: list[str]
    rows: list[list[str]]
    lines: list[int]
    encoding: str
    delimiter: str
    newline: str

    @classmethod
    def read(cls, path: Path) -> "Table":
        """Read a table; commas, semicolons or tabs, whatever there is.

        Raises
        ------
        Unusable
        """
        try:
            content = path.read_bytes()
        except OSError as error:
            raise Unusable(f"{path} cannot be read: {error.strerror}") from None
        if content.startswith(b"PK"):
            raise Unusable(f"{path} is a spreadsheet or an archive: save it as CSV")
        encodings = ("utf-16",) if content.startswith((b"\xff\xfe", b"\xfe\xff")) else ENCODINGS
        for encoding in encodings:
            try:
                text = content.decode(encoding)
                break
            except UnicodeDecodeError:
                continue
        else:
            raise Unusable(f"{path} is not text in UTF-8")
        first = text.partition("\n")[0]
        delimiter = max(",;\t", key=first.count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        rows, lines = [], []
        try:
            for row in reader:
                if any(cell.strip() for cell in row):
                    rows.append(row)
                    lines.append(reader.line_num)
        except csv.Error as error:
            raise Unusable(f"{path}, line {reader.line_num}: {error}") from None
        if not rows:
            raise Unusable(f"{path} is empty")
        heading = rows[0]
        for row, line in zip(rows, lines, strict=True):
            # A line may lack its last, empty cells; Brightspace's and Canvas's have one too many.
            if len(row) > len(heading) and any(row[len(heading) :]):
                more = f"{len(row)} cells, and the heading {len(heading)}"
                raise Unusable(f"{path}, line {line}: has {more}")
            row.extend([""] * (len(heading) - len(row)))
        newline = "\r\n" if "\r\n" in text else "\n"
        if encoding == "utf-8-sig" and not content.startswith(b"\xef\xbb\xbf"):
            encoding = "utf-8"
        return cls(path, heading, rows[1:], lines[1:], encoding, delimiter, newline)

    def column(self, *names: str) -> int | None:
        """The number of the first column that has one of these headings, however it is written."""
        found = {name.strip().casefold(): number for number, name in reversed([*enumerate(self.heading)])}
        return next((found[name] for name in map(str.casefold, names) if name in found), None)

    def cell(self, row: Sequence[str], *names: str) -> str:
        """What a row has in the first of these columns that is there and not empty."""
        for name in names:
            number = self.column(name)
            if number is not None and row[number].strip():
                return row[number].strip()
        return ""

    def write(self, path: Path) -> None:
        """Write the table as it was read, whole or not at all."""
        file = io.StringIO(newline="")
        writer = csv.writer(file, delimiter=self.delimiter, lineterminator=self.newline)
        writer.writerows([self.heading, *self.rows])
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(file.getvalue().encode(self.encoding))
        part.replace(path)
