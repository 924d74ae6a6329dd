"""What the importer tests share: a trace as plain rows, rendered messages, records of a batch."""

from ngramspec.replay.rows import row_dict


def rows(trace):
    return [row_dict(trace, row) for row in range(len(trace))]


def rendered(*messages):
    return "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages) + "<|im_start|>assistant\n"


def batch_input(key, **body):
    return {"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", **body}}


def batch_output(key, body=None, status=200):
    response = {"status_code": status, "request_id": "q", "body": body}
    return {"id": f"batch_{key}", "custom_id": key, "response": response if body else None, "error": None}
