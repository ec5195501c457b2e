#!/usr/bin/env python3
"""A small SentencePiece model and its ids by the sentencepiece library itself.

usage: sentencepiece_ids.py OUT.json

Trains a BPE model with byte fallback on a few lines (seeded by their order: training is
deterministic), and writes its pieces, scores and types as a GGUF file holds them, and the ids of a
mixed corpus. The C++ test builds its tokenizer from the former and must give the latter, which
proves the merges rebuilt from scores. Needs: sentencepiece.
"""
import base64
import io
import json
import random
import sys

import sentencepiece

LINES = [
    "The quick brown fox jumps over the lazy dog and the other dogs bark at the brown fox.",
    "A language model predicts the next token; the token is a piece of a word, or a word.",
    "Throughput, latency and memory are measured: requests per second, tokens per second.",
    "今天天气很好，我们去公园散步。量化后的模型占用更少的内存。模型的吞吐量和延迟。",
    "def measure(model, prompts):\n    return [model.generate(prompt) for prompt in prompts]",
    "café naïve straße, 12 34 567 8901; x = a[i] + b[j]; don't, it's, we'll",
] * 8
EXTRA = ["😀", "👩‍👩‍👧", "\u00a0", "한국어", "\n", "\n\n", "\t", "  ", "   x", " ", "▁", "<0x41>", "</s>", "<s>", "<unk>", "0x1F", "ZQJX"]


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, model_type="bpe", vocab_size=600, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True, character_coverage=0.98,
        hard_vocab_limit=False, minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    size = sp.vocab_size()
    kind = lambda i: 2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 5 if sp.is_unused(i) else 6 if sp.is_byte(i) else 1
    rng = random.Random(20261130)
    words = [w for line in LINES[:6] for w in line.split(" ")] + EXTRA
    texts = words[:]
    for _ in range(150):
        texts.append("".join(rng.choice(words) + rng.choice(["", " ", " ", "  "]) for _ in range(rng.randint(1, 12))))
    cases = [{"text": base64.b64encode(t.encode()).decode(), "ids": sp.encode(t)} for t in texts]
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump({"made_with": {"sentencepiece": sentencepiece.__version__},
                   "tokens": [sp.id_to_piece(i) for i in range(size)],
                   "types": [kind(i) for i in range(size)],
                   "scores": [round(sp.get_score(i), 6) for i in range(size)],
                   "cases": cases}, out, separators=(",", ":"), ensure_ascii=False)
        out.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
