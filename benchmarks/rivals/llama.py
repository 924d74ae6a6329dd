"""llama.cpp's n-gram drafters, compiled from the sources that llama-cpp-python ships.

The classes stand in a file that needs all of llama.cpp, so their text is cut out and compiled, unchanged, behind
stand-ins for the few types and macros they name; what they call in other files is compiled as it is. The archive is the
newest `llama_cpp_python-*.tar.gz` of the working directory or of the folder that LLAMA_CPP_PYTHON_SDIST names.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.rivals.base import Drafted, Variant, chain

ARCHIVES = sorted(Path(os.environ.get("LLAMA_CPP_PYTHON_SDIST", ".")).glob("llama_cpp_python-*.tar.gz"))
if not ARCHIVES:
    raise ImportError("no llama_cpp_python-*.tar.gz here: see benchmarks/requirements-rivals.txt")
ARCHIVE = ARCHIVES[-1]
MAX_REQUESTS = 64
MAX_DRAFT = 64

#: Order of `llama_new`'s first argument; the classes of `common/speculative.cpp`.
KINDS = ("mod", "simple", "map-k", "map-k4v", "cache")
CLASSES = ("ngram_simple", "ngram_map_k", "ngram_mod", "ngram_cache")
SOURCES = ("ngram-mod", "ngram-map", "ngram-cache")

STAND_INS = """
#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>
#define SPC_TRC(...) do {} while (0)
#define SPC_WRN(...) do {} while (0)
#define SPC_ERR(...) do {} while (0)
#define LOG_DBG(...) do {} while (0)
#define LOG_INF(...) do {} while (0)
#define GGML_ABORT(...) std::abort()
#define GGML_ASSERT(x) do { if (!(x)) std::abort(); } while (0)
#define LLAMA_TOKEN_NULL -1
using llama_token = int32_t;
using llama_seq_id = int32_t;
using llama_tokens = std::vector<llama_token>;
inline int64_t ggml_time_ms() { return 0; }
enum common_speculative_type {
    COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE, COMMON_SPECULATIVE_TYPE_NGRAM_MAP_K, COMMON_SPECULATIVE_TYPE_NGRAM_MAP_K4V,
    COMMON_SPECULATIVE_TYPE_NGRAM_MOD, COMMON_SPECULATIVE_TYPE_NGRAM_CACHE
};
struct common_batch;
struct common_params_speculative_ngram_mod { int32_t n_match, n_max, n_min; };
struct common_params_speculative_ngram_map { uint16_t size_n, size_m, min_hits; };
struct common_params_speculative_ngram_cache {};
struct common_params_speculative {
    common_params_speculative_ngram_mod ngram_mod;
    common_params_speculative_ngram_map ngram_simple;
    common_params_speculative_ngram_cache ngram_cache;
};
struct common_speculative_draft_params {
    bool drafting = false;
    llama_token id_last = 0;
    const llama_tokens * prompt = nullptr;
    llama_tokens * result = nullptr;
};
using common_speculative_draft_params_vec = std::vector<common_speculative_draft_params>;
struct common_speculative_impl {
    const common_speculative_type type;
    uint32_t n_seq;
    common_speculative_impl(common_speculative_type type, uint32_t n, int32_t) : type(type), n_seq(n) {}
    virtual ~common_speculative_impl() = default;
    virtual void begin(llama_seq_id, const llama_tokens &) = 0;
    virtual bool process(const common_batch &) = 0;
    virtual void draft(common_speculative_draft_params_vec &) = 0;
    virtual void accept(llama_seq_id, uint16_t, bool) = 0;
};
"""

INCLUDES = '#include "common.h"\n#include "ngram-cache.h"\n#include "ngram-map.h"\n#include "ngram-mod.h"\n'

CALLS = """
// The server's side: every sequence's text, its last token apart since that is not yet evaluated.
struct server {
    std::unique_ptr<common_speculative_impl> impl;
    std::vector<llama_tokens> texts, results;
    std::vector<bool> has_last;
    common_speculative_draft_params_vec params;
};
extern "C" {
void * llama_new(int kind, int32_t n_seq, int32_t a, int32_t b, int32_t c) {
    auto * s = new server;
    common_params_speculative p{{a, b, c}, {(uint16_t) a, (uint16_t) b, (uint16_t) c}, {}};
    common_ngram_map map((uint16_t) a, (uint16_t) b, kind == 2, (uint16_t) c);
    switch (kind) {
        case 0: s->impl.reset(new common_speculative_impl_ngram_mod(p, n_seq)); break;
        case 1: s->impl.reset(new common_speculative_impl_ngram_simple(p, n_seq, {(uint16_t) a, (uint16_t) b})); break;
        case 2: case 3: s->impl.reset(new common_speculative_impl_ngram_map_k(map, n_seq)); break;
        default: s->impl.reset(new common_speculative_impl_ngram_cache(p, n_seq, (uint16_t) b, "", "", false, false));
    }
    s->texts.resize(n_seq);
    s->results.resize(n_seq);
    s->has_last.resize(n_seq);
    s->params.resize(n_seq);
    for (int32_t i = 0; i < n_seq; ++i) {
        s->params[i].prompt = &s->texts[i];
        s->params[i].result = &s->results[i];
    }
    return s;
}
void llama_delete(server * s) { delete s; }
void llama_hold(server * s, int32_t seq, const int32_t * tokens, int64_t n) {
    s->texts[seq].assign(tokens, tokens + n);
    s->has_last[seq] = false;
}
void llama_append(server * s, int32_t seq, const int32_t * tokens, int64_t n) {
    if (n == 0) return;
    if (s->has_last[seq]) s->texts[seq].push_back(s->params[seq].id_last);
    s->texts[seq].insert(s->texts[seq].end(), tokens, tokens + n - 1);
    s->params[seq].id_last = tokens[n - 1];
    s->has_last[seq] = true;
}
void llama_begin(server * s, int32_t seq) { s->impl->begin(seq, s->texts[seq]); }
void llama_accept(server * s, int32_t seq, int32_t n) { s->impl->accept(seq, (uint16_t) n, false); }
void llama_draft(server * s, int64_t n, const int32_t * seqs, int32_t * out, int32_t * lengths, int64_t width) {
    for (auto & one : s->params) one.drafting = false;
    for (int64_t i = 0; i < n; ++i) {
        s->params[seqs[i]].drafting = true;
        s->results[seqs[i]].clear();
    }
    s->impl->draft(s->params);
    for (int64_t i = 0; i < n; ++i) {
        const auto & found = s->results[seqs[i]];
        lengths[i] = (int32_t) std::min<int64_t>(found.size(), width);
        std::copy(found.begin(), found.begin() + lengths[i], out + i * width);
    }
}
}
"""


@functools.cache
def build() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder, tarfile.open(ARCHIVE) as archive:
        place = Path(folder)
        wanted = {"speculative.cpp", *(f"{name}{suffix}" for name in SOURCES for suffix in (".cpp", ".h"))}
        for member in archive:
            name = Path(member.name)
            if name.parent.name == "common" and name.name in wanted:
                source = archive.extractfile(member)
                assert source is not None
                (place / name.name).write_bytes(source.read())
        text = (place / "speculative.cpp").read_text()
        cut = []
        for name in CLASSES:
            found = re.search(rf"^struct common_speculative_impl_{name} .*?^}};$", text, re.M | re.S)
            assert found is not None, f"the class of {name} is not where it was"
            cut.append(found[0])
        (place / "common.h").write_text(STAND_INS)
        for name in ("log.h", "llama.h"):
            (place / name).write_text('#pragma once\n#include "common.h"\n')
        (place / "rival.cpp").write_text(INCLUDES + "\n".join(cut) + CALLS)
        library = place / "rival.so"
        sources = [str(place / f"{name}.cpp") for name in ("rival", *SOURCES)]
        command = ["g++", "-std=c++17", "-O2", "-w", "-shared", "-fPIC", f"-I{place}", *sources, "-o", str(library)]
        subprocess.run(command, check=True)
        loaded = ctypes.CDLL(str(library))
    loaded.llama_new.restype = ctypes.c_void_p
    return loaded


def version() -> str:
    return ARCHIVE.name.removesuffix(".tar.gz").split("-")[-1]


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class Llama:
    """One of the drafters, with the settings that a server has by default unless the variant names others."""

    kind = "mod"
    defaults = (24, 64, 48)  #: n_match, n_max, n_min; of the others n-gram, m-gram, hits

    def __init__(self, variant: Variant) -> None:
        self.lib = build()
        names = ("n_match", "n_max", "n_min")
        settings = [variant.options.get(name, value) for name, value in zip(names, self.defaults, strict=True)]
        self.handle = ctypes.c_void_p(self.lib.llama_new(KINDS.index(self.kind), MAX_REQUESTS, *settings))
        self.seqs: dict[str, int] = {}
        self.free = list(range(MAX_REQUESTS))
        self.last: dict[str, list[int]] = {}
        self.out, self.lengths = np.zeros((MAX_REQUESTS, MAX_DRAFT), np.int32), np.zeros(MAX_REQUESTS, np.int32)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self.lib.llama_delete(self.handle)

    def hold(self, request: str, prompt: np.ndarray) -> None:
        self.free.sort()
        self.seqs[request] = self.free.pop(0)
        tokens = np.ascontiguousarray(prompt, np.int32)
        self.lib.llama_hold(self.handle, self.seqs[request], pointer(tokens), ctypes.c_int64(len(tokens)))

    def append(self, requests: list[str], emitted: list[list[int]]) -> None:
        for request, new in zip(requests, emitted, strict=True):
            tokens = np.array(new, np.int32)
            self.lib.llama_append(self.handle, self.seqs[request], pointer(tokens), ctypes.c_int64(len(tokens)))
        self.last.clear()

    def ingest(self, request: str, prompt: np.ndarray) -> None:
        self.lib.llama_begin(self.handle, self.seqs[request])

    def propose(self, requests: list[str]) -> list[list[int]]:
        n = len(requests)
        seqs = np.array([self.seqs[request] for request in requests], np.int32)
        outputs = (pointer(seqs), pointer(self.out), pointer(self.lengths), ctypes.c_int64(MAX_DRAFT))
        self.lib.llama_draft(self.handle, ctypes.c_int64(n), *outputs)
        found = [row[:length] for row, length in zip(self.out[:n].tolist(), self.lengths[:n].tolist(), strict=True)]
        self.last = dict(zip(requests, found, strict=True))
        return found

    def learn(self, requests: list[str], emitted: list[list[int]]) -> None:
        for request, tokens in zip(requests, emitted, strict=True):
            draft = self.last.get(request)
            if draft:
                same = [a == b for a, b in zip(draft, tokens, strict=False)]
                n_accepted = same.index(False) if False in same else len(same)
                self.lib.llama_accept(self.handle, self.seqs[request], n_accepted)

    def finish(self, request: str) -> None:
        self.free.append(self.seqs.pop(request))

    def read(self, proposed: list[list[int]]) -> list[Drafted]:
        return [chain(draft) for draft in proposed]


class NgramMod(Llama):
    kind, defaults = "mod", (24, 64, 48)

    def fill(self, tokens: np.ndarray) -> None:
        """Enter a whole finished output, as prompts are."""
        self.hold("fill", tokens)
        self.ingest("fill", tokens)
        self.finish("fill")


class NgramSimple(Llama):
    kind, defaults = "simple", (12, 48, 1)


class NgramMapK(Llama):
    kind, defaults = "map-k", (12, 48, 1)


class NgramMapK4V(Llama):
    kind, defaults = "map-k4v", (12, 48, 1)


class NgramCache(Llama):
    kind, defaults = "cache", (4, 8, 1)
