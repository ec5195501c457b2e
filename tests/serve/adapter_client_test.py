#!/usr/bin/env python3
"""Adapters as users load and ask for them: the real binary behind the official openai library, with the smallest
model, whose adapters each make it write a letter of their own. TARE_BINARY names the binary."""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

import openai

import serving
import tiny_model

BINARY = os.environ["TARE_BINARY"]
BASE, OTHERS = "z", "ABCDEF"


class Server(serving.Server):
    """With the tiny model and an operator's calls."""

    def __init__(self, folder, *flags, model=True, **environment):
        named = [str(folder / "model.gguf"), "--name", "tiny", "--dtype", "f32", "--threads", "1"] if model else []
        super().__init__(*named, *flags, **environment)

    def load(self, name, path, key=None, **more):
        return self.call("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path), **more}, key)

    def unload(self, name, key=None):
        return self.call("POST", "/v1/unload_lora_adapter", {"lora_name": name}, key)


def write(client, model, tokens=5, **options):
    answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}],
                                            max_tokens=tokens, temperature=0, **options)
    return answer if options.get("stream") else answer.choices[0].message.content


class AdapterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="tare-adapters-")
        cls.folder = pathlib.Path(cls.temporary.name)
        tiny_model.write(cls.folder / "model.gguf", BASE, OTHERS)
        for place, letter in enumerate(OTHERS):
            tiny_model.write_adapter(cls.folder / letter, place)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def serve(self, *flags, **more):
        server = Server(self.folder, *flags, **more)
        self.addCleanup(server.close)
        return server

    def config(self, model):
        return str(tiny_model.write_config(self.folder, model, f", --lora, 'first={self.folder / 'A'}'"))

    def test_a_renewed_model_keeps_the_adapters_that_were_loaded(self):
        model = self.folder / "renewed.gguf"
        tiny_model.write(model, BASE, OTHERS)
        server = self.serve("--config", self.config(model), model=False, TARE_TEST_ADMIN="sk-admin")
        self.assertEqual(server.load("one", self.folder / "B", key="sk-admin")[0], 200)
        tiny_model.write(self.folder / "new.gguf", "y", OTHERS)
        os.rename(self.folder / "new.gguf", model)
        self.assertEqual(server.admin("POST", "/admin/reload", {})[0], 200)
        for name, letter in [("m", "y"), ("first", "A"), ("one", "B")]:
            self.assertEqual(write(server.client(), name), letter * 5, name)

    def test_a_flag_that_is_taken_away_takes_its_adapter_with_it(self):
        path = self.config(self.folder / "model.gguf")
        server = self.serve("--config", path, model=False, TARE_TEST_ADMIN="sk-admin")
        self.assertEqual(server.load("one", self.folder / "B", key="sk-admin")[0], 200)
        config = pathlib.Path(path)
        config.write_text(re.sub(r", --lora, [^\]]*\]", "]", config.read_text()))
        status, text = server.admin("POST", "/admin/reload", {})
        self.assertEqual(status, 200, text)
        self.assertEqual(write(server.client(), "one"), "B" * 5)
        with self.assertRaises(openai.NotFoundError):
            write(server.client(), "first")

    def test_adapters_of_the_command_line_and_loaded_ones_beside_the_base(self):
        server = self.serve("--lora", f"one={self.folder / 'A'}", "--lora", f"two={self.folder / 'B'}")
        client = server.client()
        self.assertEqual(server.load("three", self.folder / "C"),
                         (200, "Success: LoRA adapter 'three' added successfully."))
        models = {m.id: m for m in client.models.list()}
        self.assertEqual(set(models), {"tiny", "one", "two", "three"})
        self.assertEqual(models["three"].parent, "tiny")
        self.assertFalse(hasattr(models["tiny"], "parent"))
        self.assertEqual(client.models.retrieve("one").parent, "tiny")
        expected = {"tiny": BASE, "one": "A", "tiny:one": "A", "two": "B", "tiny:three": "C"}
        with concurrent.futures.ThreadPoolExecutor(20) as pool:  # they share steps
            asked = list(expected) * 4
            for model, text in zip(asked, pool.map(lambda m: write(client, m, 60), asked)):
                self.assertEqual(text, expected[model] * 60, model)
        streamed = "".join(chunk.choices[0].delta.content or ""
                           for chunk in write(client, "tiny:two", 9, stream=True) if chunk.choices)
        self.assertEqual(streamed, "B" * 9)
        self.assertEqual(client.completions.create(model="one", prompt="x", max_tokens=3, temperature=0).model, "one")

    def test_unloading_leaves_running_answers_alone_and_frees_the_memory(self):
        tiny_model.write(self.folder / "long.gguf", BASE, OTHERS, context=1 << 16)
        server = self.serve(str(self.folder / "long.gguf"), "--name", "tiny", "--dtype", "f32", "--threads", "1",
                            "--kv-memory", "64MiB", "--lora", f"one={self.folder / 'A'}", model=False)
        client = server.client()
        self.assertGreater(server.metric('tare_lora_bytes{state="loaded"}'), 0)
        # Long enough that the answer still runs when its adapter is gone, however fast the machine.
        unloads, proven, tokens = 0, False, 1000
        while not proven:
            self.assertLess(tokens, 1 << 16, "no answer outlived its adapter")
            if unloads:
                self.assertEqual(server.load("one", self.folder / "A")[0], 200)
            stream = iter(write(client, "one", tokens, stream=True))
            text = next(stream).choices[0].delta.content or ""
            self.assertEqual(server.unload("one"), (200, "Success: LoRA adapter 'one' removed successfully."))
            unloads += 1
            proven = server.metric('tare_lora_adapters{state="retiring"}') == 1  # of a running answer
            self.assertEqual(server.metric('tare_lora_bytes{state="loaded"}'), 0)
            with self.assertRaises(openai.NotFoundError):
                write(client, "one")
            text += "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
            self.assertEqual(text, "A" * tokens)
            tokens *= 2
        end = time.monotonic() + 30
        while server.metric('tare_lora_bytes{state="retiring"}') > 0 and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(server.metric('tare_lora_adapters{state="retiring"}'), 0)
        self.assertEqual(server.metric('tare_lora_changes_total{kind="unload"}'), unloads)
        # The name is free for another, and nothing of the old one's answers is left in the cache.
        self.assertEqual(server.load("one", self.folder / "D")[0], 200)
        self.assertEqual(write(client, "one", 20), "D" * 20)
        self.assertGreater(server.metric("tare_lora_load_seconds_total"), 0)

    def test_what_cannot_be_loaded_is_refused_by_name(self):
        server = self.serve("--lora", f"one={self.folder / 'A'}")
        tiny_model.write_adapter(self.folder / "dora", 0, use_dora=True)
        tiny_model.write_adapter(self.folder / "rank", 0, r=2)
        for name, path, status, words in [
                ("x", self.folder / "none", 404, "there is no adapter in"), ("x", self.folder / "dora", 400, "DoRA"),
                ("x", self.folder / "rank", 400, "the rank 2"), ("one", self.folder / "B", 400, "is loaded already"),
                ("tiny", self.folder / "B", 400, "the model's own name"), ("", self.folder / "B", 400, "lora_name"),
                ("a b", self.folder / "B", 400, "without spaces")]:
            got, text = server.load(name, path)
            self.assertEqual(got, status, text)
            self.assertIn(words, json.loads(text)["error"]["message"])
        self.assertEqual(server.call("POST", "/v1/load_lora_adapter", {"lora_name": "x"})[0], 400)
        self.assertEqual(server.call("GET", "/v1/load_lora_adapter")[0], 405)
        self.assertEqual(server.unload("x")[0], 404)
        self.assertEqual(server.load("one", self.folder / "B", load_inplace=True)[0], 200)
        self.assertEqual(write(server.client(), "one"), "B" * 5)
        with self.assertRaisesRegex(openai.NotFoundError, "'tiny:x' does not exist"):
            write(server.client(), "tiny:x")
        missing = subprocess.run([BINARY, "serve", str(self.folder / "model.gguf"), "--port", "0", "--packed-cache",
                                  "off", "--lora", f"x={self.folder / 'none'}"], capture_output=True, text=True)
        self.assertEqual(missing.returncode, 3, missing.stderr)
        self.assertIn("there is no adapter in", missing.stderr)

    def test_only_the_operator_changes_what_is_served(self):
        keys = self.folder / "keys"
        keys.write_text("sk-client\n")
        server = self.serve("--api-key-file", str(keys))
        status, text = server.load("one", self.folder / "A", key="sk-client")
        self.assertEqual((status, json.loads(text)["error"]["code"]), (403, "operator_only"))
        server = self.serve("--config", self.config(self.folder / "model.gguf"), "--api-key-file", str(keys),
                            model=False, TARE_TEST_ADMIN="sk-admin")
        self.assertEqual(server.load("one", self.folder / "B", key="sk-client")[0], 401)
        self.assertEqual(server.load("m", self.folder / "B", key="sk-admin")[0], 400)
        self.assertEqual(server.load("one", self.folder / "B", key="sk-admin", base_model_name="n")[0], 400)
        self.assertEqual(server.load("one", self.folder / "B", key="sk-admin", base_model_name="m")[0], 200)
        client = server.client("sk-client")
        self.assertEqual({m.id: getattr(m, "parent", None) for m in client.models.list()},
                         {"m": None, "first": "m", "one": "m"})
        for model, letter in [("m", BASE), ("m:first", "A"), ("first", "A"), ("one", "B"), ("m:one", "B")]:
            self.assertEqual(write(client, model), letter * 5, model)
        self.assertEqual(server.unload("one", key="sk-client")[0], 401)
        self.assertEqual(server.unload("one", key="sk-admin")[0], 200)
        with self.assertRaises(openai.NotFoundError):
            write(client, "m:one")


if __name__ == "__main__":
    unittest.main(verbosity=2)
