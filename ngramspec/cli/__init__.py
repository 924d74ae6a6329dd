"""The command line. `main` is the entry point; commands stand one a file."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

from ..errors import NgramSpecError

#: Exit status for wrong input, and after an interrupt.
WRONG_INPUT, INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str, optional
        None: those of the process.

    Returns
    -------
    int
        Exit status: 0, 2 for wrong input (one line on stderr says what), 130 after Ctrl-C.
    """
    try:
        from .app import command
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "ngramspec":
            raise
        return _fail(f"the command line needs {error.name}: pip install 'ngramspec[replay]'")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # a file's name need not be text
    try:
        given = list(sys.argv[1:] if arguments is None else arguments)
        status = command().main(args=given, prog_name="ngramspec", standalone_mode=False, obj=given)
    except NgramSpecError as error:
        return _fail(str(error))
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "ngramspec":
            raise
        return _fail(f"this command needs {error.name}: pip install 'ngramspec[replay]'")
    except MemoryError as error:
        return _fail(f"out of memory ({error or 'no more given'}): ask for less: smaller capacities, fewer requests")
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nothing is wrong, and nothing more can be said.
        sys.stdout = None
        return 0
    except Exception as error:
        # Usage errors and aborts come from typer, which names their classes differently from release to release.
        if type(error).__name__ == "Abort":
            return INTERRUPTED
        if not hasattr(error, "format_message"):
            raise
        message, context = error.format_message().strip(), getattr(error, "ctx", None)
        advice = f"; see {context.command_path} --help" if context is not None else ""
        return _fail(message.removesuffix(".") + advice) if message else WRONG_INPUT
    return status if isinstance(status, int) else 0


def _fail(message: str) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return WRONG_INPUT
