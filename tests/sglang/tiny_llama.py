"""A tiny Llama without training: mostly it walks one fixed cycle through its vocabulary, and attention distracts it.

Each token's embedding is a random direction, and the output row of a token is the direction of its predecessor in the
cycle, so that without attention the next token is certain. Random attention and feed-forward weights turn some of the
choices by what stands in the context, so that a wrong mask, position or cache row shows in the text. A prompt that
holds a stretch of the cycle is a prompt that the model then copies from.

    python -m tests.sglang.tiny_llama FOLDER
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCAB = 512
BOS, EOS = 0, 1
HIDDEN, FEED_FORWARD, LAYERS, HEADS, KV_HEADS, HEAD = 128, 256, 2, 4, 2, 32
#: Share of the residual stream that attention and feed-forward layers may turn.
DISTRACTION = 0.22


def successor():
    """Next token of every token along the cycle; BOS and EOS lie on it like any other."""
    order = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(1))
    follows = torch.empty(VOCAB, dtype=torch.long)
    follows[order] = order.roll(-1)
    return follows


def stretch(start, length):
    """`length` tokens of the cycle, from token `start`."""
    follows, token, tokens = successor().tolist(), start, []
    for _ in range(length):
        tokens.append(token)
        token = follows[token]
    return tokens


def weights():
    """Every weight by name, float32."""
    random = torch.Generator().manual_seed(0)

    def normal(n_out, n_in, scale=1.0):
        return torch.randn(n_out, n_in, generator=random) * scale * n_in**-0.5

    directions = torch.nn.functional.normalize(torch.randn(VOCAB, HIDDEN, generator=random), dim=1)
    output = torch.empty_like(directions)
    output[successor()] = directions
    found = {"model.embed_tokens.weight": directions, "lm_head.weight": output, "model.norm.weight": torch.ones(HIDDEN)}
    for layer in range(LAYERS):
        shapes = {
            "self_attn.q_proj": normal(HEADS * HEAD, HIDDEN),
            "self_attn.k_proj": normal(KV_HEADS * HEAD, HIDDEN),
            "self_attn.v_proj": normal(KV_HEADS * HEAD, HIDDEN),
            "self_attn.o_proj": normal(HIDDEN, HEADS * HEAD, DISTRACTION),
            "mlp.gate_proj": normal(FEED_FORWARD, HIDDEN),
            "mlp.up_proj": normal(FEED_FORWARD, HIDDEN),
            "mlp.down_proj": normal(HIDDEN, FEED_FORWARD, DISTRACTION),
            "input_layernorm": torch.ones(HIDDEN),
            "post_attention_layernorm": torch.ones(HIDDEN),
        }
        found |= {f"model.layers.{layer}.{name}.weight": weight for name, weight in shapes.items()}
    return found


def tokenizer():
    """Tokens 2 to 96 are the printable ASCII characters, so that a grammar has something to say; the rest are words."""
    words = ["<s>", "</s>", *map(chr, range(32, 127))]
    words += [f"<{i}>" for i in range(len(words), VOCAB)]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<s>"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.decoder = decoders.Fuse()
    return made


def make(folder):
    """Write configuration, tokenizer and weights, a few megabytes; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "tie_word_embeddings": False,
        "dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer().save(str(folder / "tokenizer.json"))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    save_file(weights(), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


if __name__ == "__main__":
    make(Path(sys.argv[1]))
