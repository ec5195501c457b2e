#!/usr/bin/env python3
"""Golden logits of LoRA adapters on tiny random models, computed by the PEFT library.

Usage: lora_logits.py OUT.json

As in tiny_models.py no weights are stored: those of the base and of the adapter come from their
tensors' names. Written are each adapter's adapter_config.json as PEFT saved it, the names and shapes
of its tensors as in adapter_model.safetensors, and the float32 logits of the base with it.
Needs: torch, transformers, peft, safetensors.
"""
import json
import pathlib
import sys
import tempfile

import peft
import safetensors
import torch
import transformers

from tiny_models import BASE, MODELS, PROMPTS, fill, positions, weights

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS = {
    "all": ("llama", {"r": 8, "lora_alpha": 4, "target_modules": ALL}),
    "rank_stabilised": ("llama3", {"r": 4, "lora_alpha": 2, "use_rslora": True,
                                   "target_modules": ["q_proj", "v_proj"]}),
    "patterns": ("llama", {"r": 6, "lora_alpha": 3, "target_modules": ALL,
                           "rank_pattern": {"layers.1.mlp.down_proj": 20, "k_proj": 3},
                           "alpha_pattern": {"layers.0.self_attn.q_proj": 9, "q_proj": 1,
                                             "up_proj": 0.5}}),
    "biases": ("qwen2", {"r": 24, "lora_alpha": 12, "target_modules": ["k_proj", "v_proj", "down_proj"]}),
    "head_norms": ("qwen3", {"r": 5, "lora_alpha": 5, "target_modules": ["q_proj", "k_proj", "o_proj"],
                             "layers_to_transform": [1]}),
    "latent": ("deepseek_v3", {"r": 8, "lora_alpha": 4, "target_modules": [
        "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "gate_proj", "up_proj",
        "down_proj"]}),
    "latent_direct": ("deepseek_v2_lite", {"r": 20, "lora_alpha": 10, "target_modules": [
        "q_proj", "kv_b_proj", "shared_experts.down_proj"]}),
    "beside_experts": ("qwen3_moe", {"r": 8, "lora_alpha": 8, "target_modules": ["q_proj", "o_proj"]}),
}


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    out = []
    for name, (base, settings) in ADAPTERS.items():
        config = BASE | MODELS[base]
        hf_config = transformers.AutoConfig.for_model(
            config["model_type"],
            **{k: v for k, v in config.items() if k not in ("model_type", "torch_dtype")})
        model = transformers.AutoModelForCausalLM.from_config(
            hf_config, attn_implementation="eager", dtype=torch.float32).eval()
        with torch.no_grad():
            for key, value in model.state_dict().items():
                if not (config["tie_word_embeddings"] and key == "lm_head.weight"):
                    fill(key, value)
            model.tie_weights()
            plain = model(torch.tensor([PROMPTS[0]])).logits[0]
            # Of types it knows as mixtures, the library would take gate_proj and the like to mean the
            # experts, which are no linear layers there.
            model.config.model_type = "plain"
            adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **settings)).eval()
            for key, value in peft.get_peft_model_state_dict(adapted).items():
                value.copy_(torch.from_numpy(weights(key, value.shape)))
            with tempfile.TemporaryDirectory() as folder:
                adapted.save_pretrained(folder)
                saved = json.loads((pathlib.Path(folder) / "adapter_config.json").read_text())
                with safetensors.safe_open(pathlib.Path(folder) / "adapter_model.safetensors", "pt") as file:
                    tensors = {key: list(file.get_slice(key).get_shape()) for key in file.keys()}
            cases = []
            for prompt in PROMPTS:
                logits = adapted(torch.tensor([prompt])).logits[0]
                cases.append({"tokens": prompt, "positions": positions(len(prompt)), "logits": [
                    [round(float(x), 5) for x in logits[i]] for i in positions(len(prompt))]})
            moved = (adapted(torch.tensor([PROMPTS[0]])).logits[0] - plain).abs().max()
        print(f"{name}: {len(tensors)} tensors, moves logits by up to {moved:.3f}")
        saved["target_modules"] = sorted(saved["target_modules"])
        out.append({"name": name, "base": base, "config": saved, "tensors": tensors, "cases": cases})
    document = {"made_by": f"torch {torch.__version__}, transformers {transformers.__version__}, "
                           f"peft {peft.__version__}, float32", "adapters": out}
    text = json.dumps(document, separators=(",", ":"))
    pathlib.Path(sys.argv[1]).write_text(text.replace('{"name"', '\n{"name"') + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
