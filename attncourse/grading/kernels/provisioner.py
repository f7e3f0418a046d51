"""Starts kernels for grading: jailed where that is possible, and always in a copy of their folder."""

import asyncio
import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import psutil
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import KernelProvisionerBase
from traitlets import Integer, Unicode

from attncourse.grading import leftovers, made
from attncourse.grading.job import NotGraded
from attncourse.grading.kernels.environment import environment

if sys.platform == "linux":
    from attncourse.grading.kernels import jail
    from attncourse.grading.kernels.zygote import HUNGRY, KILLED, Zygote

_JAILS = ("zygote", "bubblewrap")
# As many as at home. What waits in pipes takes memory that is counted for no process.
_MOST_FILES = 1024
# What a notebook finds open in each isolation, in words that follow "Open to it: ".
OPEN = {
    "zygote": "",
    "bubblewrap": "",
    "landlock": "UDP, Unix sockets and, before Linux 6.7, TCP; the sight of all processes with their command "
    "lines and, before Linux 6.12, signals to those of the same user; any amount of disk; and what it starts "
    "may outlive it",
    "process": "all files, processes and networks that are open to whoever grades",
}


class Provisioner(KernelProvisionerBase):
    """Starts one kernel, in the strongest isolation that this machine allows, and says in which."""

    isolation = Unicode(
        "required",
        help="""How much a kernel is kept from the rest of the machine: 'required' refuses to start one
        outside a jail, 'best' takes what there is, 'none' starts plain processes. Once the
        kernel runs, it names what it runs in: 'zygote' (a jail, forked from a process that has
        imported the libraries), 'bubblewrap' (a jail made by that program), 'landlock' (no jail:
        its own files only, but not its own processes and network) or 'process' (no jail: only
        limits on memory, time and size of files).""",
    ).tag(config=True)
    memory = Integer(
        4 << 30,
        help="""bytes of memory that the processes of a notebook may use together, and address space that
        each may take beyond that of the libraries""",
    ).tag(config=True)
    reading = Integer(
        512 << 20,
        help="""bytes by which the memory of the process that grades may grow while a notebook runs, by what
        the notebook sends it""",
    ).tag(config=True)
    space = Integer(256 << 20, help="bytes that a notebook may write into its folder").tag(config=True)
    processes = Integer(64, help="processes and threads in a jail, the kernel's ten or so among them").tag(
        config=True
    )
    seconds = Integer(1800, help="seconds of computing for each process").tag(config=True)

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.wanted = self.isolation
        if self.wanted not in ("best", "required", "none"):
            raise ValueError(f"Provisioner.isolation is {self.wanted!r}: expected best, required or none")
        self._box: leftovers.Folder | None = None
        self._leash: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._first = 0  # the process that has started all others of the notebook
        self._status: int | None = None
        self._asked_to_end = False
        self._ended = threading.Event()
        #: Why the kernel was ended here, in a sentence; empty if it was not.
        self.ending = ""

    @property
    def lost(self) -> bool:
        """Whether the kernel was killed by somebody else than this process and the notebook itself.

        Only a forked kernel cannot kill itself in that way (see zygote.py). In another isolation one
        that does so is taken for one that was killed.
        """
        killed = self._status == -signal.SIGKILL
        if self.isolation == "bubblewrap":  # which says it in the way of shells
            killed = killed or self._status == 128 + signal.SIGKILL
        return killed and not self._asked_to_end and not self.ending

    @property
    def has_process(self) -> bool:
        return self._leash is not None or self._process is not None

    @property
    def computed(self) -> float:
        """Seconds that the notebook's processes have computed so far, all together."""
        used = 0.0
        with contextlib.suppress(psutil.Error):
            first = psutil.Process(self._first)
            for one in (first, *first.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    # Those of children are of the ones that have ended.
                    used += sum(one.cpu_times()[:4])
        return used

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        self.isolation, reason = (
            ("process", "") if self.wanted == "none" else await asyncio.to_thread(_strongest)
        )
        if self.wanted == "required" and self.isolation not in _JAILS:
            raise NotGraded(
                f"is not graded without isolation: no jail is possible: {reason}. "
                f"To grade all the same, say --isolation best. Then open to it: {OPEN[self.isolation]}",
                everyone=True,
            )
        if reason:
            _warn_once(self.log, f"notebooks run in isolation {self.isolation!r}: {reason}")

        manager: Any = self.parent
        self._box = leftovers.Folder()
        box = self._box.name
        for name in ("home/matplotlib", "root", "sockets"):
            os.makedirs(f"{box}/{name}")
        copy_folder(str(kwargs.pop("cwd", None) or os.getcwd()), f"{box}/work", self.space // 2)
        for path in _fonts():
            shutil.copy(path, f"{box}/home/matplotlib")
        manager.connection_file = f"{box}/kernel.json"
        if manager.transport == "ipc":
            manager.ip = f"{box}/sockets/kernel"
        manager.write_connection_file()
        self.connection_info = manager.get_connection_info()
        command = manager.format_kernel_cmd(extra_arguments=kwargs.pop("extra_arguments", []))
        return await super().pre_launch(cmd=command, **kwargs)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        assert self._box is not None
        box, course = self._box.name, self.parent.course  # type: ignore[union-attr]
        jailed = self.isolation in _JAILS
        home = jail.HOME if jailed else f"{box}/home"
        # Who computes in real time is killed when its own limit on that says so.
        limits = {"RLIMIT_CORE": 0, "RLIMIT_RTPRIO": 0, "RLIMIT_NOFILE": _MOST_FILES}
        limits |= {"RLIMIT_CPU": self.seconds, "RLIMIT_FSIZE": self.space}
        settings = {
            **environment(),
            "HOME": home,
            "IPYTHONDIR": f"{home}/ipython",
            "MPLCONFIGDIR": f"{home}/matplotlib",
            "TMPDIR": "/tmp" if jailed else home,
        }
        # Before all other places, so that no other `attncourse` is found.
        places = [jail.COURSE if jailed else course, settings.get("PYTHONPATH")]
        settings["PYTHONPATH"] = os.pathsep.join(filter(None, places))
        if jailed:
            connection = json.loads(Path(f"{box}/kernel.json").read_text())
            connection["ip"] = f"{jail.SOCKETS}/kernel"
            Path(f"{box}/home/kernel.json").write_text(json.dumps(connection))
            cmd = [f"{jail.HOME}/kernel.json" if part == f"{box}/kernel.json" else part for part in cmd]
            limits["RLIMIT_NPROC"] = self.processes
        if self.isolation == "zygote":
            request = {
                "box": box,
                "course": course,
                "hidden": str(made.PACKAGE),
                "space": self.space,
                "arguments": cmd[cmd.index("-f") :],
                "environment": settings,
                "limits": {**limits, "RLIMIT_AS": self.memory},
                "memory": self.memory,
            }
            leash, self._first = await asyncio.to_thread(Zygote.start_kernel, request)
            leash.setblocking(False)
            self._leash = leash
            self._start_watching()
            return self.connection_info
        limits["RLIMIT_DATA"] = self.memory
        if self.isolation == "bubblewrap":
            cmd = [*_bubblewrap(box, course), *_launcher(limits), *cmd]
        elif sys.platform == "linux":
            cmd = [*_launcher(limits, box if self.isolation == "landlock" else "", course), *cmd]
        self._process = subprocess.Popen(
            cmd,
            cwd=f"{box}/work",
            env=settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._first = self._process.pid
        self._start_watching()
        return self.connection_info

    async def poll(self) -> int | None:
        if self._process is not None:
            self._status = self._process.poll()
        elif self._leash is not None and self._status is None:
            with contextlib.suppress(BlockingIOError):
                # Nothing is said where the supervisor was killed.
                said = self._leash.recv(100).decode() or KILLED
                if said == HUNGRY:
                    self.ending = self._hungry
                self._status = -signal.SIGKILL if said in (HUNGRY, KILLED) else int(said)
        return self._status

    def _start_watching(self) -> None:
        """Bound what the notebook makes this process read and, where no supervisor does it, use itself.

        Bounds on single messages do not: many of them, and of parts of them, can be on their way.
        """
        start = psutil.Process().memory_info().rss
        process, leash = self._process, self._leash

        def watch() -> None:
            while not self._ended.wait(0.05):
                if psutil.Process().memory_info().rss - start > self.reading:
                    most = f"{self.reading / 2**30:g} GB"
                    self.ending = f"Reading what it printed and returned took more than {most} of memory."
                elif process is not None and _used(process.pid) > self.memory:
                    self.ending = self._hungry
                if self.ending:
                    self._end(process, leash)
                    return

        threading.Thread(target=watch, daemon=True).start()

    @property
    def _hungry(self) -> str:
        return f"Its processes used more than {self.memory / 2**30:g} GB of memory together."

    @staticmethod
    def _end(process: "subprocess.Popen[bytes] | None", leash: socket.socket | None) -> None:
        if leash is not None:
            with contextlib.suppress(OSError):
                leash.shutdown(socket.SHUT_WR)
        elif process is not None and os.name == "posix":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        elif process is not None:
            process.kill()

    async def wait(self) -> int | None:
        while await self.poll() is None:
            await asyncio.sleep(0.005)
        self._ended.set()
        if self._leash is not None:
            self._leash.close()
        self._leash = self._process = None
        return self._status

    async def send_signal(self, signum: int) -> None:
        # Interrupts are messages, and whatever else is asked for is the end.
        if signum != signal.SIGINT:
            await self.kill()

    async def kill(self, restart: bool = False) -> None:
        # What ended before is to be known as what it was.
        if self.has_process and await self.poll() is None:
            self._asked_to_end = True
            self._end(self._process, self._leash)
        if self.has_process:
            await self.wait()

    async def terminate(self, restart: bool = False) -> None:
        await self.kill(restart)

    async def cleanup(self, restart: bool = False) -> None:
        await self.kill(restart)
        if self._box is not None:
            self._box.cleanup()
            self._box = None


def copy_folder(source: str, target: str, space: int) -> None:
    """Copy files, folders and links (not what they point to) that have room in `space` bytes.

    But no notebooks: an answer is not to read what stands in cells that do not run.

    Raises
    ------
    ValueError
        If they have not.
    """
    for here, folders, names in os.walk(source):
        there = os.path.join(target, os.path.relpath(here, source))
        os.makedirs(there, exist_ok=True)
        for name in (*folders, *names):
            path, copy = os.path.join(here, name), os.path.join(there, name)
            status = os.lstat(path)
            if name.endswith(".ipynb"):
                continue
            # An empty file takes room, too.
            space -= status.st_size + 4096
            if space < 0:
                raise ValueError(f"the folder {source} holds more than a notebook may write")
            if stat.S_ISLNK(status.st_mode):
                os.symlink(os.readlink(path), copy)
            elif stat.S_ISREG(status.st_mode):
                shutil.copyfile(path, copy)


def _used(pid: int) -> int:
    """The memory of a process and of those it has started, as far as they are still below it."""
    used = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                used += one.memory_info().rss
    return used


@functools.cache
def _warn_once(log: Any, words: str) -> None:
    log.warning(words)


@functools.cache
def _strongest() -> tuple[str, str]:
    """The best isolation that there is, and why there is no better one.

    Found out once, before anything handed in has run, so that no notebook can bring about a weaker one.
    """
    if sys.platform != "linux":
        return "process", "jails are made of what only Linux has"
    refusal = Zygote.get().refusal
    if not refusal:
        return "zygote", ""
    reason = f"no jail for forked kernels ({refusal})"
    with tempfile.TemporaryDirectory() as box:
        for name in ("course", "home", "sockets", "work"):
            os.mkdir(f"{box}/{name}")
        ways = {"landlock": _launcher({}, box, f"{box}/course")}
        # In that one root would stay root, and could write the settings of the system's kernel.
        if os.geteuid() != 0:
            ways = {"bubblewrap": [*_bubblewrap(box, f"{box}/course"), *_launcher({})], **ways}
        for isolation, start in ways.items():
            try:
                # The files must be in reach; to import them would take seconds.
                look = "from importlib.util import find_spec; find_spec('torch').name"
                subprocess.run([*start, sys.executable, "-c", look], check=True, capture_output=True)
                return isolation, reason
            except (OSError, subprocess.CalledProcessError) as error:
                words = getattr(error, "stderr", b"").decode().strip().rpartition("\n")[2] or error
                reason += f"; no {isolation} ({words})"
    return "process", reason


def _bubblewrap(box: str, course: str) -> list[str]:
    """The same jail as the zygote's, as far as that program makes it."""
    command = ["bwrap", "--unshare-all", "--unshare-user", "--cap-drop", "ALL", "--hostname", "notebook"]
    command += ["--new-session", "--die-with-parent"]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run"]
    for path in jail.readable():
        command += (
            ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]
        )
    command += ["--tmpfs", str(made.PACKAGE), "--ro-bind", jail.__file__, jail.__file__]
    command += ["--ro-bind", course, jail.COURSE]
    for name, place in (("home", jail.HOME), ("work", jail.WORK), ("sockets", jail.SOCKETS)):
        command += ["--bind", f"{box}/{name}", place]
    return [*command, "--remount-ro", "/", "--chdir", jail.WORK, "--"]


def _launcher(limits: dict[str, int], box: str = "", course: str = "") -> list[str]:
    return [sys.executable, jail.__file__, json.dumps(limits), box, course]


def _fonts() -> list[Path]:
    """Matplotlib's lists of the fonts here, which take it seconds to make."""
    import matplotlib

    return list(Path(matplotlib.get_cachedir()).glob("fontlist-*.json"))
