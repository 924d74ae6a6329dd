"""Variants of a server, each run once by `drive` in a process of its own, and what each said."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.sources import ROOT

#: Equal terms: SGLang's own corpus shows every request's output, and the end of its prompt, to every other.
EVERYBODY = {"share": "everything", "guard": "off"}
NGRAM = {"speculative_algorithm": "NGRAM"}


@dataclass(frozen=True)
class Variant:
    """One run of `drive`."""

    options: dict = field(default_factory=dict)  #: of the engine
    config: dict | None = None  #: ours; None: not asked for
    faults: str = ""  #: see `stand_in/cpu_harness.py`
    widths: str = ""  #: rows that steps verify in turn
    flags: tuple[str, ...] = ("short",)  #: see `drive`


class Served:
    """What one variant said, and its log."""

    def __init__(self, folder, variant, model):
        self.folder = folder
        out = folder / "said.json"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("NGRAMSPEC")}
        environment |= {"OMP_NUM_THREADS": "1", "SGLANG_USE_CPU_ENGINE": "1", "SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
        if variant.config is not None:
            (folder / "config.json").write_text(json.dumps(variant.config).replace("FOLDER", str(folder)))
            environment["NGRAMSPEC_CONFIG"] = str(folder / "config.json")
        for key, value in (("FAULT", variant.faults), ("WIDTHS", variant.widths)):
            if value:
                environment[f"NGRAMSPEC_TEST_{key}"] = value
        (folder / "damaged.ngs").write_bytes(b"NGRAMSPEC" * 1000)
        command = [sys.executable, "-m", "tests.sglang.drive", str(model), str(out), json.dumps(variant.options)]
        run = subprocess.run(
            [*command, *variant.flags],
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900,
        )  # fmt: skip
        self.log, self.model = run.stdout, model
        assert run.returncode == 0, self.log[-5000:]
        self.said = json.loads(out.read_text())

    def text(self, workload):
        return [(result["ids"], result["finish"]) for result in self.said[workload]]

    def accept_length(self, workload):
        """Tokens a verify step over the whole workload; the first of each request comes from its prefill."""
        results = self.said[workload]
        return sum(len(r["ids"]) - 1 for r in results) / sum(r["verify_steps"] for r in results)


class Runs:
    """Variants of one model, run one after the other; each is waited for when a test asks for it."""

    def __init__(self, folder, variants, make):
        self.pool = ThreadPoolExecutor(1)
        model = self.pool.submit(make, folder / "model")
        self.runs = {}
        for name, variant in variants.items():
            (folder / name).mkdir()
            self.runs[name] = self.pool.submit(self._serve, folder / name, variant, model)

    @staticmethod
    def _serve(folder, variant, model):
        return Served(folder, variant, model.result())

    def __getitem__(self, name):
        return self.runs[name].result()


def texts(said):
    """Names of the workloads, of all that a variant said."""
    return [name for name in said if name not in ("corpora", "metrics")]
