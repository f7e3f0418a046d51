"""How far a run of the grading has come, as a person sees it."""

import sys
import time
from datetime import timedelta

from attncourse.grading.harmless import one_line


class Progress:
    """A line for each submission that is done; on a terminal a bar instead, and lines for problems."""

    WIDTH = 30

    def __init__(self, number: int) -> None:
        self.number = number
        self.finished = 0
        self.started = time.monotonic()
        self.live = sys.stdout.isatty()
        self._draw()

    def done(self, line: str, *, problem: bool = False) -> None:
        self.finished += 1
        line = one_line(line)
        if not self.live:
            print(f"[{self.finished}/{self.number}] {line}", flush=True)
        elif problem:
            print(f"\r\x1b[2K{line}")
        self._draw()

    def close(self) -> None:
        seconds = time.monotonic() - self.started
        start = "\r\x1b[2K" if self.live else ""
        print(f"{start}{self.finished} done in {timedelta(seconds=round(seconds))}.", flush=True)

    def _draw(self) -> None:
        if not self.live:
            return
        full = self.WIDTH * self.finished // self.number
        left = ""
        if self.finished:
            seconds = (time.monotonic() - self.started) / self.finished * (self.number - self.finished)
            left = f", about {timedelta(seconds=round(seconds))} left"
        bar = "#" * full + "." * (self.WIDTH - full)
        print(f"\r\x1b[2K[{bar}] {self.finished} of {self.number}{left}", end="", flush=True)
