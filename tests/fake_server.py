"""An inference server on the loopback interface, made for tests: it streams words at a pace that it is told."""

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

INFO = {"version": "0.0.1", "model_path": "/models/tiny", "device": "cpu", "dp_size": 1}


@dataclass
class Behaviour:
    """How a server answers.

    Attributes
    ----------
    step_ms : callable
        Time of a step by running requests; each stream keeps to it without drifting.
    info : dict or None
        What it says of itself as SGLang; None where it is no SGLang.
    models : list of dict
        What `/v1/models` lists.
    paths : dict
        Path -> (status, bytes) of further answers to GET, taken first.
    refuse : callable
        Path and body -> (status, bytes) to refuse a request with, or None.
    emits : int
        Tokens a step.
    bundle : int
        Steps an event.
    script : bytes or None
        What to send instead of a stream.
    cut : int or None
        Events after which the connection breaks off.
    hold_s : float
        Pause before anything is sent.
    at_a_time : int
        Requests that run; others wait.
    usage : bool
        Count tokens in a last event of the OpenAI API.
    """

    step_ms: Any = lambda n: 3.0
    info: dict[str, Any] | None = None
    models: list[Any] = field(default_factory=lambda: [{"id": "tiny", "owned_by": "test"}])
    paths: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    refuse: Any = lambda path, body: None
    emits: int = 1
    bundle: int = 1
    script: bytes | None = None
    cut: int | None = None
    hold_s: float = 0.0
    at_a_time: int = 1000
    usage: bool = True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.server.seen.append(("GET", self.path, dict(self.headers), None))
        does = self.server.does
        if self.path in does.paths:
            self.answer(*does.paths[self.path])
        elif self.path == "/server_info" and does.info is not None:
            self.answer(200, json.dumps(does.info).encode())
        elif self.path == "/v1/models" and does.info is None:
            self.answer(200, json.dumps({"object": "list", "data": does.models}).encode())
        else:
            self.answer(404, b'{"detail":"Not Found"}')

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append(("POST", self.path, dict(self.headers), body))
        refusal = self.server.does.refuse(self.path, body)
        if refusal is not None:
            self.answer(*refusal)
        elif self.path not in ("/generate", "/v1/completions"):
            self.answer(404, b'{"detail":"Not Found"}')
        else:
            with self.server.running:
                with self.server.lock:
                    self.server.n += 1
                try:
                    self.run(body)
                finally:
                    with self.server.lock:
                        self.server.n -= 1

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        if status == 302:
            self.send_header("Location", text.decode())
        self.end_headers()
        self.wfile.write(text)

    def run(self, body):
        does = self.server.does
        time.sleep(does.hold_s)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if does.script is not None:
            self.chunk(does.script)
            self.chunk(b"")
            return
        sglang = self.path == "/generate"
        wanted = body["sampling_params"]["max_new_tokens"] if sglang else body["max_tokens"]
        n_prompt = len((body["text"] if sglang else body["prompt"]).split())
        sent, steps, n_events, due = 1, 0, 0, time.perf_counter()
        while True:
            ended = sent == wanted
            if ended or steps % does.bundle == 0:
                n_events += 1
                self.event(self.generated(n_prompt, sent, steps, ended) if sglang else self.completion(ended))
                if n_events == does.cut:
                    self.close_connection = True
                    return
            if ended:
                break
            due += does.step_ms(self.server.n) / 1000
            time.sleep(max(0.0, due - time.perf_counter()))
            sent, steps = min(sent + does.emits, wanted), steps + 1
        if not sglang and does.usage and body.get("stream_options"):
            self.event({"choices": [], "usage": {"prompt_tokens": n_prompt, "completion_tokens": sent}})
        self.chunk(b": a comment\n\ndata: [DONE]\n\n")
        self.chunk(b"")

    def generated(self, n_prompt, sent, steps, ended):
        meta = {"prompt_tokens": n_prompt, "completion_tokens": sent, "finish_reason": None}
        if ended:
            meta["finish_reason"] = {"type": "length"}
            if self.server.does.info.get("speculative_algorithm"):
                meta["spec_verify_ct"] = steps
        return {"text": "word " * sent, "meta_info": meta}

    def completion(self, ended):
        return {"choices": [{"index": 0, "text": "word ", "finish_reason": "length" if ended else None}], "usage": None}

    def event(self, data):
        self.chunk(b"data: " + json.dumps(data).encode() + b"\n\n")

    def chunk(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


class FakeServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, does):
        super().__init__(("127.0.0.1", 0), Handler)
        self.does, self.seen, self.n, self.lock = does, [], 0, threading.Lock()
        self.running = threading.Semaphore(does.at_a_time)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        pass  # a client that went away


@contextmanager
def serving(**does):
    """A server that behaves as told, until the block ends."""
    server = FakeServer(Behaviour(**does))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
