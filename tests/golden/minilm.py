#!/usr/bin/env python3
"""Golden embeddings of all-MiniLM-L6-v2, computed by the transformers library.

Usage: minilm.py MODEL_FOLDER OUT.json

Written are texts, their token ids, and the mean-pooled, normalised float32 embedding of each, as
sentence-transformers makes it (at most 256 tokens). Needs: torch, transformers.
"""
import json
import pathlib
import sys

import torch
import transformers

TEXTS = [
    "Hello",
    "The weight of the container must be taken off before you know what the goods weigh.",
    "How do I reset my password?",
    "¿Cómo restablezco mi contraseña?",
    "我忘记了密码，怎么办？",
    "Naïve café — façade, über-Straße: 3.14159 × 2 = 6.28318 🙂",
    "def f(x):\n\treturn x ** 2  # squares",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "a " * 120,
    " ".join(f"Item {i} costs {i * 7 % 91} dollars." for i in range(60)),
]


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
    model = transformers.AutoModel.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
    cases = []
    with torch.no_grad():
        for text in TEXTS:
            ids = tokenizer(text, truncation=True, max_length=256, padding=False)["input_ids"]
            vector = model(torch.tensor([ids])).last_hidden_state[0].mean(0)
            vector = torch.nn.functional.normalize(vector, dim=0)
            cases.append({"text": text, "tokens": ids,
                          "embedding": [round(float(x), 6) for x in vector]})
    document = {"model": "all-MiniLM-L6-v2", "made_by": f"torch {torch.__version__}, transformers "
                f"{transformers.__version__}, float32", "cases": cases}
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    pathlib.Path(sys.argv[2]).write_text(text.replace('{"text"', '\n{"text"') + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
