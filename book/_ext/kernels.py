"""Kernels for the pages of the book, forked from one process that has imported what each of them needs."""

import multiprocessing
import os
import signal
import sys
from typing import Any

from jupyter_client import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner

# What takes a kernel longest while it starts, and in its first cells. Nothing of it draws or computes yet.
IMPORTS = [
    "ipykernel.kernelapp",
    "IPython.core.completerlib",
    "matplotlib.backends.backend_svg",
    "matplotlib.pyplot",
    "torch._dynamo",  # which the first optimizer imports
    "torch.distributed.tensor",  # which the first `torch.testing.assert_close` imports
]


def run(arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """Be a kernel."""
    os.setsid()  # so that an interrupt reaches what it starts, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.update(environment)
    sys.argv = ["ipykernel_launcher", *arguments]
    import matplotlib
    from ipykernel.kernelapp import launch_new_instance

    # A kernel says so in the environment, which is read when this is imported.
    matplotlib.rcParams["backend"] = "module://matplotlib_inline.backend_inline"
    # It read who its parent is when it was imported. Without one it would tell the terminal how to end it.
    launch_new_instance(argv=[*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])


class Child:
    """A forked process, as the provisioner asks for it: by the names of `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, process: Any) -> None:
        self._process = process
        self.pid, self.kill, self.terminate = process.pid, process.kill, process.terminate

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int:
        self._process.join()
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


class Forked(LocalProvisioner):
    """Forks a kernel, where the kernel is one of this environment's Python."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        if cmd[:3] != [sys.executable, "-m", "ipykernel_launcher"]:
            return await super().launch_kernel(cmd, **kwargs)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["__main__", *IMPORTS])
        # A daemon: if the build is interrupted, it ends.
        process = context.Process(target=run, args=(cmd[3:], kwargs["cwd"], dict(kwargs["env"])), daemon=True)
        process.start()
        self.process = Child(process)
        self.pid = self.pgid = process.pid
        return self.connection_info


class KernelManager(AsyncKernelManager):
    """Starts kernels by `Forked`."""

    async def start_kernel(self, **kwargs: Any) -> None:
        if self.provisioner is None:
            self.provisioner = Forked(kernel_id=self.kernel_id, kernel_spec=self.kernel_spec, parent=self)
        await super().start_kernel(**kwargs)
