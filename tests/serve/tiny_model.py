"""Writes the smallest model tare serves: a GGUF file of one llama layer and a byte vocabulary whose weights
make it write one letter for ever. An answer then tells, letter by letter, which file wrote it."""
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


def write(path, letter):
    """A model that answers everything with `letter`, over and over."""
    tokens = byte_vocabulary()
    vocab, chosen = len(tokens), ord(letter)
    entries = [
        entry("general.architecture", STRING, "llama"), entry("general.name", STRING, "tiny"),
        entry("llama.block_count", UINT32, 1), entry("llama.embedding_length", UINT32, HIDDEN),
        entry("llama.attention.head_count", UINT32, 1), entry("llama.attention.head_count_kv", UINT32, 1),
        entry("llama.attention.key_length", UINT32, HIDDEN),
        entry("llama.feed_forward_length", UINT32, FFN), entry("llama.context_length", UINT32, CONTEXT),
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
