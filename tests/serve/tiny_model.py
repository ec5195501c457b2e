"""Writes the smallest model tare serves: a GGUF file of one llama layer and a byte vocabulary whose weights
make it write one letter for ever. An answer then tells, letter by letter, which file wrote it. So does a LoRA
adapter of it, which makes it write another."""
import json
import struct

HIDDEN, FFN, CONTEXT = 32, 32, 512
# GGUF value types (ggml's docs/gguf.md).
UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9


def byte_vocabulary():
    """GPT-2's printable stand-ins for the 256 bytes, and an end-of-text token."""
    kept = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters, fresh = {byte: chr(byte) for byte in kept}, 256
    for byte in range(256):
        if byte not in letters:
            letters[byte], fresh = chr(fresh), fresh + 1
    return [letters[byte] for byte in range(256)] + ["<|endoftext|>"]


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key, kind, value):
    body = {UINT32: lambda: struct.pack("<I", value), FLOAT32: lambda: struct.pack("<f", value),
            STRING: lambda: text(value)}[kind]()
    return text(key) + struct.pack("<I", kind) + body


def array(key, kind, values):
    packed = b"".join(text(v) if kind == STRING else struct.pack("<i", v) for v in values)
    return text(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + packed


def write(path, letter, others="", context=CONTEXT):
    """A model that answers everything with `letter`, over and over; `others` are what adapters may make of that."""
    tokens = byte_vocabulary()
    vocab, chosen = len(tokens), ord(letter)
    entries = [
        entry("general.architecture", STRING, "llama"), entry("general.name", STRING, "tiny"),
        entry("llama.block_count", UINT32, 1), entry("llama.embedding_length", UINT32, HIDDEN),
        entry("llama.attention.head_count", UINT32, 1), entry("llama.attention.head_count_kv", UINT32, 1),
        entry("llama.attention.key_length", UINT32, HIDDEN),
        entry("llama.feed_forward_length", UINT32, FFN), entry("llama.context_length", UINT32, context),
        entry("llama.vocab_size", UINT32, vocab), entry("llama.rope.freq_base", FLOAT32, 10000.0),
        entry("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
        entry("tokenizer.ggml.model", STRING, "gpt2"), entry("tokenizer.ggml.pre", STRING, "gpt-2"),
        array("tokenizer.ggml.tokens", STRING, tokens),
        array("tokenizer.ggml.token_type", INT32, [1] * 256 + [3]),
        array("tokenizer.ggml.merges", STRING, []),
        entry("tokenizer.ggml.eos_token_id", UINT32, vocab - 1),
        entry("tokenizer.chat_template", STRING, "{% for m in messages %}{{ m.content }}{% endfor %}"),
    ]
    ones = [1.0] * HIDDEN
    zeros = [0.0] * (HIDDEN * HIDDEN)
    # Every token looks the same, the layer adds nothing, and one row of the output stands out.
    output = [0.0] * (vocab * HIDDEN)
    output[chosen * HIDDEN:(chosen + 1) * HIDDEN] = ones
    for place, other in enumerate(others):
        output[ord(other) * HIDDEN + place] = 4.0
    tensors = [("token_embd.weight", (HIDDEN, vocab), ones * vocab), ("output_norm.weight", (HIDDEN,), ones),
               ("output.weight", (HIDDEN, vocab), output),
               ("blk.0.attn_norm.weight", (HIDDEN,), ones), ("blk.0.ffn_norm.weight", (HIDDEN,), ones)]
    for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        tensors.append((f"blk.0.{part}.weight", (HIDDEN, HIDDEN), zeros))
    infos, data = b"", b""
    for name, dims, values in tensors:
        infos += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        infos += struct.pack("<IQ", 0, len(data))  # type 0: F32
        data += struct.pack(f"<{len(values)}f", *values)
        data += b"\0" * (-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries) + infos
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)


def write_config(folder, model, more=""):
    """A tare.yaml that serves the model as `m`; the admin key is in TARE_TEST_ADMIN. Its path."""
    path = folder / "tare.yaml"
    path.write_text(f"upstreams: {{tiny: {{kind: local, model: {model}, dtype: f32, threads: 1,"
                    f" flags: [--max-num-seqs, '8'{more}]}}}}\n"
                    "models: {m: {targets: [{upstream: tiny}]}}\n"
                    "admin: {port: 0, key_env: TARE_TEST_ADMIN}\n"
                    f"quota_store: {folder / 'quotas.db'}\n"
                    f"readiness_store: {folder / 'readiness.json'}\n")
    return path


def write_adapter(folder, place, **settings):
    """A LoRA adapter, in PEFT's format, that makes the model write the letter at `place` of its `others`: what it
    puts into the value and takes out of it again moves the state that way."""
    def one_at(index, value):
        return [value if i == index else 0.0 for i in range(HIDDEN)]
    names = {"v_proj.lora_A": ([1 / HIDDEN] * HIDDEN, (1, HIDDEN)), "v_proj.lora_B": (one_at(0, 1.0), (HIDDEN, 1)),
             "o_proj.lora_A": (one_at(0, 1.0), (1, HIDDEN)), "o_proj.lora_B": (one_at(place, 50.0), (HIDDEN, 1))}
    header, data = {}, b""
    for name, (values, shape) in names.items():
        raw = struct.pack(f"<{len(values)}f", *values)
        header[f"base_model.model.model.layers.0.self_attn.{name}.weight"] = {
            "dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(header).encode()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": 1, "lora_alpha": 2, "target_modules": ["v_proj", "o_proj"], "bias": "none",
         "task_type": "CAUSAL_LM", **settings}))
