"""What the processes that run notebooks are told of the grader's environment."""

import os

# The rest is no notebook's business: passwords, say.
_PASSED_ON = ("LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "SYSTEMROOT", "TZ")
# One thread: a fork takes no others along, and as many notebooks run at once as there are cores.
_SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # Compiled code computes the same, but a jail may have no compiler: `torch.compile` changes nothing.
    "TORCHDYNAMO_DISABLE": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}


def environment() -> dict[str, str]:
    told = {**{name: os.environ[name] for name in _PASSED_ON if name in os.environ}, **_SETTINGS}
    if "PYTHONPATH" in told:
        # They start in other folders.
        told["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, told["PYTHONPATH"].split(os.pathsep)))
    return told
