"""Builds what is released, into dist: the source distribution, a wheel with compiled kernels, and one without.

On Linux the compiled wheel gets the oldest manylinux tag that it may have. Each of the three files is then installed
into an empty environment, where the command must work, the kernels must be present or absent as expected, and a
strict type check must find the annotations.

python packaging/wheels.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"

# The first line has a type error, so the check must end with exactly that one.
TYPED = """\
import loom

with loom.open(l1_token_budget="many") as memory:
    receipt = memory.remember("Typed.")
    reveal_type(receipt.tokens)
"""


def main() -> None:
    DIST.mkdir(exist_ok=True)
    for old in DIST.glob("loomkeep-*"):
        old.unlink()
    build("--sdist")
    build("--wheel", PURE_WHEEL="1")
    build("--wheel")
    if sys.platform == "linux":
        repair()
    wheels = sorted(DIST.glob("*.whl"))
    if len(wheels) != 2:
        raise SystemExit(
            f"two wheels were expected, with kernels and without; dist has {[one.name for one in wheels]}"
        )
    for built in [*DIST.glob("*.tar.gz"), *wheels]:
        check(built)
        print(f"works: {built.name}")


def build(what: str, **environ: str) -> None:
    command = [sys.executable, "-m", "build", what, "--outdir", str(DIST), str(ROOT)]
    subprocess.run(command, check=True, env={**os.environ, **environ}, stdout=subprocess.DEVNULL)


def repair() -> None:
    """Replace the wheel for this machine by one with a manylinux tag."""
    for wheel in DIST.glob("*-linux_*.whl"):
        environ = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
        command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(DIST), str(wheel)]
        subprocess.run(command, check=True, env=environ)
        wheel.unlink()


def check(built: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        venv.create(home / "env", with_pip=True)
        python = home / "env" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"{built}[cli]", "mypy"], check=True, cwd=home)
        environ = {
            "PATH": f"{home / 'env' / 'bin'}:/usr/bin:/bin",
            "LOOM_STORE": str(home / "a.loom"),
            "HOME": folder,
        }
        # A source distribution is compiled where it is installed.
        kernels = "is" if built.name.endswith("-py3-none-any.whl") else "is not"
        expected = f"from loom.index.kernels import KERNELS; assert KERNELS {kernels} None, KERNELS"
        subprocess.run([python, "-c", expected], check=True, cwd=home, env=environ)
        for command in (["loom", "remember", "The wheel works."], ["loom", "recall", "wheel"], ["loom", "demo"]):
            subprocess.run(command, check=True, cwd=home, env=environ, stdout=subprocess.DEVNULL)
        (home / "typed.py").write_text(TYPED, encoding="utf-8")
        found = subprocess.run(
            [python, "-m", "mypy", "--strict", "typed.py"], cwd=home, capture_output=True, text=True, check=False
        ).stdout
        if "Found 1 error" not in found or 'Revealed type is "int"' not in found.replace("builtins.", ""):
            raise SystemExit(f"the types of {built.name} are not as expected:\n{found}")


if __name__ == "__main__":
    main()
