#!/usr/bin/env python3
"""Writes quantized_weights.json: small weights as quantised Hugging Face checkpoints store them, and
their float32 values.

Values come from the formats' own programs where those run without a GPU: `awq/utils/packing_utils.py`
of AutoAWQ (its path is an argument; it needs torch only) unpacks AWQ, the compressed-tensors package
packs and unpacks its formats, torch converts FP8. GPTQ is packed by AutoGPTQ's published definition.

usage: quantized_weights.py PACKING_UTILS.py OUT.json
       (needs the PyPI packages torch, numpy, compressed-tensors 0.20, and the source of autoawq 0.2.9)
"""
import base64
import importlib.util
import json
import pathlib
import sys

import numpy as np
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams

DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int32: "I32",
          torch.int64: "I64", torch.int8: "I8", torch.float8_e4m3fn: "F8_E4M3"}
rng = np.random.default_rng(11)


def raw(tensor: torch.Tensor) -> str:
    return base64.b64encode(tensor.contiguous().view(torch.uint8).numpy().tobytes()).decode()


def case(name: str, config: dict, parts: dict, values: torch.Tensor) -> dict:
    print(name, list(values.shape))
    return {"name": name, "config": config,
            "tensors": {end: {"dtype": DTYPES[t.dtype], "shape": list(t.shape), "data": raw(t)}
                        for end, t in parts.items()},
            "shape": list(values.shape), "values": raw(values.to(torch.float32))}


def words(shape) -> torch.Tensor:
    return torch.from_numpy(rng.integers(-2**31, 2**31, shape, dtype=np.int64).astype(np.int32))


def halves(shape) -> torch.Tensor:
    return torch.from_numpy(rng.uniform(0.002, 0.02, shape)).to(torch.float16)


def awq(utils, n: int, k: int, group: int) -> dict:
    parts = {"qweight": words((k, n // 8)), "qzeros": words((k // group, n // 8)),
             "scales": halves((k // group, n))}
    values = utils.dequantize_gemm(parts["qweight"], parts["qzeros"], parts["scales"].float(), 4,
                                   group)
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm",
              "zero_point": True}
    return case(f"awq_g{group}", config, parts, values.t())


def pack_words(codes: np.ndarray, bits: int) -> torch.Tensor:
    """Along the first axis, low bits first."""
    per_word = 32 // bits
    out = np.zeros((codes.shape[0] // per_word, codes.shape[1]), np.uint32)
    for i in range(per_word):
        out |= codes[i::per_word].astype(np.uint32) << (bits * i)
    return torch.from_numpy(out.view(np.int32))


def gptq(name: str, n: int, k: int, group: int, bits: int = 4, version: int = 1,
         order: bool = False, middle: bool = False) -> dict:
    codes = rng.integers(0, 2**bits, (k, n))
    zeros = rng.integers(1, 2**bits - 1, (k // group, n))
    if middle:
        zeros[:] = 2**(bits - 1)
    scales = halves((k // group, n))
    group_of = np.arange(k) // group
    if order:
        group_of = rng.permutation(group_of)
    stored = zeros - 1 if version == 1 else zeros
    parts = {"qweight": pack_words(codes, bits),
             "qzeros": pack_words(stored.T, bits).t().contiguous(), "scales": scales,
             "g_idx": torch.from_numpy(group_of.astype(np.int32))}
    values = scales.float().numpy()[group_of] * (codes - zeros[group_of]).astype(np.float32)
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": order,
              "checkpoint_format": "gptq" if version == 1 else "gptq_v2"}
    return case(name, config, parts, torch.from_numpy(values.T.copy()))


def compressed(name: str, n: int, k: int, dtype=torch.bfloat16, **arguments) -> dict:
    args = QuantizationArgs(**arguments)
    form = {"int4": "pack-quantized", "int8": "int-quantized", "float8": "float-quantized"}[
        f"{args.type}{args.num_bits}"]
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    weight = torch.from_numpy(rng.normal(0, 0.05, (n, k))).to(dtype)
    groups = k // args.group_size if args.group_size else 1
    split = weight.reshape(n, groups, -1)
    scale, zero = calculate_qparams(split.amin(-1), split.amax(-1), args)
    parts = {"weight": weight, "weight_scale": scale.to(dtype), "weight_zero_point": zero}
    compressor = BaseCompressor.get_value_from_registry(form)
    packed = compressor.compress(parts, scheme)
    wide = dict(packed, weight_scale=packed["weight_scale"].float())  # so that values are exact
    values = compressor.decompress(wide, scheme)["weight"]
    config = {"quant_method": "compressed-tensors", "format": form,
              "config_groups": {"group_0": {"targets": ["Linear"],
                                            "weights": json.loads(args.model_dump_json())}}}
    return case(name, config, packed, values)


def fp8_blocks(n: int, k: int, block: int) -> dict:
    codes = torch.from_numpy(rng.integers(0, 256, (n, k), dtype=np.uint8))
    codes[(codes & 127) == 127] = 0  # not a number
    weight = codes.view(torch.float8_e4m3fn)
    scales = torch.from_numpy(rng.uniform(1e-4, 2e-3, (-(-n // block), -(-k // block)))).float()
    spread = scales.repeat_interleave(block, 0)[:n].repeat_interleave(block, 1)[:, :k]
    config = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
              "weight_block_size": [block, block]}
    return case("fp8_blocks", config, {"weight": weight, "weight_scale_inv": scales},
                weight.float() * spread)


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    spec = importlib.util.spec_from_file_location("packing_utils", sys.argv[1])
    utils = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(utils)
    group4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    cases = [
        awq(utils, 16, 64, 32), awq(utils, 8, 128, 128),
        gptq("gptq_v1", 16, 64, 32), gptq("gptq_v2", 16, 64, 32, version=2),
        gptq("gptq_order", 16, 64, 32, order=True), gptq("gptq_middle", 16, 64, 64, middle=True),
        gptq("gptq_8", 8, 64, 32, bits=8), gptq("gptq_8_middle", 8, 64, 32, bits=8, middle=True),
        compressed("packed_symmetric", 16, 64, symmetric=True, **group4),
        compressed("packed_zero_points", 16, 64, symmetric=False, **group4),
        compressed("packed_channel", 12, 64, num_bits=4, type="int", strategy="channel",
                   symmetric=True),
        compressed("int8_channel", 8, 64, num_bits=8, type="int", strategy="channel",
                   symmetric=True),
        compressed("float8_channel", 8, 64, num_bits=8, type="float", strategy="channel",
                   symmetric=True),
        fp8_blocks(24, 40, 16),
    ]
    text = json.dumps({"made_by": f"torch {torch.__version__}", "cases": cases},
                      separators=(",", ":"))
    pathlib.Path(sys.argv[2]).write_text(text.replace('{"name"', '\n{"name"') + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
