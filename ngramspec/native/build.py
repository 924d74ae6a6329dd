"""Compile the C core into the user's cache folder: one file, one compiler call, there whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from ..errors import NativeError

#: C11, and visible names only for what the header declares. No `-march=native`: the folder may be a shared home.
FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-DNGS_SHARED")
COMPILERS = ("cc", "gcc", "clang")
MAIN = "src/ngramspec.c"


@cache
def sources() -> Path:
    """Folder of the C sources: inside an installed package, beside it in a checkout; raises `NativeError`."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_native", package.parent / "native"):
        if (folder / MAIN).is_file():
            return folder
    raise NativeError(f"the C sources are missing from this installation ({package / '_native'}): install it anew")


def digest(folder: Path) -> str:
    """Digest of everything that a compiled core depends on: sources, flags, platform."""
    state = hashlib.blake2b(repr((FLAGS, sys.platform, platform.machine())).encode(), digest_size=8)
    for path in sorted([*folder.glob("src/*.[ch]"), *folder.glob("include/*.h")]):
        state.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()


def cache_folder() -> Path:
    """Where compiled cores are kept: `$XDG_CACHE_HOME/ngramspec`, or the usual place; raises `NativeError`."""
    home = os.environ.get("XDG_CACHE_HOME")
    if home:
        return Path(home) / "ngramspec"
    usual = "~/Library/Caches/ngramspec" if sys.platform == "darwin" else "~/.cache/ngramspec"
    try:
        return Path(usual).expanduser()
    except RuntimeError:  # a user without an entry and without HOME, as containers make them
        raise NativeError("no home folder is known for the compiled core: set XDG_CACHE_HOME") from None


def target() -> Path:
    """File of the compiled core of these sources, whether it is there or not."""
    suffix = "dylib" if sys.platform == "darwin" else "so"
    return cache_folder() / f"libngramspec-{digest(sources())}.{suffix}"


def compiler() -> list[str]:
    """The C compiler to call: `$CC`, or the first of cc, gcc and clang that is there; raises `NativeError`."""
    try:
        named = shlex.split(os.environ.get("CC", ""))
    except ValueError as error:  # a quotation mark that nothing closes
        raise NativeError(f"CC: got {os.environ['CC']!r}, no command ({error}): mend it, or unset it") from None
    if named:
        if shutil.which(named[0]) is None:
            raise NativeError(f"CC: got {os.environ['CC']!r}, no such program: set CC to a C compiler, or unset it")
        return named
    for name in COMPILERS:
        if shutil.which(name):
            return [name]
    raise NativeError(
        f"no C compiler found (tried {', '.join(COMPILERS)}): install one (Debian or Ubuntu: "
        "apt-get install gcc libc6-dev) or set CC; the default engine, numba, needs none"
    )


def build() -> Path:
    """Compile the core, unless it is there already.

    Returns
    -------
    Path
        The shared library in the user's cache folder.

    Raises
    ------
    NativeError
        There is no compiler, it refuses, or the folder cannot be written; the text says what to do.
    """
    path = target()
    if os.path.isfile(path):
        return path
    command = compiler()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=".tmp", dir=path.parent)
        os.close(descriptor)
    except OSError as error:
        raise NativeError(
            f"cannot write the compiled core to {path.parent} ({error}): set XDG_CACHE_HOME to a writable folder"
        ) from None
    try:
        arguments = [*command, *FLAGS, "-o", temporary, str(sources() / MAIN)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NativeError(
                f"{shlex.join(command)} failed with status {done.returncode}: {done.stderr.strip()[-2000:]}; "
                "set CC to a C11 compiler"
            )
        if os.path.getsize(temporary) == 0:
            raise NativeError(f"{shlex.join(command)} wrote nothing: set CC to a C11 compiler")
        os.chmod(temporary, 0o755)
        os.replace(temporary, path)  # two that build at once both end up with a whole file
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    return path
