"""Writes the smallest embedding model tare serves: a sentence-transformers folder with one BERT layer
of random weights and a vocabulary of letters."""
import json
import random
import struct

HIDDEN, FFN, POSITIONS = 32, 64, 48


def write(folder, seed=1):
    draw = random.Random(seed)
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + letters + ["##" + c for c in letters]
    shapes = {"embeddings.word_embeddings.weight": (len(pieces), HIDDEN),
              "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
              "embeddings.token_type_embeddings.weight": (2, HIDDEN)}
    layer = "encoder.layer.0."
    for part, shape in (("attention.self.query", (HIDDEN, HIDDEN)),
                        ("attention.self.key", (HIDDEN, HIDDEN)),
                        ("attention.self.value", (HIDDEN, HIDDEN)),
                        ("attention.output.dense", (HIDDEN, HIDDEN)),
                        ("intermediate.dense", (FFN, HIDDEN)), ("output.dense", (HIDDEN, FFN))):
        shapes[layer + part + ".weight"] = shape
        shapes[layer + part + ".bias"] = shape[:1]
    for norm in ("embeddings.LayerNorm", layer + "attention.output.LayerNorm",
                 layer + "output.LayerNorm"):
        shapes[norm + ".weight"] = shapes[norm + ".bias"] = (HIDDEN,)
    header, data = {}, b""
    for name, shape in shapes.items():
        size = shape[0] * (shape[1] if len(shape) == 2 else 1)
        centre = 1.0 if name.endswith("LayerNorm.weight") else 0.0
        values = struct.pack(f"<{size}f", *(draw.gauss(centre, 0.2) for _ in range(size)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(parents=True)
    (folder / "1_Pooling").mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    for name, content in (
            ("config.json", {
                "model_type": "bert", "architectures": ["BertModel"], "hidden_size": HIDDEN,
                "intermediate_size": FFN, "num_hidden_layers": 1, "num_attention_heads": 2,
                "vocab_size": len(pieces), "max_position_embeddings": POSITIONS, "type_vocab_size": 2,
                "layer_norm_eps": 1e-12, "hidden_act": "gelu"}),
            ("modules.json", [{"type": "sentence_transformers.models." + kind, "path": path}
                              for kind, path in (("Transformer", ""), ("Pooling", "1_Pooling"),
                                                 ("Normalize", "2_Normalize"))]),
            ("1_Pooling/config.json", {"pooling_mode_mean_tokens": True}),
            ("sentence_bert_config.json", {"max_seq_length": 40})):
        (folder / name).write_text(json.dumps(content))
