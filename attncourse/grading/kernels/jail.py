"""A jail for the kernel of one notebook, from what Linux gives to everyone: namespaces and resource limits.

What runs in it sees a file system of its own: the interpreter and the libraries, read-only, and
one writable place in memory that ends with the jail. It has no network, sees no process but its
own, has no privilege and cannot regain one. No privileges are needed to make it, and root
makes it, too: what runs in it is then nobody.

The five steps, each by the process that must take it::

    unshare()         a process that is to be the jail's supervisor, still outside
    map_ids(pid)      that process's parent
    unshare_pids()    the supervisor's child, the guard
    build(...)        the guard's child, which is number 1 of its process namespace and runs the notebook
    drop(limits)      the same

See namespaces(7), user_namespaces(7), pid_namespaces(7), pivot_root(2), mount_setattr(2), capabilities(7)
and seccomp(2).
"""

import ctypes
import errno
import json
import os
import platform
import re
import resource
import shutil
import socket
import struct
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

# The jail's own paths, the same for every notebook.
HOME, WORK, SOCKETS = "/tmp/home", "/tmp/work", "/run/kernel"
# Where the `attncourse` lies that is made for the notebook.
COURSE = "/course"
# Who runs the notebook when root grades.
NOBODY = 65534

_SYSTEM = [
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/sbin",
    "/usr",
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/sys/devices/system/cpu",
    "/var/cache/fontconfig",
]
_ACCOUNTS = ["/etc/group", "/etc/nsswitch.conf", "/etc/passwd"]
# Not `zero`: memory that is shared by it is counted for no process.
_DEVICES = ["full", "null", "random", "urandom"]
_DEVICE_LINKS = {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}

# From <linux/sched.h>, <linux/mount.h>, <linux/prctl.h>, <linux/capability.h> and <linux/landlock.h>.
_NEW_PIDS = 0x20000000
_NEW_NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 0x2, 0x4, 0x8, 0x1000, 0x4000, 0x40000
_ATTR_RDONLY, _ATTR_NOSUID = 0x1, 0x2
_AT_FDCWD, _AT_RECURSIVE, _MNT_DETACH = -100, 0x8000, 2
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_CAPABILITY_VERSION_3 = 0x20080522
_MOUNT_SETATTR = 442
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
# From <linux/audit.h> and <asm/unistd.h>: io_uring_setup, _enter and _register, memfd_secret, and by the
# architecture memfd_create, shmget, semget, msgget, vmsplice, bpf, userfaultfd, perf_event_open, add_key,
# request_key, keyctl and ptrace, by which number 1 of a process namespace can be killed from inside.
_EVERYWHERE = (425, 426, 427, 447)
_FORBIDDEN = {
    "x86_64": (0xC000003E, (*_EVERYWHERE, 319, 29, 64, 68, 278, 321, 323, 298, 248, 249, 250, 101)),
    "aarch64": (0xC00000B7, (*_EVERYWHERE, 279, 194, 190, 186, 75, 280, 282, 241, 217, 218, 219, 117)),
}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_SET_SOCKET_OPTION = {"x86_64": 54, "aarch64": 208}
_MAP_MEMORY = {"x86_64": 9, "aarch64": 222}
_SHARED_MEMORY = 0x21  # MAP_SHARED and MAP_ANONYMOUS
_SIZES_OF_BUFFERS = 7, 8, 32, 33  # SO_SNDBUF, SO_RCVBUF and the two that go beyond the system's limits
_NETLINK_ROUTE = 0
_LONGEST_LOCKS = 2**22  # bytes of the list of locks, each of which takes some 60 there, and 250 of memory
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True)


def unshare() -> None:
    """Enter new mount, UTS, IPC, user, process and network namespaces."""
    if platform.machine() not in _PIVOT_ROOT:
        raise OSError(f"no jail on the architecture {platform.machine()}")
    _do("unshare", _NEW_NAMESPACES)


def unshare_pids() -> None:
    """Have the next child be number 1 of a process namespace.

    No process in there can kill it: a signal to number 1 that it does not handle is ignored, SIGKILL,
    too, unless it comes from outside.
    """
    _do("unshare", _NEW_PIDS)


def map_ids(pid: int) -> None:
    """Give a process that has entered its user namespace the users it may be.

    They are its own, and for root nobody, too, whom it is to become.
    """
    folder = Path("/proc", str(pid))
    if os.geteuid() != 0:
        # Without it no one but root may write the groups.
        (folder / "setgroups").write_text("deny")
    for kind, number in (("uid", os.geteuid()), ("gid", os.getegid())):
        lines = f"{number} {number} 1\n"
        if os.geteuid() == 0:
            lines += f"{NOBODY} {NOBODY} 1\n"
        (folder / f"{kind}_map").write_text(lines)


def build(box: str, space: int, course: str, hidden: str) -> None:
    """Make the jail's file system and enter it.

    Parameters
    ----------
    box : str
        A folder outside with four folders: `home` and `work`, which are copied; `sockets`, which
        inside and outside share; `root`, in which the file system is built.
    space : int
        How many bytes can be written in all, in each of the two writable places.
    course : str
        A folder outside that becomes `COURSE`.
    hidden : str
        A folder that is empty inside, wherever it is: the course's own package.
    """
    owner = (NOBODY, NOBODY) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    # The first to go when memory runs short.
    Path("/proc/self/oom_score_adj").write_text("1000")
    _mount("none", "/", None, _REC | _PRIVATE)
    _mount("tmpfs", f"{box}/root", "tmpfs", _NOSUID | _NODEV, "mode=0755,size=4m")
    os.chdir(f"{box}/root")
    for path in ("tmp", "dev/shm"):
        os.makedirs(path)
        _mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV, f"mode=1777,size={space},nr_inodes=20000")
    for path in readable():
        _show(path)
    if os.path.isdir(f".{hidden}"):
        _mount("tmpfs", f".{hidden}", "tmpfs", _NOSUID | _NODEV, "mode=0755,size=4k")
        _read_only(f".{hidden}")
    os.mkdir(f".{COURSE}")
    _mount(course, f".{COURSE}", None, _BIND | _REC)
    _read_only(f".{COURSE}", _AT_RECURSIVE)
    for name in _DEVICES:
        Path("dev", name).touch()
        _mount(f"/dev/{name}", f"dev/{name}", None, _BIND)
    for name, number in _DEVICE_LINKS.items():
        os.symlink(f"/proc/self/fd{number}", f"dev/{name}")
    os.makedirs(f".{SOCKETS}")
    _mount(f"{box}/sockets", f".{SOCKETS}", None, _BIND | _REC)
    os.makedirs("etc", exist_ok=True)
    Path("etc/passwd").write_text(f"student:x:{owner[0]}:{owner[1]}::{HOME}:/bin/sh\n")
    Path("etc/group").write_text(f"student:x:{owner[1]}:\n")

    for name, place in (("home", HOME), ("work", WORK)):
        shutil.copytree(f"{box}/{name}", f".{place}", symlinks=True)
        for here, _, names in os.walk(f".{place}"):
            for path in (here, *(os.path.join(here, name) for name in names)):
                os.chown(path, *owner, follow_symlinks=False)
    os.chown(f".{SOCKETS}", *owner)

    os.mkdir("proc")
    _mount("proc", "proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    # No second user namespace: nothing inside needs one, and one would give back privileges.
    Path("proc/sys/user/max_user_namespaces").write_text("0")
    _read_only("proc")
    _read_only(".")
    if _libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b".") == -1:
        raise _failure("pivot_root")
    _do("umount2", b".", _MNT_DETACH)
    os.chdir(WORK)
    socket.sethostname("notebook")


def drop(limits: dict[str, int]) -> None:
    """Become nobody if root, give up all privileges for good and take the limits (names as in `resource`)."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    _give_up_privileges()
    forbid_calls()
    limit(limits)


def forbid_calls() -> None:
    """Have the system refuse, from now on, calls that no notebook needs and that go around a jail.

    They are asynchronous input and output, whose flaws have opened jails before; memory that no process
    is counted for: what processes share without a file, System V's semaphores and messages, larger buffers
    of sockets; sockets other than those of files and of the jail's own network (to the host of a virtual
    machine, say); and what only debuggers and administrators use. The filter is short enough to be written
    down here; a library for it would have to be installed beside Python.
    """
    _give_up_privileges()
    machine = platform.machine()
    architecture, calls = _FORBIDDEN[machine]
    load, both, equal, at_least, end = 0x20, 0x54, 0x15, 0x35, 0x06
    refuse, allow = 0x00050000 | errno.EPERM, 0x7FFF0000
    first, second, fourth = 16, 24, 40  # where a call's arguments begin
    # Each step: what to do, how many steps to skip if it is so, and if not, and with what number.
    steps = [(load, 0, 0, 4), (equal, 1, 0, architecture), (end, 0, 0, refuse), (load, 0, 0, 0)]
    for call in calls:
        steps += [(equal, 0, 1, call), (end, 0, 0, refuse)]
    steps += [(at_least, 0, 1, 0x40000000), (end, 0, 0, refuse)]  # a second set of calls, on x86_64
    steps += [(equal, 0, 5, _MAP_MEMORY[machine]), (load, 0, 0, fourth), (both, 0, 0, _SHARED_MEMORY)]
    steps += [(equal, 0, 1, _SHARED_MEMORY), (end, 0, 0, refuse), (end, 0, 0, allow)]
    sizes = [(equal, 0, 1, option) for option in _SIZES_OF_BUFFERS]
    sizes = [step for size in sizes for step in (size, (end, 0, 0, refuse))]
    steps += [(equal, 0, 5 + len(sizes), _SET_SOCKET_OPTION[machine]), (load, 0, 0, second)]
    steps += [(equal, 1, 0, socket.SOL_SOCKET), (end, 0, 0, allow), (load, 0, 0, second + 8), *sizes]
    steps.append((end, 0, 0, allow))
    steps += [(equal, 1, 0, _SOCKET[machine]), (end, 0, 0, allow), (load, 0, 0, first)]
    for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
        steps += [(equal, 0, 1, family), (end, 0, 0, allow)]
    steps += [(equal, 1, 0, socket.AF_NETLINK), (end, 0, 0, refuse), (load, 0, 0, second + 8)]
    steps += [(equal, 0, 1, _NETLINK_ROUTE), (end, 0, 0, allow), (end, 0, 0, refuse)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(code))
    _do("prctl", _PR_SET_SECCOMP, 2, program, 0, 0)


def limit(limits: dict[str, int]) -> None:
    """Take resource limits, or stricter ones where there are some already."""
    for name, most in limits.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


class Memory:
    """What the processes in /proc hold of memory together, files left out.

    They are counted in a way that takes microseconds and counts what they share, as after a fork, for each of
    them; only if that is too much as it is, by shares. This takes the longer the more is shared: until it is
    done anew, the sum is known by two bounds, from what each process has taken and given back since.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._least, self._most = 0, sys.maxsize
        self._resident: dict[str, int] = {}
        self._own: dict[str, int] = {}  # at most

    def is_more_than(self, limit: int) -> bool:
        """Whether it is more than so many bytes, or they hold as much in another way."""
        if _locks_are_too_many():
            return True
        numbers = _processes()
        limit -= _in_sockets(numbers)
        resident = {number: _resident(number) for number in numbers}
        if sum(resident.values()) <= limit:
            self._begin()
            return False
        self._follow(resident)
        if self._least <= limit < self._most:
            self._own = {number: _proportional(number) for number in numbers}
            self._least = self._most = sum(self._own.values())
            before, self._resident = resident, {number: _resident(number) for number in numbers}
            # Of what was taken meanwhile some is counted, and of what others then shared nothing.
            self._most += sum(max(0, size - before[number]) for number, size in self._resident.items())
            if _processes() != numbers:
                self._most = sys.maxsize
        return self._least > limit

    def _follow(self, resident: dict[str, int]) -> None:
        # One that is new shares all that it has; one that has ended had no more than its own.
        for number, size in resident.items():
            taken = size - self._resident.get(number, size)
            own = self._own.get(number, 0)
            self._own[number] = max(0, own + taken)
            self._least += max(taken, -own)
            self._most += max(0, taken)
        for number in self._own.keys() - resident.keys():
            self._least -= self._own.pop(number)
        self._resident = resident


def _processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _locks_are_too_many() -> bool:
    """Whether processes hold so many locks on parts of files that these take more than a little memory."""
    try:
        with open("/proc/locks", "rb") as locks:
            return len(locks.read(_LONGEST_LOCKS)) == _LONGEST_LOCKS
    except OSError:
        return False


def _in_sockets(numbers: Sequence[str]) -> int:
    """The most that the sockets of a network, which these processes share, can hold in bytes."""
    for number in numbers:
        try:
            (used,) = re.findall(r"sockets: used (\d+)", Path(f"/proc/{number}/net/sockstat").read_text())
            size = int(Path("/proc/sys/net/core/wmem_default").read_text())
        except (OSError, ValueError):
            continue
        # The system counts what it keeps with a message, too, and looks before it takes the last one.
        return 2 * size * int(used)
    return 0


def _resident(number: str) -> int:
    return _kilobytes(f"/proc/{number}/status", ("RssAnon:", "RssShmem:", "VmSwap:"))


def _proportional(number: str) -> int:
    # A process can keep others from looking into it.
    fields = ("Pss_Anon:", "Pss_Shmem:", "SwapPss:")
    return _kilobytes(f"/proc/{number}/smaps_rollup", fields) or _resident(number)


def _kilobytes(path: str, fields: Sequence[str]) -> int:
    """The sum of these fields in bytes; 0 where the file cannot be read, as when its process has ended."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(tuple(fields)))


def die_with_parent() -> None:
    """Ask for the end of this process when its parent's comes. Becoming another user takes it back."""
    _do("prctl", _PR_SET_PDEATHSIG, 9, 0, 0, 0)


def set_dumpable(yes: bool) -> None:
    """Let processes of the same user look into this one, or not."""
    _do("prctl", _PR_SET_DUMPABLE, int(yes), 0, 0, 0)


def seal_sockets() -> None:
    """Let nothing more be written where inside and outside meet; what is there can be used."""
    _read_only(SOCKETS)


def restrict(readable: Iterable[str], listable: Iterable[str], writable: Iterable[str]) -> None:
    """Keep this process, by Landlock, to what it may read, list and write, each with all that is beneath.

    Where the kernel is new enough, TCP (Linux 6.7) and signals to other processes (6.12) are refused,
    too. See landlock(7).

    Raises
    ------
    OSError
        If there is no Landlock.
    """
    version = _libc.syscall(*map(ctypes.c_long, (_LANDLOCK_CREATE_RULESET, 0, 0, 1)))
    if version < 1:
        raise _failure("landlock")
    everything = (1 << (13 + (version >= 2) + (version >= 3) + (version >= 5))) - 1
    attributes = (ctypes.c_uint64 * 3)(everything, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = ctypes.sizeof(attributes) if version >= 6 else 16 if version >= 4 else 8
    number = ctypes.c_long(_LANDLOCK_CREATE_RULESET)
    rules = _libc.syscall(number, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_long(0))
    if rules == -1:
        raise _failure("landlock_create_ruleset")
    for paths, folder_rights, file_rights in (
        (readable, _EXECUTE | _READ_FILE | _READ_DIR, _EXECUTE | _READ_FILE),
        (listable, _READ_DIR, 0),
        (writable, everything, everything & (_EXECUTE | _READ_FILE | _WRITE_FILE | _TRUNCATE)),
    ):
        for path in paths:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rights = folder_rights if os.path.isdir(path) else file_rights
            rule = struct.pack("=Qi", rights, place)
            arguments = map(ctypes.c_long, (_LANDLOCK_ADD_RULE, rules, 1))
            if _libc.syscall(*arguments, rule, ctypes.c_long(0)) == -1:
                raise _failure(f"landlock_add_rule {path}")
            os.close(place)
    _give_up_privileges()
    if _libc.syscall(*map(ctypes.c_long, (_LANDLOCK_RESTRICT_SELF, rules, 0))) == -1:
        raise _failure("landlock_restrict_self")
    os.close(rules)


def readable() -> list[str]:
    """What the jail shows: the system's programs and libraries, and the interpreter's."""
    # Not the prefixes themselves: an environment may have been made in the course's own folder.
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    paths = {f"{prefix}/{part}" for prefix in prefixes for part in ("bin", "lib", "lib64", "share", "etc")}
    paths |= {f"{prefix}/pyvenv.cfg" for prefix in prefixes}
    # A folder on the path may be the course, with all that is handed in: only packages installed
    # for good are shown.
    paths |= {path for path in sys.path if "site-packages" in path or "dist-packages" in path}
    paths |= {*_SYSTEM}
    paths |= {os.path.realpath(path) for path in paths}
    shown: list[str] = []
    for path in sorted(os.path.abspath(path) for path in paths if os.path.exists(path)):
        if not any(path.startswith(f"{above}/") or path == above for above in shown):
            shown.append(path)
    return shown


def _without(paths: Iterable[str], hidden: str) -> tuple[list[str], list[str]]:
    """The same files without a folder; and the folders above it, which are no longer among them."""
    left, above = [], []
    for path in paths:
        if hidden.startswith(f"{path}/"):
            inside = _without([f"{path}/{name}" for name in os.listdir(path)], hidden)
            left += inside[0]
            above += [path, *inside[1]]
        elif path != hidden:
            left.append(path)
    return left, above


def _show(path: str) -> None:
    os.makedirs(f".{os.path.dirname(path)}", exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), f".{path}")
        return
    if os.path.isdir(path):
        os.makedirs(f".{path}", exist_ok=True)
    else:
        Path(f".{path}").touch()
    _mount(path, f".{path}", None, _BIND | _REC)
    _read_only(f".{path}", _AT_RECURSIVE)


def _give_up_privileges() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _do("capset", header, (ctypes.c_uint32 * 6)())
    _do("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace")]


def _read_only(path: str, flags: int = 0) -> None:
    attributes = _MountAttributes(set=_ATTR_RDONLY | _ATTR_NOSUID)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    # Numbers as wide as registers: syscall() takes what comes.
    number, here, how = (ctypes.c_long(value) for value in (_MOUNT_SETATTR, _AT_FDCWD, flags))
    if _libc.syscall(number, here, os.fsencode(path), how, ctypes.byref(attributes), size) == -1:
        raise _failure(f"mount_setattr {path}")


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    kind_name = None if kind is None else kind.encode()
    arguments = (os.fsencode(source), os.fsencode(target), kind_name, ctypes.c_ulong(flags), options.encode())
    if _libc.mount(*arguments) == -1:
        raise _failure(f"mount {target}")


def _do(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) == -1:
        raise _failure(name)


def _failure(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


def main(arguments: Sequence[str]) -> None:
    """Take limits, keep to a folder if there is one to keep to, and become another program."""
    limits, box, course, *command = arguments
    limit(json.loads(limits))
    if platform.machine() in _FORBIDDEN:
        forbid_calls()
    if box:
        paths, listable = _without(readable(), str(Path(__file__).parents[2]))
        devices = [f"/dev/{name}" for name in _DEVICES]
        paths += ["/proc", *_ACCOUNTS, course]
        restrict(filter(os.path.exists, paths), listable, [box, *devices])
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
