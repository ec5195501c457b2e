#!/usr/bin/env python3
"""Token ids of a mixed corpus by the Hugging Face libraries, for the C++ tokenizer to equal.

usage: token_ids.py MODEL.gguf OUT.json

The tokenizer is put together here from the file's vocabulary and merges and from the pre-tokenizer
that SmolLM2's own tokenizer.json has (single digits, then GPT-2's words), so neither the conversion
nor the wrapping shares code with ours. (`transformers` reads this file too, but ignores the name of
its pre-tokenizer and gives other ids for blanks before digits.) Texts are random but seeded: words of several scripts, code,
emoji, digits, runs of blanks, and bytes that are no UTF-8 (given to the library as Python's
decode(errors="replace") reads them; the JSON holds the raw bytes in base64).

The result is checked in beside the C++ test that reads it. Needs: tokenizers, gguf.
"""
import base64
import json
import pathlib
import random
import sys

import gguf
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

FRAGMENTS = [
    "the ", "quick", " brown", "Fox's", " don't", " WE'LL", "ing", " naïve café", "straße", "İstanbul", "ﬁ",
    "今天天气很好", "量化后的模型", "，但是", "「引用」", "第12条", "日本語のテキスト", "カタカナ", "한국어 문장", "привет, мир", "Ελληνικά",
    "שלום", "مرحبا", "नमस्ते", "ไทย", "👍", "👩‍👩‍👧‍👦", "🇨🇳", "e\u0301", "\u200b", "\ufeff", "\u00a0", "\u3000",
    "1", "12", "123", "1234567890", "3.14159", "0x1F", "１２３", "½", "٣", " 7 ", "$1,240.50",
    " ", "  ", "   ", "    ", "\t", "\t\t", "\n", "\n\n", "\r\n", " \n", "\n ", "  \n\n  ", "        ",
    "def f(x):\n    return x * 2\n", "for (int i = 0; i < n; ++i) {\n\ta[i] += b;\n}\n", "SELECT * FROM t WHERE a='b';",
    "<html><body class=\"x\">", "{\"key\": [1, 2, null]}", "https://example.org/a?b=c&d=%20", "!!!", "...", "—", "“”", "\\n", "a_b-c",
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "|>", "<", "</s>", "<repo_name>", "[INST]",
]
BYTES = [b"\xff", b"\xc3", b"\xe4\xb8", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\x00", b"\x7f", b"\xf5\x80\x80"]


def corpus() -> list[bytes]:
    rng = random.Random(20261130)
    texts = [fragment.encode() for fragment in FRAGMENTS] + [b""] + BYTES
    for _ in range(240):
        parts = []
        for _ in range(rng.randint(1, 12)):
            if rng.random() < 0.06:
                parts.append(rng.choice(BYTES))
            elif rng.random() < 0.15:
                parts.append("".join(chr(rng.choice([rng.randint(32, 126), rng.randint(0xA0, 0x2FFF),
                                                     rng.randint(0x3040, 0x9FFF), rng.randint(0x1F300, 0x1FAFF)]))
                                     for _ in range(rng.randint(1, 6))).encode())
            else:
                parts.append(rng.choice(FRAGMENTS).encode())
        texts.append(b"".join(parts))
    texts.append(b" " * 700 + b"x" + b"a" * 700 + b"\n" * 300)
    return texts


def reference(path: pathlib.Path) -> tokenizers.Tokenizer:
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    control = 3
    tokenizer.add_special_tokens([token for token, kind in zip(tokens, types) if kind == control])
    return tokenizer


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    fast = reference(pathlib.Path(sys.argv[1]))
    cases = []
    for raw in corpus():
        text = raw.decode("utf-8", errors="replace")
        fast.encode_special_tokens = True
        plain = fast.encode(text, add_special_tokens=False).ids
        fast.encode_special_tokens = False
        trusted = fast.encode(text, add_special_tokens=False).ids
        case = {"text": base64.b64encode(raw).decode(), "ids": plain}
        if trusted != plain:
            case["trusted_ids"] = trusted
        if fast.decode(plain, skip_special_tokens=False) != text:
            case["decodes_otherwise"] = True
        cases.append(case)
    document = {
        "model": "SmolLM2-135M-Instruct",
        "made_with": {"tokenizers": tokenizers.__version__},
        "cases": cases,
    }
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write("{\"model\": %s, \"made_with\": %s, \"cases\": [\n" % (json.dumps(document["model"]),
                                                                    json.dumps(document["made_with"])))
        out.write(",\n".join(json.dumps(case, separators=(",", ":")) for case in cases))
        out.write("\n]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
