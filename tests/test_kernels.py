"""Kernels for grading: the same results as others, and nothing outside in their reach."""

import asyncio
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import psutil
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jupyter_client.kernelspec import NoSuchKernel
from nbgrader.preprocessors import Execute
from traitlets.config import Config

from attncourse.grading import judging
from attncourse.grading.alarm import at_most
from attncourse.grading.job import NotGraded
from attncourse.grading.kernels import KernelManager, jail, provisioner

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="kernels talk through files of a Unix"),
]

ROOT = Path(__file__).parents[1]


def finish(coroutine):
    """Run it in a thread of its own: a browser of other tests keeps a loop going in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


class Kernel:
    """A kernel that runs cells; `async with` starts it and shuts it down."""

    def __init__(self, isolation="best", cwd=None, **settings):
        self.manager = KernelManager(config=Config({"Provisioner": {"isolation": isolation, **settings}}))
        self.cwd = cwd

    async def __aenter__(self):
        with tempfile.TemporaryDirectory() as empty:
            await self.manager.start_kernel(cwd=str(self.cwd or empty))
        self.client = self.manager.client()
        self.client.start_channels()
        await self.client.wait_for_ready(timeout=60)
        return self

    async def __aexit__(self, *_):
        self.client.stop_channels()
        await self.manager.shutdown_kernel()

    @property
    def isolation(self):
        return self.manager.provisioner.isolation

    async def run(self, code):
        """What a cell prints, and the name of the error it ends in."""
        said = []

        def hear(message):
            content = message["content"]
            if message["msg_type"] == "stream":
                said.append(content["text"])
            elif message["msg_type"] == "error":
                said.append(content["ename"])

        await self.client.execute_interactive(code, output_hook=hear, timeout=60)
        return "".join(said).strip()


def run(code, isolation="best", **settings):
    async def whole():
        async with Kernel(isolation, **settings) as kernel:
            return await kernel.run(code)

    return finish(whole())


@pytest.fixture(scope="module")
def jailed():
    """Skips what needs a jail of our own where the machine allows none, and says why."""
    name, reason = provisioner._strongest()
    if name != "zygote":
        pytest.skip(f"no jail here: {reason}")


def test_a_cell_has_the_same_result_in_and_out_of_a_jail(tmp_path):
    (tmp_path / "helper.py").write_text("NUMBER = 3\n")
    code = """
import torch, attncourse, helper
from attncourse import checks
generator = torch.Generator().manual_seed(helper.NUMBER)
q, k, v = torch.randn(3, 4, 5, generator=generator)
print((torch.softmax(q @ k.mT, -1) @ v).double().sum().item())
checks.attention(lambda query, key, value: value)
try:
    attncourse.attention(q, k, v)
except Exception as error:
    print(error)
1 / 0
"""
    results = {run(code, isolation, cwd=tmp_path) for isolation in ("best", "none")}
    assert len(results) == 1
    assert "ZeroDivisionError" in results.pop()


def test_the_systems_commands_run_without_a_terminal(jailed):
    """IPython's own way needs one, and raises an error: an answer below `!pip install` would be lost."""
    code = "!echo one\nfound = !echo two\n!no_such_command\nprint(found, _exit_code)"
    assert {"one", "['two'] 127"} <= set(run(code).split("\n"))


def test_nothing_outside_can_be_read_written_or_reached(jailed, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    secret = outside / "gradebook.db"
    secret.write_text("marks")
    work = tmp_path / "work"
    work.mkdir()
    (work / "link").symlink_to(secret)
    (work / "data.txt").write_text("handed in")
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    code = f"""
import os, socket, subprocess, sys
def fails(attempt):
    try:
        attempt()
    except (OSError, subprocess.CalledProcessError):
        return
    print("possible:", attempt.__code__.co_firstlineno)
fails(lambda: open({str(secret)!r}))
fails(lambda: open("link"))
fails(lambda: os.listdir({str(outside)!r}))
fails(lambda: open({str(outside / "new")!r}, "w"))
fails(lambda: open({str(ROOT / "solutions/masking/masking.ipynb")!r}))
fails(lambda: open({str(ROOT / "pyproject.toml")!r}))
fails(lambda: open({str(ROOT / "attncourse/masking.py")!r}))
fails(lambda: open("/etc/shadow"))
fails(lambda: open(sys.prefix + "/new", "w"))
fails(lambda: os.chmod(sys.prefix + "/pyvenv.cfg", 0o777))
fails(lambda: open("/new", "w"))
fails(lambda: open("/run/kernel/new", "w"))
fails(lambda: open("/proc/sys/kernel/core_pattern", "w"))
fails(lambda: os.setuid(0))
fails(lambda: socket.create_connection(("127.0.0.1", {port}), timeout=20))
fails(lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"", ("192.0.2.1", 9)))
fails(lambda: subprocess.run(["unshare", "-Ur", "true"], check=True, capture_output=True))
try:
    import attncourse.grading.answers
    print("answers")
except ImportError:
    pass
print(sorted(process for process in os.listdir("/proc") if process.isdigit()))
print("SECRET" in open("/proc/self/environ").read(), open("data.txt").read())
open("data.txt", "w").write("changed")
open("new.txt", "w").write("new")
"""
    os.environ["SECRET"] = "SECRET"
    try:
        said = run(code, cwd=work)
    finally:
        del os.environ["SECRET"]
        server.close()
    assert said == "['1']\nFalse handed in"
    assert (work / "data.txt").read_text() == "handed in"
    assert sorted(path.name for path in work.iterdir()) == ["data.txt", "link"]


def test_a_kernel_survives_what_it_does_to_its_parent_and_to_all_others(jailed):
    code = """
import os, signal
os.kill(os.getppid(), signal.SIGKILL)
try:
    os.kill(-1, signal.SIGKILL)
except ProcessLookupError:
    pass
"""

    async def whole():
        async with Kernel() as one, Kernel() as other:
            assert [await kernel.run(code) for kernel in (one, other)] == ["", ""]
            return [await kernel.run("print('alive')") for kernel in (one, other)]

    assert finish(whole()) == ["alive", "alive"]


async def ended(kernel):
    """Wait until a kernel has come to its end, or for a minute."""
    async with asyncio.timeout(60):
        while await kernel.manager.is_alive():
            await asyncio.sleep(0.01)


KILLERS = {"kernel": 3, "guard": 2, "supervisor": 1, "zygote": 0}


def family_of_kernels():
    """The zygote and, below it, what stands around its one kernel."""
    family = [psutil.Process(provisioner.Zygote.get().process.pid)]
    while below := family[-1].children():
        family.append(below[-1])
    return family


@pytest.mark.parametrize("place", KILLERS)
def test_a_kernel_that_is_killed_from_outside_is_lost(jailed, place):
    async def whole():
        async with Kernel() as kernel:
            victim = family_of_kernels()[KILLERS[place]]
            if place in ("kernel", "guard"):
                os.killpg(os.getpgid(victim.pid), signal.SIGKILL)
            else:
                victim.kill()
            await ended(kernel)
            return kernel.manager.provisioner.lost

    assert finish(whole())


OWN_ENDS = [
    "import os\nos._exit(255)",
    "import ctypes\nctypes.string_at(0)",
    "import os\nos.abort()",
    "import time\nwhile True: pass",  # until its time of computing is over
    "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
]


def test_a_kernel_that_ends_of_itself_is_not_lost(jailed):
    async def whole():
        for code in OWN_ENDS:
            async with Kernel(seconds=5) as kernel:
                kernel.client.execute(code)
                await ended(kernel)
                assert not kernel.manager.provisioner.lost
                assert kernel.manager.provisioner.ending == ""

    finish(whole())


def test_a_kernel_that_is_shut_down_is_not_lost(jailed):
    async def whole():
        kernel = Kernel()
        async with kernel:
            pass
        return kernel.manager.provisioner.lost

    assert not finish(whole())


def test_a_kernel_cannot_kill_itself(jailed):
    code = """
import ctypes, fcntl, os, resource, signal
for target in (os.getpid(), 0, -1):
    try:
        os.kill(target, signal.SIGKILL)
    except ProcessLookupError:
        pass
read, write = os.pipe()
fcntl.fcntl(read, fcntl.F_SETOWN, os.getpid())
fcntl.fcntl(read, fcntl.F_SETSIG, signal.SIGKILL)
fcntl.fcntl(read, fcntl.F_SETFL, os.O_ASYNC)
os.write(write, b"1")
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_PTRACER, PTRACE_SEIZE, PTRACE_O_EXITKILL = 0x59616D61, 0x4206, 0x100000
libc.prctl(PR_SET_PTRACER, ctypes.c_long(-1), 0, 0, 0)
libc.ptrace.argtypes = [ctypes.c_long] * 4
if (child := os.fork()) == 0:
    os._exit(libc.ptrace(PTRACE_SEIZE, os.getppid(), 0, PTRACE_O_EXITKILL) and ctypes.get_errno())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), "alive")
print(resource.getrlimit(resource.RLIMIT_RTPRIO))
"""
    assert run(code) == "1 alive\n(0, 0)"


HUNGRY = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = b"1" * (300 << 20)
        time.sleep(600)
time.sleep(600)
"""


@pytest.mark.parametrize("isolation", ["best", "none"])
def test_what_all_processes_of_a_notebook_compute_is_known(isolation):
    code = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', {!r}])"
    computing = code.format("import time\nwhile time.process_time() < 0.5: pass")

    async def whole():
        async with Kernel(isolation) as kernel:
            begun = kernel.manager.provisioner.computed
            await kernel.run(computing)
            return kernel.manager.provisioner.computed - begun

    assert 0.45 < finish(whole()) < 5


def test_the_memory_of_all_processes_is_limited_together(jailed):
    async def whole():
        async with Kernel(memory=1 << 30) as hungry, Kernel(memory=1 << 30) as other:
            # What processes share is no hunger: each of these has all the libraries.
            await other.run("import os, time\nfor _ in range(20):\n    if os.fork() == 0: time.sleep(600)")
            hungry.client.execute(HUNGRY)
            await ended(hungry)
            was = hungry.manager.provisioner
            return was.ending, was.lost, await other.run("print('alive')")

    ending = "Its processes used more than 1 GB of memory together."
    assert finish(whole()) == (ending, False, "alive")


FULL_SOCKETS = """
import os, socket, time
for _ in range(12):
    if os.fork() == 0:
        break
kept = []
for _ in range(450):
    kept += socket.socketpair()
    for one in kept[-2:]:
        one.setblocking(False)
        try:
            while True:
                one.send(bytes(1 << 16))
        except BlockingIOError:
            pass
time.sleep(600)
"""
MANY_THAT_SHARE = """
import mmap, os, time
private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
shared = mmap.mmap(-1, 700 << 20, private)
for place in range(0, len(shared), 4096):
    shared[place] = 1
heard, say = os.pipe()
for _ in range(25):
    if os.fork() == 0:
        os.read(heard, 1)
        own = mmap.mmap(-1, 60 << 20, private)
        own.write(bytes(60 << 20))
        time.sleep(600)
time.sleep(1)
os.write(say, bytes(25))
time.sleep(600)
"""
MANY_LOCKS = """
import fcntl, os, time
for name in range(200):
    file = os.open(f"{name}", os.O_RDWR | os.O_CREAT)
    for place in range(1000, 0, -1):
        fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * place)
time.sleep(600)
"""


@pytest.mark.parametrize(
    "code", [FULL_SOCKETS, MANY_THAT_SHARE, MANY_LOCKS], ids=["full sockets", "many that share", "many locks"]
)
def test_memory_that_is_hard_to_count_is_counted(jailed, code):
    async def whole():
        async with Kernel(memory=2 << 30) as kernel:
            kernel.client.execute(code)
            await ended(kernel)
            return kernel.manager.provisioner.ending

    assert finish(whole()) == "Its processes used more than 2 GB of memory together."


@pytest.mark.skipif(sys.platform != "linux", reason="jails are made of what only Linux has")
def test_who_begins_to_share_while_memory_is_counted_is_counted(monkeypatch):
    there = ["1", "2"]

    def proportional(number):
        there[2:] = ["3", "4"]  # two more share the 120 before the first is looked at
        return 120 // len(there)

    monkeypatch.setattr(jail, "_processes", lambda: [*there])
    monkeypatch.setattr(jail, "_in_sockets", lambda _: 0)
    monkeypatch.setattr(jail, "_resident", lambda _: 120)
    monkeypatch.setattr(jail, "_proportional", proportional)
    memory = jail.Memory()
    assert [memory.is_more_than(100) for _ in range(2)] == [False, True]


@pytest.mark.skipif(sys.platform != "linux", reason="jails are made of what only Linux has")
def test_who_gives_back_what_others_share_hides_no_hunger(monkeypatch):
    """Else everything would be counted anew by shares, which can be made to take long."""
    resident, looks = {"1": 100, "2": 100, "3": 100}, []

    def proportional(number):
        looks.append(number)
        return 33

    monkeypatch.setattr(jail, "_processes", lambda: [*resident])
    monkeypatch.setattr(jail, "_in_sockets", lambda _: 0)
    monkeypatch.setattr(jail, "_resident", resident.get)
    monkeypatch.setattr(jail, "_proportional", proportional)
    memory = jail.Memory()
    assert not memory.is_more_than(150)
    resident["2"] = 0
    assert not memory.is_more_than(150)
    resident["1"] += 90
    assert memory.is_more_than(150)
    assert len(looks) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="jails are made of what only Linux has")
def test_locks_count_however_much_is_shared(monkeypatch):
    monkeypatch.setattr(jail, "_processes", lambda: ["1", "2"])
    monkeypatch.setattr(jail, "_in_sockets", lambda _: 0)
    monkeypatch.setattr(jail, "_resident", lambda _: 90)
    monkeypatch.setattr(jail, "_proportional", lambda _: 45)
    memory = jail.Memory()
    assert not memory.is_more_than(100)
    monkeypatch.setattr(jail, "_locks_are_too_many", lambda: True)
    assert memory.is_more_than(100)


STEPS = st.lists(
    st.tuples(st.sampled_from(["take", "give", "fork", "end", "look"]), st.integers(0, 5), st.integers(1, 8)),
    max_size=60,
)


@pytest.mark.skipif(sys.platform != "linux", reason="jails are made of what only Linux has")
@given(steps=STEPS, limit=st.integers(1, 40))
@example(
    steps=[
        *(("take", 0, 8), ("fork", 0, 1), ("fork", 0, 1), ("look", 0, 1), ("take", 1, 2), ("look", 0, 1)),
        *(("end", 1, 1), ("take", 0, 2), ("look", 0, 1)),
    ],
    limit=10,
)
def test_memory_that_is_shared_is_counted_once(steps, limit):
    """Processes that take pages, give them back, share them with children and end."""
    held, memory, new = {"1": frozenset()}, jail.Memory(), itertools.count(2)
    size_of_page = 60  # which up to six can share

    def proportional(number):
        others = Counter(page for pages in held.values() for page in pages)
        return sum(size_of_page // others[page] for page in held[number])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jail, "_processes", lambda: [*held])
        patch.setattr(jail, "_in_sockets", lambda _: 0)
        patch.setattr(jail, "_locks_are_too_many", lambda: False)
        patch.setattr(jail, "_resident", lambda number: len(held[number]) * size_of_page)
        patch.setattr(jail, "_proportional", proportional)
        for what, which, size in steps:
            number = sorted(held)[which % len(held)]
            if what == "take":
                held[number] |= {next(new) for _ in range(size)}
            elif what == "give":
                held[number] = frozenset(sorted(held[number])[size:])
            elif what == "fork" and len(held) < 6:
                held[str(next(new))] = held[number]
            elif what == "end" and len(held) > 1:
                del held[number]
            elif what == "look":
                used = len(frozenset().union(*held.values())) * size_of_page
                assert memory.is_more_than(limit * size_of_page) == (used > limit * size_of_page)


SENDERS = [
    # Messages below the bound for each ...
    "display({'text/plain': 'x' * (20 << 20)}, raw=True)",
    # ... and one that has no end, of parts below it.
    "get_ipython().kernel.iopub_socket.io_thread.socket.send(bytes(20 << 20), 2)",
]


@pytest.mark.parametrize("send", SENDERS)
def test_what_a_kernel_makes_others_read_is_limited_in_all(jailed, send):
    async def whole():
        async with Kernel(reading=1 << 28) as kernel:
            before = psutil.Process().memory_info().rss
            kernel.client.execute(f"for _ in range(100): {send}")
            most = before
            while await kernel.manager.is_alive():
                most = max(most, psutil.Process().memory_info().rss)
                await asyncio.sleep(0.01)
            return kernel.manager.provisioner.ending, most - before

    ending, grown = finish(whole())
    assert ending == "Reading what it printed and returned took more than 0.25 GB of memory."
    assert grown < 1 << 30


def test_calls_that_go_around_a_jail_are_refused(jailed):
    code = """
import ctypes, mmap, multiprocessing, os, resource, socket, tempfile
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(425, 8, ctypes.create_string_buffer(200)), ctypes.get_errno())
print(libc.vmsplice(os.pipe()[1], None, 0, 0), resource.getrlimit(resource.RLIMIT_NOFILE)[1] <= 1024)
print(libc.semget(0, 32000, 0o600), libc.msgget(0, 0o600), libc.shmget(0, 4096, 0o600))
for attempt in (
    lambda: os.memfd_create("name"),
    lambda: socket.socket(socket.AF_VSOCK),
    lambda: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET),
    lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2),
    lambda: mmap.mmap(-1, 4096),
    *[
        lambda kind=kind: socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, kind, 1 << 20)
        for kind in (socket.SO_SNDBUF, socket.SO_RCVBUF)
    ],
):
    try:
        attempt()
    except PermissionError:
        print("refused")
a, b = socket.socketpair()
a.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
socket.create_server(("127.0.0.1", 0)).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)[:2] = b"ab"
with tempfile.TemporaryFile() as file:
    file.truncate(4096)
    mmap.mmap(file.fileno(), 4096)[:2] = b"ab"
print(multiprocessing.get_context("fork").Value("i", 3).value, os.path.exists("/dev/zero"))
"""
    assert run(code).splitlines() == ["-1 1", "-1 True", "-1 -1 -1", *["refused"] * 7, "3 False"]


def test_processes_memory_and_space_are_limited(jailed):
    code = """
import mmap, os, time, torch
children = 0
try:
    while children < 200:
        if os.fork() == 0:
            time.sleep(100)
            os._exit(0)
        children += 1
except BlockingIOError:
    print("no more processes", children < 64)
private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
for hog in (bytearray, lambda size: mmap.mmap(-1, size, private), lambda size: torch.empty(size // 4)):
    try:
        hog(6 << 30)
    except (MemoryError, OSError, RuntimeError):
        print("no more memory")
try:
    for number in range(100):
        with open(f"{number}", "wb") as file:
            file.write(bytes(1 << 20))
except OSError as error:
    print("no more space", number < 32)
print(torch.zeros(1 << 28).sum().item())
"""
    expected = ["no more processes True", *["no more memory"] * 3, "no more space True", "0.0"]
    assert run(code, space=32 << 20).splitlines() == expected


def test_as_many_threads_as_at_home_may_be_asked_for(jailed):
    code = "import torch\ntorch.set_num_threads(64)\nx = torch.ones(600, 600)\nprint((x @ x).sum().item())"
    assert run(code) == str(600.0**3)


def test_what_a_kernel_started_and_wrote_ends_with_it(jailed, tmp_path):
    seconds = f"31536.{os.getpid()}"
    code = f"""
import subprocess
subprocess.Popen(["sleep", "{seconds}"], start_new_session=True)
open("left.txt", "w").write("left")
"""

    def sleepers():
        return [one for one in psutil.process_iter(["cmdline"]) if seconds in (one.info["cmdline"] or [])]

    async def whole():
        async with Kernel(cwd=tmp_path) as kernel:
            await kernel.run(code)
            box = Path(kernel.manager.provisioner._box.name)
            assert box.exists()
            assert sleepers()
        return box

    assert not finish(whole()).exists()
    assert not sleepers()
    assert list(tmp_path.iterdir()) == []


def test_a_killed_zygote_is_replaced_and_takes_its_kernels_along(jailed):
    async def whole():
        async with Kernel() as kernel:
            first = provisioner.Zygote.get().process
            first.kill()
            first.wait()
            while await kernel.manager.is_alive():
                await asyncio.sleep(0.01)
            async with Kernel() as another:
                assert provisioner.Zygote.get().process is not first
                return another.isolation, await another.run("print('alive')")

    assert finish(whole()) == ("zygote", "alive")


def test_zygote_and_kernels_end_with_the_grader(jailed, tmp_path):
    """Killed, so that nothing of it can tidy up."""
    code = """
import asyncio, os, psutil, signal, sys
from attncourse.grading import judging
from attncourse.grading.job import NotGraded
from attncourse.grading.kernels import KernelManager
async def whole():
    manager = KernelManager()
    await manager.start_kernel(cwd=sys.argv[1])
    print(manager.provisioner._box.name, *(one.pid for one in psutil.Process().children(recursive=True)))
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(whole())
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    box, *numbers = done.stdout.split()
    shutil.rmtree(box)
    assert len(numbers) >= 4  # zygote, supervisor, the first in the jail, the kernel
    left = [psutil.Process(int(number)) for number in numbers if psutil.pid_exists(int(number))]
    assert not psutil.wait_procs(left, timeout=20)[1]


def test_kernels_do_not_share_their_chance(jailed):
    code = "import random, numpy, torch; print(random.random(), numpy.random.rand(), torch.rand(1).item())"

    async def whole():
        async with Kernel() as one, Kernel() as other:
            return await asyncio.gather(one.run(code), other.run(code))

    one, other = (said.split() for said in finish(whole()))
    assert all(mine != yours for mine, yours in zip(one, other, strict=True))


def test_an_endless_cell_is_interrupted_and_the_next_one_runs(tmp_path):
    cells = ["print('before')", "while True: pass", "print('after')"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "", "language": "python"}
    execute = Execute(kernel_manager_class=KernelManager, timeout=2)
    done, _ = execute.preprocess(notebook, {"metadata": {"path": str(tmp_path)}})
    before, endless, after = (cell.outputs for cell in done.cells)
    assert before[0].text == "before\n"
    assert "KeyboardInterrupt" in [output.get("ename") for output in endless]
    assert after[0].text == "after\n"


def graded(folder, *cells, seconds=3, **settings):
    """A notebook of these cells, run as grading runs it."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "", "language": "python"}
    execute = judging.Execute(config=Config({"Provisioner": settings}), timeout=seconds, grace=1)
    execute.preprocess(notebook, {"metadata": {"path": str(folder)}})
    return [
        [output.get("text", output.get("evalue") or output.get("ename")) for output in cell.outputs]
        for cell in execute.nb.cells
    ]


def test_a_notebook_whose_kernel_is_killed_from_outside_is_not_graded(jailed, tmp_path, monkeypatch):
    runs = threading.Event()
    run_cell = judging.Execute._run

    def run(self, *arguments):
        runs.set()
        return run_cell(self, *arguments)

    monkeypatch.setattr(judging.Execute, "_run", run)

    def kill():
        runs.wait()
        os.killpg(os.getpgid(family_of_kernels()[-1].pid), signal.SIGKILL)

    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill)
        with pytest.raises(NotGraded, match="killed from outside") as reason:
            graded(tmp_path, "import time\nwhile True:\n    time.sleep(0.01)")
        killed.result()
    assert reason.value.again


def test_what_a_notebook_did_before_its_hunger_ended_it_stays(jailed, tmp_path):
    before, ended = graded(tmp_path, "print('before')", HUNGRY, seconds=60, memory=1 << 30)
    assert before == ["before\n"]
    assert ended == [
        "The Python process came to an end. Its processes used more than 1 GB of memory together."
    ]


def test_bytes_on_the_sockets_of_a_kernel_hold_nobody_up(jailed, tmp_path):
    noise = """
import os, stat
numbers = [int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
sockets = [number for number in numbers if stat.S_ISSOCK(os.fstat(number).st_mode)]
for number in sockets:
    os.set_blocking(number, False)
while True:
    for number in sockets:
        try:
            os.write(number, os.urandom(100_000))
        except OSError:
            pass
"""
    with at_most(100):  # what waits for ever should fail, and not hold up all tests
        before, noisy = graded(tmp_path, "print('before')", noise)
    assert before == ["before\n"]
    assert "did not come to an end" in noisy[-1] or "could not be understood" in noisy[-1]


def test_an_endless_recursion_is_told_at_once_and_shortly(jailed, tmp_path):
    cells = ["def again(n):\n    return again(n)", "again(1)", "print('after')"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "", "language": "python"}
    execute = judging.Execute(timeout=60)
    execute.preprocess(notebook, {"metadata": {"path": str(tmp_path)}})
    _, recursion, after = (cell.outputs for cell in execute.nb.cells)
    assert after[0].text == "after\n"
    (error,) = recursion
    assert error.ename == "RecursionError"
    assert "again(1)" in "".join(error.traceback)
    assert 10 < len(error.traceback) < 100


def test_plots_are_shown(tmp_path):
    code = "import matplotlib.pyplot as plt\nplt.plot([0, 1]);"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "", "language": "python"}
    done, _ = Execute(kernel_manager_class=KernelManager).preprocess(
        notebook, {"metadata": {"path": str(tmp_path)}}
    )
    (output,) = done.cells[0].outputs
    assert "image/png" in output.data


def test_a_folder_that_is_too_large_is_refused(tmp_path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(ValueError, match="holds more than"):
        run("", cwd=tmp_path)


def test_other_kernels_and_settings_are_refused(tmp_path):
    with pytest.raises(NoSuchKernel):
        finish(KernelManager(kernel_name="bash").start_kernel(cwd=str(tmp_path)))
    with pytest.raises(ValueError, match="expected best, required or none"):
        run("", "some")


@pytest.fixture
def no_namespaces(monkeypatch):
    """A machine where no kernel can be forked into a jail."""

    class Refuses:
        refusal = "forbidden"

    provisioner._strongest.cache_clear()
    monkeypatch.setattr(provisioner.Zygote, "get", Refuses)
    yield
    provisioner._strongest.cache_clear()


FILES = """
import os
for path in {!r}:
    try:
        open(path).read()
        print("read")
    except OSError:
        print("refused")
"""


def test_without_namespaces_landlock_or_bubblewrap_keeps_the_files(no_namespaces, tmp_path):
    name, reason = provisioner._strongest()
    assert "forbidden" in reason
    if name == "process":
        pytest.skip(f"neither here: {reason}")
    if name == "landlock":
        with pytest.raises(NotGraded, match=r"no jail is possible.*forbidden.*say --isolation best"):
            run("", "required")
    (tmp_path / "gradebook.db").touch()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data.txt").touch()
    paths = [str(tmp_path / "gradebook.db"), str(ROOT / "attncourse" / "masking.py"), "data.txt"]
    ours = "import attncourse.masking\nprint(repr(attncourse.masking.causal_mask))"
    said = run(FILES.format(paths) + ours, cwd=tmp_path / "work")
    absent = "<attncourse.masking.causal_mask, which is not there in grading>"
    assert said.splitlines() == ["refused", "refused", "read", absent]


def test_without_any_jail_a_plain_process_runs_unless_one_is_required(no_namespaces, monkeypatch):
    monkeypatch.setattr(provisioner, "_launcher", lambda *_: ["false"])
    assert provisioner._strongest()[0] == "process"
    monkeypatch.undo()
    with pytest.raises(NotGraded, match=r"no jail is possible.*forbidden.*say --isolation best"):
        run("", "required")

    async def whole():
        async with Kernel() as best, Kernel("none") as none:
            return best.isolation, none.isolation, await best.run("print('ran')")

    assert finish(whole()) == ("process", "process", "ran")
