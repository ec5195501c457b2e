#!/usr/bin/env python3
"""Writes ggml_blocks.txt: random blocks of GGUF's quantised types and their values, as the `gguf`
package's reference dequantisation gives them. A line is: type, block bytes, float32 values (both
hexadecimal, little-endian).

usage: ggml_blocks.py > ggml_blocks.txt      (needs the PyPI packages gguf and numpy)
"""
import gguf
import numpy as np

# type, byte offsets of its half-precision numbers
TYPES = {"Q5_0": [0], "Q5_1": [0, 2], "IQ4_NL": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "MXFP4": []}

rng = np.random.default_rng(7)
for name, halves in TYPES.items():
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    for _ in range(1 if elements == 256 else 3):
        block = rng.integers(0, 256, size, dtype=np.uint8)
        for at in halves:
            block[at:at + 2] = np.frombuffer(np.float16(rng.normal() * 0.01).tobytes(), np.uint8)
        values = gguf.quants.dequantize(block.reshape(1, size), kind).astype("<f4")
        print(name, block.tobytes().hex(), values.tobytes().hex())
