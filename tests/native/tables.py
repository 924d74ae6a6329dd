"""The mixer's tables as C; `python -m tests.native.tables` writes them, a test compares."""

from ngramspec.kernels import mixer
from tests.sources import ROOT

COLUMNS = 16
TABLES = {"stretch_table": ("STRETCH", "int16_t", mixer.STRETCH), "squash_table": ("SQUASH", "int32_t", mixer.SQUASH)}


def text(stem: str) -> str:
    """One table as a C header."""
    name, kind, values = TABLES[stem]
    rows = [values[i : i + COLUMNS].tolist() for i in range(0, len(values), COLUMNS)]
    lines = ",\n".join("    " + ", ".join(map(str, row)) for row in rows)
    return (
        f"/* {name} of kernels/mixer.py, written by `python -m tests.native.tables`. */\n"
        f"#ifndef NGS_{name}_TABLE_H\n#define NGS_{name}_TABLE_H\n\n#include <stdint.h>\n\n"
        f"static const {kind} {name}[{len(values)}] = {{\n{lines},\n}};\n\n#endif\n"
    )


if __name__ == "__main__":
    for stem in TABLES:
        (ROOT / "native" / "src" / f"{stem}.h").write_text(text(stem))
