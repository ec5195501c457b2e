#!/usr/bin/env python3
"""Writes a GGUF model of random weights in a real architecture, for measuring speed.

usage: bench/random_model.py SHAPE TYPE TOKENIZER.gguf OUT.gguf

SHAPE  moe     qwen3moe: 12 layers of 1,024, 32 experts of 512, 4 a token
       dense   qwen3: the same with one MLP of 2,048, as wide as the 4 experts together
       mla     deepseek2: 8 layers of 1,024, 16 heads over latent vectors of 512 + 64 with queries
               through a latent vector of 512 (llama.cpp loads no other form of so few layers), one
               dense layer, then 32 experts of 512, 4 a token, and a shared one
TYPE   BF16, Q8_0 or Q4_0, for all matrices but routers
The vocabulary and its tokenizer are those of TOKENIZER.gguf. The text such a model writes is noise.
Needs: numpy, gguf.
"""
import math
import sys

import gguf
import numpy as np

# Random numbers that all matrices repeat, each from another block of 32 on; not a multiple of any
# row's length, so that no two rows are alike.
POOL = (1 << 20) + 32
HIDDEN, HEADS, EXPERTS, CHOSEN, INNER = 1024, 16, 32, 4, 512
KV_HEADS, HEAD = 8, 64
RANK, QUERY_RANK, NOPE, ROPE, VALUE = 512, 512, 128, 64, 128


def attention(shape: str) -> dict[str, tuple[int, ...]]:
    if shape == "mla":
        return {"attn_q_a": (QUERY_RANK, HIDDEN), "attn_q_a_norm": (QUERY_RANK,),
                "attn_q_b": (HEADS * (NOPE + ROPE), QUERY_RANK), "attn_kv_a_mqa": (RANK + ROPE, HIDDEN),
                "attn_kv_a_norm": (RANK,), "attn_k_b": (HEADS, RANK, NOPE),
                "attn_v_b": (HEADS, VALUE, RANK), "attn_output": (HIDDEN, HEADS * VALUE)}
    return {"attn_q": (HEADS * HEAD, HIDDEN), "attn_k": (KV_HEADS * HEAD, HIDDEN),
            "attn_v": (KV_HEADS * HEAD, HIDDEN), "attn_output": (HIDDEN, HEADS * HEAD),
            "attn_q_norm": (HEAD,), "attn_k_norm": (HEAD,)}


def mlp(inner: int, suffix: str = "", count: tuple[int, ...] = ()) -> dict[str, tuple[int, ...]]:
    up, down = (*count, inner, HIDDEN), (*count, HIDDEN, inner)
    return {f"ffn_gate{suffix}": up, f"ffn_up{suffix}": up, f"ffn_down{suffix}": down}


def layer(shape: str, index: int) -> dict[str, tuple[int, ...]]:
    parts = {"attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,)} | attention(shape)
    if shape == "dense" or (shape == "mla" and index == 0):
        return parts | mlp(CHOSEN * INNER)
    parts |= {"ffn_gate_inp": (EXPERTS, HIDDEN)} | mlp(INNER, "_exps", (EXPERTS,))
    return parts | mlp(INNER, "_shexp") if shape == "mla" else parts


def copy_tokenizer(writer: gguf.GGUFWriter, path: str) -> int:
    reader = gguf.GGUFReader(path)
    for name, field in reader.fields.items():
        if name.startswith("tokenizer."):
            array = field.types[0] == gguf.GGUFValueType.ARRAY
            writer.add_key_value(name, field.contents(), field.types[0],
                                 field.types[-1] if array else None)
    return len(reader.fields["tokenizer.ggml.tokens"].data)


def facts(writer: gguf.GGUFWriter, shape: str, layers: int) -> None:
    writer.add_name(f"random-{shape}")
    writer.add_context_length(8192)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(layers)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_feed_forward_length(CHOSEN * INNER)
    if shape == "mla":
        writer.add_head_count_kv(1)
        writer.add_q_lora_rank(QUERY_RANK)
        writer.add_kv_lora_rank(RANK)
        writer.add_key_length(RANK + ROPE)
        writer.add_value_length(RANK)
        writer.add_key_length_mla(NOPE + ROPE)
        writer.add_value_length_mla(VALUE)
        writer.add_rope_dimension_count(ROPE)
        writer.add_leading_dense_block_count(1)
        writer.add_expert_shared_count(1)
        writer.add_expert_weights_scale(1.0)
    else:
        writer.add_head_count_kv(KV_HEADS)
        writer.add_key_length(HEAD)
        writer.add_value_length(HEAD)
    if shape != "dense":
        writer.add_expert_count(EXPERTS)
        writer.add_expert_used_count(CHOSEN)
        writer.add_expert_feed_forward_length(INNER)


def main() -> int:
    shapes = {"moe": ("qwen3moe", 12), "dense": ("qwen3", 12), "mla": ("deepseek2", 8)}
    if len(sys.argv) != 5 or sys.argv[1] not in shapes:
        print(__doc__, file=sys.stderr)
        return 2
    shape, kind = sys.argv[1], gguf.GGMLQuantizationType[sys.argv[2]]
    architecture, layers = shapes[shape]
    writer = gguf.GGUFWriter(sys.argv[4], architecture)
    vocab = copy_tokenizer(writer, sys.argv[3])
    facts(writer, shape, layers)
    writer.add_vocab_size(vocab)
    tensors = {"token_embd": (vocab, HIDDEN), "output_norm": (HIDDEN,), "output": (vocab, HIDDEN)}
    for index in range(layers):
        tensors |= {f"blk.{index}.{part}": size for part, size in layer(shape, index).items()}
    pool = np.random.default_rng(1).standard_normal((POOL,), np.float32) * np.float32(HIDDEN**-0.5)
    stored_pool = {kind_: gguf.quants.quantize(pool, kind_).view(np.uint8)
                   for kind_ in (kind, gguf.GGMLQuantizationType.F32)}
    for index, (name, size) in enumerate(tensors.items()):
        if len(size) == 1:
            writer.add_tensor(f"{name}.weight", np.ones(size, np.float32))
            continue
        stored = gguf.GGMLQuantizationType.F32 if name.endswith("ffn_gate_inp") else kind
        block, block_bytes = gguf.GGML_QUANT_SIZES[stored]
        row_bytes = size[-1] // block * block_bytes
        pool_from_here = np.roll(stored_pool[stored], -7919 * index * 32 // block * block_bytes)
        data = np.resize(pool_from_here, math.prod(size[:-1]) * row_bytes)
        writer.add_tensor(f"{name}.weight", data.reshape(*size[:-1], row_bytes), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
