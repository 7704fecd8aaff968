"""Compiles src/loom/index/kernels.c when the package is built or installed, if there is a C compiler.

Without one, and with PURE_WHEEL=1 in the environment, the wheel has no compiled kernels and runs anywhere. It gives
the same answers: numpy does the work of the kernels, and takes longer.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Without contraction every product is rounded before it is added, as numpy does it: the same bits on every machine.
FLAGS = ["-O3", "-std=gnu11", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=default"]


class KernelsBuildHook(BuildHookInterface[Any]):
    """The library lies beside its source, for an editable installation as for a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root, "src", "loom", "index", "kernels.c")
        library = source.with_name("_kernels.so")
        if os.environ.get("PURE_WHEEL"):
            return
        library.unlink(missing_ok=True)
        fresh = library.with_suffix(f".{os.getpid()}.tmp")
        command = [*shlex.split(os.environ.get("CC", "cc")), *FLAGS, "-o", str(fresh), str(source), "-lm"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
            fresh.replace(library)
        except (OSError, subprocess.CalledProcessError) as error:
            fresh.unlink(missing_ok=True)
            reason = getattr(error, "stderr", None) or error
            self.app.display_warning(f"loom is built without compiled kernels, searching takes longer: {reason}")
            return
        build_data["artifacts"].append("/src/loom/index/_kernels.so")
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"  # loaded with ctypes: any Python of this platform
