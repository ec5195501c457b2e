#!/usr/bin/env python3
"""/v1/embeddings as its users ask it: the real binary behind the official openai library, with a tiny
random model, and with all-MiniLM-L6-v2 when it is at hand. TARE_BINARY names the binary."""
import base64
import concurrent.futures
import json
import math
import pathlib
import shutil
import struct
import tempfile
import unittest

import openai

import serving
import tiny_bert

MODEL = serving.find_model("TARE_EMBEDDING_MODEL", "all-minilm-l6-v2/model.safetensors")


class Server(serving.Server):
    def post(self, body):
        """The answer as it is on the wire."""
        status, text = self.call("POST", "/v1/embeddings", body)
        assert status == 200, text
        return json.loads(text)


def floats(text):
    raw = base64.b64decode(text)
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


def to_f32(values):
    return list(struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values)))


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


class TinyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="tare-embeddings-"))
        tiny_bert.write(cls.dir / "tiny")
        cls.server = Server(str(cls.dir / "tiny"))
        cls.client = cls.server.client()

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.server.close()
        shutil.rmtree(cls.dir)
        assert code == 0, f"the server ended with {code}"

    def embed(self, text, **options):
        return self.client.embeddings.create(model="tiny", input=text, **options)

    def test_models_and_startup(self):
        models = self.client.models.list().data
        self.assertEqual([m.id for m in models], ["tiny"])
        self.assertEqual(models[0].max_model_len, 40)
        self.assertIn("/v1/embeddings", self.server.text())

    def test_float_and_base64_are_the_same_numbers(self):
        body = {"model": "tiny", "input": "hello there"}
        as_float = self.server.post({**body, "encoding_format": "float"})["data"][0]["embedding"]
        as_base64 = self.server.post({**body, "encoding_format": "base64"})["data"][0]["embedding"]
        self.assertEqual(to_f32(as_float), floats(as_base64))
        self.assertAlmostEqual(dot(as_float, as_float), 1.0, places=6)
        # What the library asks for by itself (base64) and decodes.
        self.assertEqual(list(self.embed("hello there").data[0].embedding), floats(as_base64))
        self.assertEqual(list(self.embed("hello there", encoding_format="float").data[0].embedding), as_float)

    def test_a_batch_is_its_singles_bit_for_bit(self):
        texts = [("abcdefghij"[:n % 9 + 1] + " ") * (n % 4 + 1) for n in range(64)]
        batch = self.embed(texts)
        self.assertEqual([d.index for d in batch.data], list(range(64)))
        with concurrent.futures.ThreadPoolExecutor(16) as pool:  # concurrent ones share steps
            singles = list(pool.map(self.embed, texts))
        for i, single in enumerate(singles):
            self.assertEqual(list(single.data[0].embedding), list(batch.data[i].embedding), texts[i])
        self.assertEqual(batch.usage.prompt_tokens, sum(s.usage.prompt_tokens for s in singles))
        self.assertEqual(batch.usage.total_tokens, batch.usage.prompt_tokens)

    def test_token_ids(self):
        self.assertEqual(self.embed([2, 5, 3]).data[0].embedding, self.embed("a").data[0].embedding)
        self.assertEqual(len(self.embed([[2, 5, 3], [2, 6, 3]]).data), 2)

    def test_dimensions(self):
        part = list(self.embed("hello", dimensions=8).data[0].embedding)
        whole = list(self.embed("hello").data[0].embedding)[:8]
        length = math.sqrt(dot(whole, whole))
        self.assertEqual(len(part), 8)
        self.assertLess(max(abs(p - w / length) for p, w in zip(part, whole)), 1e-6)

    def test_truncation_is_asked_for(self):
        long = "a b c d " * 20
        with self.assertRaises(openai.BadRequestError) as caught:
            self.embed(long)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        self.assertEqual(caught.exception.param, "input")
        self.assertIn("at most 40 tokens", str(caught.exception))
        cut = self.embed(long, extra_body={"truncate_prompt_tokens": -1})
        self.assertEqual(cut.usage.prompt_tokens, 40)

    def test_errors_have_openais_shape(self):
        for options, kind, param in (
                ({"input": ""}, openai.BadRequestError, "input"),
                ({"input": []}, openai.BadRequestError, "input"),
                ({"input": ["a", ""]}, openai.BadRequestError, "input"),
                ({"input": [10 ** 6]}, openai.BadRequestError, "input"),
                ({"input": "a", "dimensions": 33}, openai.BadRequestError, "dimensions"),
                ({"input": "a", "model": "none"}, openai.NotFoundError, "model")):
            with self.assertRaises(kind) as caught:
                self.client.embeddings.create(**{"model": "tiny", **options})
            self.assertEqual(caught.exception.param, param)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "a"}])
        self.assertIn("/v1/embeddings", str(caught.exception))

    def test_metrics(self):
        self.embed("a b c")
        metrics = self.server.metrics()
        self.assertRegex(metrics, r'tare_requests_total\{.*endpoint="/v1/embeddings".*\} \d')
        self.assertRegex(metrics, r"(?m)^tare_embedding_tokens_total \d")


class RouterTest(unittest.TestCase):
    def test_a_gateway_before_a_server_and_a_model_of_its_own(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tare-embeddings-"))
        self.addCleanup(shutil.rmtree, folder)
        tiny_bert.write(folder / "tiny")
        tiny_bert.write(folder / "other", seed=2)
        back = Server(str(folder / "tiny"))
        self.addCleanup(back.close)
        config = folder / "tare.yaml"
        config.write_text(f"""
upstreams:
  far: {{url: '{back.url}'}}
  near: {{kind: local, model: {folder / 'other'}}}
models:
  far-embed: {{targets: [{{upstream: far, model: tiny}}]}}
  near-embed: {{targets: [{{upstream: near}}]}}
readiness_store: {folder / 'readiness.json'}
""")
        front = Server("--config", str(config))
        self.addCleanup(front.close)
        text = ["hello", "there"]
        far = front.client().embeddings.create(model="far-embed", input=text)
        self.assertEqual(far.model, "far-embed")
        direct = back.client().embeddings.create(model="tiny", input=text)
        self.assertEqual([list(d.embedding) for d in far.data], [list(d.embedding) for d in direct.data])
        self.assertEqual(far.usage, direct.usage)
        near = front.client().embeddings.create(model="near-embed", input=text)
        self.assertEqual(len(near.data), 2)
        self.assertNotEqual(near.data[0].embedding, far.data[0].embedding)
        with self.assertRaises(openai.BadRequestError) as caught:
            front.client().embeddings.create(model="far-embed", input="")
        self.assertEqual(caught.exception.param, "input")


@unittest.skipUnless(MODEL, "no embedding model: run scripts/fetch_embedding_model.sh")
class MiniLmTest(unittest.TestCase):
    def test_agrees_with_transformers(self):
        golden = json.loads((pathlib.Path(__file__).parents[1] / "golden/minilm.json").read_text())["cases"]
        server = Server(MODEL.removesuffix("/model.safetensors"), "--name", "minilm")
        self.addCleanup(server.close)
        answer = server.client().embeddings.create(model="minilm", input=[c["text"] for c in golden],
                                                 extra_body={"truncate_prompt_tokens": -1})
        for case, entry in zip(golden, answer.data):
            norm = math.sqrt(dot(case["embedding"], case["embedding"]))
            self.assertGreater(dot(case["embedding"], entry.embedding) / norm, 0.9999, case["text"])
        self.assertEqual(answer.usage.prompt_tokens, sum(len(c["tokens"]) for c in golden))


if __name__ == "__main__":
    unittest.main()
