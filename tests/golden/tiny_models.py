#!/usr/bin/env python3
"""Golden logits of tiny random models of every family, computed by the transformers library.

Usage: tiny_models.py OUT.json

The weights are not stored: both sides generate them from the tensor's name (see `weights`, and
src/model/tiny_checkpoint.h, which must agree bit for bit). Written are each model's config.json,
the names and shapes of its tensors, two prompts and the float32 logits of all their positions.
Needs: torch, transformers.
"""
import json
import math
import pathlib
import sys

import numpy as np
import torch
import transformers

BASE = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 160, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "hidden_act": "silu", "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2,
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
MODELS = {
    "llama": {"model_type": "llama"},
    "llama_tied_linear": {"model_type": "llama", "tie_word_embeddings": True,
                          "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "llama3": {"model_type": "llama", "rope_theta": 500000.0, "rope_scaling": LLAMA3},
    "qwen2": {"model_type": "qwen2", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0},
    "qwen2_yarn": {"model_type": "qwen2", "rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
    "qwen3": {"model_type": "qwen3", "head_dim": 32, "tie_word_embeddings": True,
              "rms_norm_eps": 1e-6, "rope_theta": 1000000.0},
}
EXPERTS = {"model_type": "qwen3_moe", "head_dim": 32, "rms_norm_eps": 1e-6, "num_experts": 8,
           "num_experts_per_tok": 3, "moe_intermediate_size": 48, "norm_topk_prob": True,
           "decoder_sparse_step": 1, "mlp_only_layers": []}
LATENT = {"num_hidden_layers": 3, "num_key_value_heads": 4, "rms_norm_eps": 1e-6,
          "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 24,
          "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
          "first_k_dense_replace": 1, "moe_layer_freq": 1}


def yarn(mscale: float, factor: float, beta_fast: float) -> dict:
    return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": 32,
            "beta_fast": beta_fast, "beta_slow": 1.0, "mscale": mscale, "mscale_all_dim": mscale}


V3 = LATENT | {"q_lora_rank": 48, "n_shared_experts": 1, "scoring_func": "sigmoid",
               "topk_method": "noaux_tc", "norm_topk_prob": True, "rope_interleave": True}
MODELS |= {
    "qwen3_moe": EXPERTS,
    "qwen3_moe_raw": EXPERTS | {"norm_topk_prob": False, "tie_word_embeddings": True},
    "deepseek_v2_lite": LATENT | {
        "model_type": "deepseek_v2", "q_lora_rank": None, "n_shared_experts": 2, "n_group": 1,
        "topk_group": 1, "scoring_func": "softmax", "topk_method": "greedy",
        "norm_topk_prob": False, "routed_scaling_factor": 1.0,
        "rope_scaling": yarn(0.707, 40.0, 32.0)},
    "deepseek_v2": LATENT | {
        "model_type": "deepseek_v2", "q_lora_rank": 48, "n_shared_experts": 2, "n_group": 4,
        "topk_group": 2, "scoring_func": "softmax", "topk_method": "group_limited_greedy",
        "norm_topk_prob": False, "routed_scaling_factor": 3.0,
        "rope_scaling": yarn(1.0, 40.0, 32.0)},
    "deepseek_v3": V3 | {
        "model_type": "deepseek_v3", "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5,
        "rope_scaling": yarn(1.0, 40.0, 32.0)},
    # The library has no type of this name: the class, and a checkpoint's config, are V3's. The
    # latent norms do not follow rms_norm_eps, which shows when it is large.
    "kimi_k2": V3 | {
        "model_type": "kimi_k2", "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.827,
        "rms_norm_eps": 0.01,
        "rope_theta": 50000.0, "rope_scaling": yarn(1.0, 32.0, 1.0)},
}
PROMPTS = [[5, 17, 99, 3, 42, 42, 150], [(7 * i * i + 3) % 160 for i in range(40)]]
KEEP = 12  # positions whose logits are written, spread over the prompt, the last one included


def weights(name: str, shape) -> np.ndarray:
    """Uniform numbers from splitmix64, seeded by FNV-1a of the name; scales are powers of two."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, math.prod(shape) + 1, dtype=np.uint64) * np.uint64(
            0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    u = (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
    if len(shape) == 1:
        u = u * np.float32(0.25)
        return (u if name.endswith("bias") else u + np.float32(1)).reshape(shape)
    return (u * np.float32(2.0 ** round(math.log2(1.9 / math.sqrt(shape[-1]))))).reshape(shape)


def fill(key: str, value: torch.Tensor) -> dict[str, list[int]]:
    """Sets a parameter; returns the tensors a checkpoint has for it. The library keeps all experts
    of a layer as one tensor, gate and up together; checkpoints have a tensor for each."""
    if not key.endswith((".experts.gate_up_proj", ".experts.down_proj")):
        value.copy_(torch.from_numpy(weights(key, value.shape)))
        return {key: list(value.shape)}
    stem, part = key.rsplit(".", 1)
    names = ["gate_proj", "up_proj"] if part == "gate_up_proj" else [part]
    tensors = {}
    for expert in range(value.shape[0]):
        for name, rows in zip(names, value[expert].chunk(len(names))):
            full = f"{stem}.{expert}.{name}.weight"
            rows.copy_(torch.from_numpy(weights(full, rows.shape)))
            tensors[full] = list(rows.shape)
    return tensors


def positions(length: int) -> list[int]:
    return sorted({round(i * (length - 1) / (KEEP - 1)) for i in range(KEEP)})


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    out = []
    for name, facts in MODELS.items():
        config = BASE | facts
        settings = {k: v for k, v in config.items() if k not in ("model_type", "torch_dtype")}
        library_type = config["model_type"].replace("kimi_k2", "deepseek_v3")
        hf_config = transformers.AutoConfig.for_model(library_type, **settings)
        model = transformers.AutoModelForCausalLM.from_config(
            hf_config, attn_implementation="eager", dtype=torch.float32).eval()
        tensors = {}
        with torch.no_grad():
            for key, value in model.state_dict().items():
                if config["tie_word_embeddings"] and key == "lm_head.weight":
                    continue
                tensors |= fill(key, value)
            model.tie_weights()
            cases = []
            for prompt in PROMPTS:
                logits = model(torch.tensor([prompt])).logits[0]
                cases.append({"tokens": prompt, "positions": positions(len(prompt)), "logits": [
                    [round(float(x), 5) for x in logits[i]] for i in positions(len(prompt))]})
        spread = max(max(row) for case in cases for row in case["logits"])
        print(f"{name}: {sum(math.prod(s) for s in tensors.values())} weights, largest {spread}")
        out.append({"name": name, "config": config, "tensors": tensors, "cases": cases})
    document = {"made_by": f"torch {torch.__version__}, transformers {transformers.__version__}, "
                           "float32", "models": out}
    text = json.dumps(document, separators=(",", ":"))
    pathlib.Path(sys.argv[1]).write_text(text.replace('{"name"', '\n{"name"') + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
