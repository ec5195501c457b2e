#!/usr/bin/env python3
"""Golden embeddings of tiny random BERT encoders, computed by the transformers library.

Usage: tiny_encoders.py OUT.json

Weights come from the tensors' names, as in tiny_models.py. Written are each model's config.json, how
a sentence-transformers folder would say that tokens become one vector, the tensors, and for each
prompt the float32 embedding. Needs: torch, transformers.
"""
import json
import pathlib
import sys

import torch
import transformers
from tiny_models import weights

BASE = {
    "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 48, "intermediate_size": 80,
    "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 120,
    "max_position_embeddings": 64, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
    "hidden_act": "gelu", "position_embedding_type": "absolute", "torch_dtype": "float32",
}
MODELS = {
    "mean": (BASE, "mean", True),
    "cls": (BASE | {"layer_norm_eps": 1e-2, "num_attention_heads": 2}, "cls", True),
    "not_normalised": (BASE | {"num_hidden_layers": 1, "hidden_size": 40, "num_attention_heads": 5},
                       "mean", False),
}
PROMPTS = [[101], [5, 17, 99, 3, 42, 42, 110], [(7 * i * i + 3) % 120 for i in range(40)]]


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    out = []
    for name, (config, pooling, normalise) in MODELS.items():
        settings = {k: v for k, v in config.items()
                    if k not in ("model_type", "torch_dtype", "architectures")}
        model = transformers.BertModel(
            transformers.BertConfig(**settings, attn_implementation="eager"),
            add_pooling_layer=False).eval()
        tensors = {}
        cases = []
        with torch.no_grad():
            for key, value in model.state_dict().items():
                value.copy_(torch.from_numpy(weights(key, value.shape)))
                tensors[key] = list(value.shape)
            for prompt in PROMPTS:
                states = model(torch.tensor([prompt])).last_hidden_state[0]
                vector = states[0] if pooling == "cls" else states.mean(0)
                if normalise:
                    vector = torch.nn.functional.normalize(vector, dim=0)
                cases.append({"tokens": prompt, "embedding": [round(float(x), 7) for x in vector]})
        out.append({"name": name, "config": config, "pooling": pooling, "normalise": normalise,
                    "tensors": tensors, "cases": cases})
    document = {"made_by": f"torch {torch.__version__}, transformers {transformers.__version__}, "
                           "float32", "models": out}
    text = json.dumps(document, separators=(",", ":"))
    pathlib.Path(sys.argv[1]).write_text(text.replace('{"name"', '\n{"name"') + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
