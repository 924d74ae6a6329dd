"""Test-only SGLang plugin: n-gram speculation on a CPU without AMX, and faults on request.

On such a CPU the engine insists on the attention backend torch_native, which can verify no tree
(sgl-project/sglang#36352). This serves that name with the AMX backend's class, whose two operators the stand-in
provides. NGRAMSPEC_TEST_FAULT makes things of ours fail, several joined by commas: `kernel`, every fifth draft; `disk`,
every write of a recorded file; `contract`, a method of the engine's worker that takes one parameter more than in the
release ours was written for. NGRAMSPEC_TEST_WIDTHS, rows joined by commas, is what steps verify in turn.
"""

import itertools
import os

FAULTS = os.environ.get("NGRAMSPEC_TEST_FAULT", "").split(",")
WIDTHS = os.environ.get("NGRAMSPEC_TEST_WIDTHS")


def change_signature():
    from sglang.srt.speculative.ngram_worker import NGRAMWorker

    original = NGRAMWorker._prepare_draft_tokens

    def prepare(self, batch, hint=None):
        return original(self, batch)

    NGRAMWorker._prepare_draft_tokens = prepare


def break_drafts():
    from ngramspec.drafting.drafter import Drafter

    original, calls = Drafter.draft_batch, [0]

    def draft_batch(self, *arguments, **named):
        calls[0] += 1
        if calls[0] > 8 and calls[0] % 5 == 0:  # not the warm-up before serving
            raise MemoryError("made to fail by a test")
        return original(self, *arguments, **named)

    Drafter.draft_batch = draft_batch


def fill_disk():
    import gzip

    def write(self, data):
        raise OSError(28, "No space left on device")

    gzip.GzipFile.write = write


def script_widths():
    from ngramspec.engines.sglang.pace import Pace

    turn = itertools.cycle(map(int, WIDTHS.split(",")))
    Pace.choose = lambda self, out, n: next(turn)


# At import: every plugin is imported before the first is run.
if "contract" in FAULTS:
    change_signature()


def register():
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS

    def make(runner):
        from sglang.srt.layers.attention.intel_amx_backend import IntelAMXAttnBackend

        return IntelAMXAttnBackend(runner)

    ATTENTION_BACKENDS["torch_native"] = make
    if "kernel" in FAULTS:
        break_drafts()
    if "disk" in FAULTS:
        fill_disk()
    if WIDTHS:
        script_widths()
