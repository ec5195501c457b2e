#!/usr/bin/env python3
"""Golden logits of a llama-family GGUF file, computed by the transformers library in float32.

Usage: llama_logits.py MODEL.gguf OUT.json

transformers reads the same GGUF file (dequantising it), so differences are ours: rotary order,
norms, attention, head. For each prompt: token ids, the 64 largest logits after the last token, the
logits of 256 fixed ids, mean and root mean square over the vocabulary, and 64 greedy tokens.
Needs: torch, transformers, accelerate, gguf (any recent versions; the output names those used).
"""
import json
import pathlib
import sys

import torch
import transformers

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea, there lived",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "#include <vector>\n\nint main() {\n  std::vector<int> v = {1, 2, 3};\n",
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n",
    "北京是中国的首都。",
    "请用中文解释什么是机器学习：\n1. ",
    "SELECT name, COUNT(*) FROM orders WHERE total > 100 GROUP BY name -- 统计每个客户 🙂\n"
    "The query above, explained step by step for someone who has never seen SQL before, does the "
    "following. First it looks at every row of the table called orders. Then it keeps only",
]
TOP = 64
SAMPLE = 256
GREEDY = 64


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    path = pathlib.Path(sys.argv[1]).absolute()
    load = {"gguf_file": path.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, **load)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, dtype=torch.float32, attn_implementation="eager", **load).eval()
    vocab = model.config.vocab_size
    sample_ids = [i * vocab // SAMPLE for i in range(SAMPLE)]
    cases = []
    with torch.no_grad():
        for prompt in PROMPTS:
            ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
            out = model(torch.tensor([ids]), use_cache=True)
            logits = out.logits[0, -1]
            top = torch.topk(logits, TOP)
            greedy = []
            cache, last = out.past_key_values, logits
            for _ in range(GREEDY):
                token = int(torch.argmax(last))
                greedy.append(token)
                out = model(torch.tensor([[token]]), past_key_values=cache, use_cache=True)
                cache, last = out.past_key_values, out.logits[0, -1]
            cases.append({
                "prompt": prompt,
                "tokens": ids,
                "top": [[int(i), round(float(v), 5)] for v, i in zip(*top)],
                "sample": [round(float(logits[i]), 5) for i in sample_ids],
                "mean": float(logits.double().mean()),
                "rms": float(logits.double().square().mean().sqrt()),
                "greedy": greedy,
            })
            print(repr(prompt[:30]), repr(tokenizer.decode(greedy)[:70]))
    document = {
        "made_by": f"torch {torch.__version__}, transformers {transformers.__version__}, float32",
        "model": path.name,
        "vocab": vocab,
        "cases": cases,
    }
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    pathlib.Path(sys.argv[2]).write_text(text.replace('{"prompt"', '\n{"prompt"') + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
