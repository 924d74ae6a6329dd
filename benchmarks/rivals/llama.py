"""llama.cpp's `ngram-mod`, compiled from the sources that llama-cpp-python ships.

The class stands in a file that needs all of llama.cpp, so its text is cut out and compiled, unchanged, behind stand-ins
for the few types it names. The archive is the newest `llama_cpp_python-*.tar.gz` of the working directory or of the
folder that LLAMA_CPP_PYTHON_SDIST names.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.parity import Drafted, Variant

ARCHIVES = sorted(Path(os.environ.get("LLAMA_CPP_PYTHON_SDIST", ".")).glob("llama_cpp_python-*.tar.gz"))
if not ARCHIVES:
    raise ImportError("no llama_cpp_python-*.tar.gz here: see benchmarks/requirements-rivals.txt")
ARCHIVE = ARCHIVES[-1]
MAX_REQUESTS = 64

STAND_INS = """
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <vector>
#include "ngram-mod.h"
#define SPC_TRC(...) do {} while (0)
#define SPC_WRN(...) do {} while (0)
using llama_token = int32_t;
using llama_seq_id = int32_t;
using llama_tokens = std::vector<llama_token>;
enum { COMMON_SPECULATIVE_TYPE_NGRAM_MOD };
struct common_batch;
struct common_params_speculative_ngram_mod { int32_t n_match, n_max, n_min; };
struct common_params_speculative { common_params_speculative_ngram_mod ngram_mod; };
struct common_speculative_draft_params {
    bool drafting = false;
    llama_token id_last = 0;
    const llama_tokens * prompt = nullptr;
    llama_tokens * result = nullptr;
};
using common_speculative_draft_params_vec = std::vector<common_speculative_draft_params>;
struct common_speculative_impl {
    uint32_t n_seq;
    common_speculative_impl(int, uint32_t n, int32_t) : n_seq(n) {}
    virtual ~common_speculative_impl() = default;
    virtual void begin(llama_seq_id, const llama_tokens &) = 0;
    virtual bool process(const common_batch &) = 0;
    virtual void draft(common_speculative_draft_params_vec &) = 0;
    virtual void accept(llama_seq_id, uint16_t, bool) = 0;
};
"""

CALLS = """
using mod_t = common_speculative_impl_ngram_mod;
extern "C" {
void * parity_new(uint32_t n_seq, int32_t n_match, int32_t n_max, int32_t n_min) {
    return new mod_t(common_params_speculative{{n_match, n_max, n_min}}, n_seq);
}
void parity_begin(void * m, int32_t seq, const int32_t * tokens, int64_t n) {
    ((mod_t *) m)->begin(seq, llama_tokens(tokens, tokens + n));
}
void parity_accept(void * m, int32_t seq, int32_t n) { ((mod_t *) m)->accept(seq, (uint16_t) n, false); }
// seqs rise; text i is tokens[offsets[i]:offsets[i + 1]], its last token not yet evaluated
void parity_draft(void * m, int32_t n_seq, int64_t n, const int32_t * seqs, const int32_t * tokens,
                  const int64_t * offsets, int32_t * out, int32_t * lengths, int64_t width) {
    std::vector<llama_tokens> prompts(n), results(n);
    common_speculative_draft_params_vec all(n_seq);
    for (int64_t i = 0; i < n; ++i) {
        prompts[i].assign(tokens + offsets[i], tokens + offsets[i + 1] - 1);
        auto & one = all[seqs[i]];
        one.drafting = true;
        one.id_last = tokens[offsets[i + 1] - 1];
        one.prompt = &prompts[i];
        one.result = &results[i];
    }
    ((mod_t *) m)->draft(all);
    for (int64_t i = 0; i < n; ++i) {
        lengths[i] = (int32_t) results[i].size();
        std::copy(results[i].begin(), results[i].end(), out + i * width);
    }
}
}
"""


def build() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder, tarfile.open(ARCHIVE) as archive:
        place = Path(folder)
        for member in archive:
            name = Path(member.name)
            if name.parent.name == "common" and name.name in ("speculative.cpp", "ngram-mod.cpp", "ngram-mod.h"):
                source = archive.extractfile(member)
                assert source is not None
                (place / name.name).write_bytes(source.read())
        text = (place / "speculative.cpp").read_text()
        found = re.search(r"^struct common_speculative_impl_ngram_mod .*?^};$", text, re.M | re.S)
        assert found is not None, "the class is not where it was"
        (place / "parity.cpp").write_text(STAND_INS + found[0] + CALLS)
        library = place / "parity.so"
        sources = [str(place / name) for name in ("parity.cpp", "ngram-mod.cpp")]
        command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{place}", *sources, "-o", str(library)]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(library))


def version() -> str:
    return ARCHIVE.name.removesuffix(".tar.gz").split("-")[-1]


class NgramMod:
    def __init__(self, variant: Variant) -> None:
        self.lib = build()
        self.lib.parity_new.restype = ctypes.c_void_p
        options = variant.options
        self.n_max = options.get("n_max", 64)
        self.handle = ctypes.c_void_p(
            self.lib.parity_new(MAX_REQUESTS, options.get("n_match", 24), self.n_max, options.get("n_min", 48))
        )
        self.texts: dict[str, list[int]] = {}
        self.seqs: dict[str, int] = {}
        self.drafts: dict[str, list[int]] = {}

    def begin(self, request: str, prompt: list[int]) -> None:
        self.seqs[request] = min(set(range(MAX_REQUESTS)) - set(self.seqs.values()))
        self.texts[request] = list(prompt)
        tokens = np.array(prompt, np.int32)
        self.lib.parity_begin(
            self.handle, self.seqs[request], tokens.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(len(tokens))
        )

    def draft(self, requests: list[str]) -> list[Drafted]:
        n = len(requests)
        tokens = np.concatenate([np.array(self.texts[request], np.int32) for request in requests])
        offsets = np.cumsum([0, *(len(self.texts[request]) for request in requests)]).astype(np.int64)
        seqs = np.array([self.seqs[request] for request in requests], np.int32)
        out, lengths = np.zeros((n, self.n_max), np.int32), np.zeros(n, np.int32)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (seqs, tokens, offsets, out, lengths)]
        count = ctypes.c_int64(n)
        self.lib.parity_draft(self.handle, MAX_REQUESTS, count, *pointers, ctypes.c_int64(self.n_max))
        found = [out[i, : lengths[i]].tolist() for i in range(n)]
        self.drafts = dict(zip(requests, found, strict=True))
        return [(draft, list(range(-1, len(draft) - 1))) for draft in found]

    def accept(self, requests: list[str], emitted: list[list[int]]) -> None:
        for request, tokens in zip(requests, emitted, strict=True):
            draft = self.drafts.pop(request, [])
            if draft:
                same = [a == b for a, b in zip(draft, tokens, strict=False)]
                n_accepted = same.index(False) if False in same else len(same)
                self.lib.parity_accept(self.handle, self.seqs[request], n_accepted)
            self.texts[request] += tokens

    def finish(self, request: str) -> None:
        del self.texts[request], self.seqs[request]
