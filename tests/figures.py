"""Figures that the project publishes, and whether each names its kind: measured-gpu, measured-cpu, modelled or read.

In Markdown a figure is a number with a unit (%, µs, ms, ×, tok/s, ...), and in a table also a cell that is a decimal
number. A paragraph or list item with a figure names the kind itself; a table may leave it to the paragraph above it.
In JSON a `kind` holds for all that stands beside and below it.
"""

import re

from ngramspec.drafting.cost import KINDS

#: "read" is a word as well: as a kind it stands in a bracket, in code, or behind "kind".
NAMED = re.compile(rf"\b(?:{'|'.join(sorted(set(KINDS) - {'read'}))})\b|(?:[Kk]ind:? |\(|`)read\b")

#: A level of confidence is no figure.
LEVEL = re.compile(r"\b9[059] % (?=interval|confidence)")

UNIT = re.compile(
    r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?:\s?[–-]\s?\d[\d.,]*)?\s?"
    r"(?:%|[nµm]s\b|×(?!\s?\d)|tok/s|tokens/s|(?:emitted )?tokens a second|times (?:faster|the speed))"
)
LENGTH = re.compile(r"\baccept length (?:of |is )?\d")
DECIMALS = re.compile(r"[*\s]*[+−-]?\d[\d,]*\.\d+(?:\s*(?:,|→|to|–)\s*[+−-]?\d[\d,.]*)*[*\s]*")


def blocks(text):
    """Paragraphs, list items and tables of Markdown as lists of lines; code and headings are left out."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found = [[]]
    for line in text.split("\n"):
        starts_item = re.match(r"\s*(?:[-*]|\d+\.) ", line)
        other = bool(found[-1]) and found[-1][-1].startswith("|") != line.startswith("|")
        if not line.strip() or line.startswith("#") or starts_item or other:
            found.append([])
        if line.strip() and not line.startswith("#"):
            found[-1].append(line)
    return [block for block in found if block]


def figure(block):
    """The first figure in a block, or None."""
    text = LEVEL.sub("", re.sub(r"`[^`]*`", "", " ".join(block)))
    found = UNIT.search(text) or LENGTH.search(text)
    if found:
        return found[0].strip()
    rows = block[2:] if block[0].startswith("|") else []
    cells = (cell.strip() for row in rows for cell in row.strip("|").split("|"))
    return next((cell for cell in cells if DECIMALS.fullmatch(cell)), None)


def unnamed_in_markdown(text):
    """Figures whose block does not name a kind; a table's may stand in the paragraph above it."""
    found, above = [], ""
    for block in blocks(text):
        own = " ".join(block)
        told = own + above if block[0].startswith("|") else own
        shown = figure(block)
        if shown and not NAMED.search(told):
            found.append(f"{shown!r} in {block[0][:60]!r}")
        above = own
    return found


def unnamed_in_json(value, kind=None, place="$"):
    """Numbers without a kind, kinds that there are not, and speed-ups that claim to be measured on a CPU."""
    if isinstance(value, dict):
        kind = value.get("kind", kind)
        if kind is not None and kind not in KINDS:
            return [f"{place}.kind: {kind!r}"]
        return [
            wrong
            for name, item in value.items()
            if name != "machine"
            for wrong in unnamed_in_json(item, kind, f"{place}.{name}")
        ]
    if isinstance(value, list):
        return [wrong for i, item in enumerate(value) for wrong in unnamed_in_json(item, kind, f"{place}[{i}]")]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return []
    if kind is None:
        return [place]
    return [f"{place}: {kind}"] if "speedup" in place.rpartition(".")[2] and kind == "measured-cpu" else []
