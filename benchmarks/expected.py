"""Accepted tokens that each workload must come to, so that a fast wrong answer fails.

`expected.json` maps a workload's digest to its name and, by drafter, the drafted tokens that the record goes on with.
`--record` of the benchmarks writes what they counted; do that after a change that is meant to change drafts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ngramspec.replay import write_json

FILE = Path(__file__).parent / "expected.json"


class Expectations:
    """What is expected, what was counted, and where they differ."""

    def __init__(self, file: Path = FILE) -> None:
        self.file = file
        self.known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        self.counted: dict[str, dict[str, Any]] = {}

    def count(self, name: str, digest: str, drafter: str, n_accepted: int) -> None:
        """Take note of a count; the same run must come to the same each time."""
        entry = self.counted.setdefault(digest, {"name": name, "accepted": {}})
        before = entry["accepted"].setdefault(drafter, n_accepted)
        if before != n_accepted:
            raise SystemExit(f"{name}, {drafter}: {before} accepted tokens, then {n_accepted} in another run of it")

    def differences(self) -> list[str]:
        """One line for each count that is not as expected."""
        found = []
        for digest, entry in self.counted.items():
            expected = self.known.get(digest, {}).get("accepted", {})
            for drafter, n in entry["accepted"].items():
                if drafter in expected and expected[drafter] != n:
                    found.append(f"{entry['name']}, {drafter}: {n} accepted tokens, expected {expected[drafter]}")
        return found

    def unknown(self) -> list[str]:
        """Counts for which nothing is recorded."""
        return [
            f"{entry['name']}, {drafter}"
            for digest, entry in self.counted.items()
            for drafter in entry["accepted"]
            if drafter not in self.known.get(digest, {}).get("accepted", {})
        ]

    def record(self) -> None:
        """Write what was counted over what was known."""
        for digest, entry in self.counted.items():
            accepted = self.known.get(digest, {}).get("accepted", {}) | entry["accepted"]
            self.known[digest] = {"name": entry["name"], "accepted": accepted}
        write_json(self.known, self.file)

    def write(self, results: dict[str, Any], path: Path | None, record: bool) -> None:
        """Write results to `path`, if there is one, with the counts that nothing was expected of."""
        results["unchecked"] = [] if record else self.unknown()
        if path:
            write_json(results, path)

    def close(self, record: bool) -> None:
        """Record, or end the program if a count is not as expected."""
        if record:
            self.record()
            return
        for line in self.unknown():
            print(f"no expectation for {line}: `--record` notes what was counted")
        if wrong := self.differences():
            raise SystemExit("\n".join(["not the expected answer:", *wrong]))
