#!/usr/bin/env python3
"""A small rank-based vocabulary and its ids by the tiktoken library itself.

usage: tiktoken_ids.py OUT.json

Trains byte-pair ranks on a few lines with tiktoken's own trainer and encodes a mixed corpus with
Kimi-K2's pattern. Needs: tiktoken, regex.
"""
import base64
import json
import random
import sys

import tiktoken
from tiktoken._educational import bpe_train

# Kimi-K2's alternatives, as its tokenization file joins them.
NOT_LETTER = r"[^\r\n\p{L}\p{N}]?"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join([r"[\p{Han}]+", NOT_LETTER + UPPER + "*" + LOWER + "+" + CONTRACTION,
                    NOT_LETTER + UPPER + "+" + LOWER + "*" + CONTRACTION, r"\p{N}{1,3}",
                    r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
LINES = [
    "The quick brown fox jumps over the lazy dog and the other dogs bark at the brown fox. ",
    "Throughput, latency and memory are measured: requests per second, tokens per second. ",
    "今天天气很好，我们去公园散步。量化后的模型占用更少的内存。模型的吞吐量和延迟。",
    "aaaaaaa aaaa aa bananas ananas 12 34 567 8901; don't, it's, we'll HTTPServer fooBar ",
    "def measure(model, prompts):\n    return [model.generate(prompt) for prompt in prompts]\n",
]
EXTRA = ["😀", "👩‍👩‍👧", "\u00a0", "한국어", "日本語カナ", "\n", "\n\n", "\r\n ", "\t", "  ", "   x", " ", "e\u0301", "naïve", "İ", "1234567",
         "aaaaaaaaaaaaaaaaaaaaaaa", "anananananan", "<|im_end|>", "[BOS]", "X'S", "中a国B", "", "\x00", "½٣"]


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    ranks = bpe_train("".join(LINES * 3), 256 + 160, r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+", None)
    special = {"[BOS]": 416, "[EOS]": 417, "<|im_end|>": 418}
    encoding = tiktoken.Encoding("small", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)
    rng = random.Random(20261130)
    words = [w for line in LINES for w in line.split(" ")] + EXTRA
    texts = words + ["".join(rng.choice(words) + rng.choice(["", " ", "  "]) for _ in range(rng.randint(1, 12))) for _ in range(150)]
    cases = []
    for text in texts:
        case = {"text": base64.b64encode(text.encode()).decode(), "ids": encoding.encode(text, disallowed_special=())}
        trusted = encoding.encode(text, allowed_special="all")
        if trusted != case["ids"]:
            case["trusted_ids"] = trusted
        cases.append(case)
    model = "".join(base64.b64encode(token).decode() + f" {rank}\n" for token, rank in ranks.items())
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump({"made_with": {"tiktoken": tiktoken.__version__}, "model": model, "special": special, "cases": cases},
                  out, separators=(",", ":"), ensure_ascii=False)
        out.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
