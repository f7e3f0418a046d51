"""Kernels for grading, as nbgrader's and nbclient's own setting asks for them.

``c.Execute.kernel_manager_class = "attncourse.grading.kernels.KernelManager"``
"""

import os
import sys
import time
from queue import Empty
from typing import Any

from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from jupyter_client.manager import AsyncKernelManager, in_pending_state
from traitlets import Unicode, default

from attncourse.grading import made

NAME = "python3"


class KernelSpecs(KernelSpecManager):
    """The one kernel that grading knows. JupyterLab keeps its own of the same name."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        if kernel_name != NAME:
            raise NoSuchKernel(kernel_name)
        return KernelSpec(
            # IPython's usual account of an endless recursion takes it many seconds.
            argv=[
                *(sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"),
                "--InteractiveShell.xmode=Plain",
            ],
            name=NAME,
            display_name="Python 3 (graded)",
            language="python",
            interrupt_mode="message",
            metadata={"kernel_provisioner": {"provisioner_name": "attncourse"}},
        )


class KernelClient(AsyncKernelClient):
    """Knows that a kernel is ready by its saying so. Jupyter's waits for 0.2 seconds of silence.

    It does without a heartbeat: whether a kernel is alive is known better, and the thread that listens for
    one can be held for ever by what a notebook writes on its sockets.
    """

    def start_channels(
        self,
        shell: bool = True,
        iopub: bool = True,
        stdin: bool = True,
        hb: bool = False,
        control: bool = True,
    ) -> None:
        super().start_channels(shell, iopub, stdin, hb, control)

    async def _async_wait_for_ready(self, timeout: float | None = None) -> None:
        end = float("inf") if timeout is None else time.monotonic() + timeout
        while time.monotonic() < end:
            request = self.kernel_info()
            try:
                reply = await self.shell_channel.get_msg(timeout=1)
                # What was published before this client listened is lost, and the idle state may be.
                state = None
                while state != "idle":
                    message = await self.iopub_channel.get_msg(timeout=1)
                    if message["parent_header"].get("msg_id") == request:
                        state = message["content"].get("execution_state")
            except Empty:
                if not await self._async_is_alive():
                    raise RuntimeError("the kernel ended before it was ready") from None
            else:
                self._handle_kernel_info_reply(reply)
                return
        raise RuntimeError(f"the kernel was not ready in {timeout} seconds")

    wait_for_ready = _async_wait_for_ready


class KernelManager(AsyncKernelManager):
    """Starts kernels by our `Provisioner`, through files instead of ports, and shuts them down at once."""

    course = Unicode(help="the folder from which kernels import `attncourse`; see `made.package_for`")

    @default("course")
    def _course_without_tasks(self) -> str:
        return str(made.package_for([]))

    @default("client_factory")
    def _our_client(self) -> type[AsyncKernelClient]:
        return KernelClient

    @default("kernel_spec_manager")
    def _our_kernel_specs(self) -> KernelSpecManager:
        return KernelSpecs(parent=self)

    @default("transport")
    def _local_sockets(self) -> str:
        return "ipc" if os.name == "posix" else "tcp"

    def client(self, **settings: Any) -> AsyncKernelClient:  # type: ignore[override]
        """A client whose sockets have the options of this manager's: it has a context of its own."""
        client = super().client(**settings)
        for option, value in self.context.sockopts.items():
            client.context.setsockopt(option, value)
        return client

    @in_pending_state
    async def _async_shutdown_kernel(self, now: bool = False, restart: bool = False) -> None:
        self.shutting_down = True
        await self._async_kill_kernel(restart=restart)
        await self._async_cleanup_resources(restart=restart)

    shutdown_kernel: Any = _async_shutdown_kernel
