#!/usr/bin/env python3
"""tare serve, tried as its users do: the real binary and model behind the official openai library, and
raw sockets for what no library would send. TARE_BINARY names the binary."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import openai

import serving

BINARY = os.environ["TARE_BINARY"]


MODEL = serving.find_model()


class Server(serving.Server):
    def __init__(self, *flags):
        super().__init__(MODEL, "--name", "small", *flags)

    def get(self, path):
        return self.call("GET", path)


def ask(client, text, **options):
    options.setdefault("temperature", 0)
    options.setdefault("max_tokens", 24)
    return client.chat.completions.create(
        model="small", messages=[{"role": "user", "content": text}], **options)


class ServeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--dtype", "bf16", "--max-num-seqs", "8")
        cls.client = cls.server.client()

    @classmethod
    def tearDownClass(cls):
        cls.server.close()

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["small"])
        self.assertEqual(self.client.models.retrieve("small").id, "small")

    def test_chat(self):
        answer = ask(self.client, "What is the capital of France?")
        self.assertIn("Paris", answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.usage.total_tokens,
                         answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertGreater(answer.usage.prompt_tokens, 7)

    def test_stream_equals_whole_answer(self):
        whole = ask(self.client, "Count from one to ten in words.", max_tokens=40)
        text, usage, finish = "", None, None
        for chunk in ask(self.client, "Count from one to ten in words.", max_tokens=40, stream=True,
                         stream_options={"include_usage": True}):
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
                finish = chunk.choices[0].finish_reason or finish
            if chunk.usage:
                usage = chunk.usage
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(finish, whole.choices[0].finish_reason)
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def test_completion(self):
        answer = self.client.completions.create(model="small", prompt="The capital of France is",
                                                max_tokens=4, temperature=0)
        self.assertIn("Paris", answer.choices[0].text)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 4)

    def test_stop_string_ends_the_answer_before_it(self):
        whole = ask(self.client, "Count from one to ten in words.", max_tokens=40)
        text = whole.choices[0].message.content
        stop = text[len(text) // 2:len(text) // 2 + 3]
        cut = ask(self.client, "Count from one to ten in words.", max_tokens=40, stop=[stop])
        self.assertEqual(cut.choices[0].message.content, text[:text.index(stop)])
        self.assertEqual(cut.choices[0].finish_reason, "stop")

    def test_seed_repeats_and_differs(self):
        def draw(seed):
            return ask(self.client, "Tell me a story.", temperature=1.0, top_p=0.95, seed=seed,
                       max_tokens=32).choices[0].message.content
        self.assertEqual(draw(7), draw(7))
        self.assertGreater(len({draw(seed) for seed in range(4)}), 1)

    def test_seed_repeats_whatever_else_runs(self):
        def draw():
            return ask(self.client, "Tell me a story.", temperature=1.0, seed=11,
                       max_tokens=32).choices[0].message.content
        alone = draw()
        others = [threading.Thread(target=ask, args=(self.client, f"Write {n} sentences about tea."),
                                   kwargs={"max_tokens": 64, "temperature": 1.0}) for n in range(5)]
        for thread in others:
            thread.start()
        among = draw()
        for thread in others:
            thread.join()
        self.assertEqual(alone, among)

    def test_errors_are_the_librarys_own(self):
        def fails(kind, status, param=None, code=None, **changes):
            request = dict(model="small", messages=[{"role": "user", "content": "hi"}], max_tokens=4)
            request.update(changes)
            with self.assertRaises(kind) as caught:
                self.client.chat.completions.create(**request)
            error = caught.exception
            self.assertEqual(error.status_code, status)
            if param:
                self.assertEqual(error.param, param)
            if code:
                self.assertEqual(error.code, code)
            self.assertTrue(error.body["message"])
            return error
        fails(openai.NotFoundError, 404, param="model", code="model_not_found", model="nobody")
        fails(openai.BadRequestError, 400, param="temperature", temperature=-1)
        fails(openai.BadRequestError, 400, param="top_p", top_p=2)
        fails(openai.BadRequestError, 400, param="max_tokens", max_tokens=0)
        fails(openai.BadRequestError, 400, param="messages", messages=[])
        fails(openai.BadRequestError, 400, param="temperature", extra_body={"temperature": "warm"})
        error = fails(openai.BadRequestError, 400, code="context_length_exceeded",
                      messages=[{"role": "user", "content": "word " * 20000}])
        self.assertIn("8192", error.body["message"])

    def test_raw_nonsense_never_hurts(self):
        payloads = [
            b"", b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"GET / HTTP/9.9\r\n\r\n",
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n",
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{}",
            b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100000 + b"\r\n\r\n",
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        ]
        for body in (b"", b"{", b"[]", b"null", b"{\"messages\":1e999}", b"[" * 50000, b"\xff\xfe\x00",
                     b"{\"model\":\"small\",\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}"):
            payloads.append(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                            b"Content-Length: %d\r\n\r\n" % len(body) + body)
        for payload in payloads:
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as connection:
                connection.sendall(payload)
                connection.shutdown(socket.SHUT_WR)
                answer = connection.recv(65536)
            if answer:
                self.assertRegex(answer[:12], rb"^HTTP/1\.1 [45]", payload[:60])
        self.assertEqual(self.server.get("/health")[0], 200)

    def test_client_that_leaves_frees_its_place(self):
        body = json.dumps({"model": "small", "stream": True, "max_tokens": 4000, "ignore_eos": True,
                           "messages": [{"role": "user", "content": "Write a very long story."}]}).encode()
        connection = socket.create_connection(("127.0.0.1", self.server.port), timeout=30)
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(body) + body)
        received = b""
        while received.count(b"data:") < 3:
            received += connection.recv(4096)
        self.assertEqual(self.server.metric("tare_requests_running"), 1)
        connection.close()
        deadline = time.monotonic() + 10
        while self.server.metric("tare_requests_running") != 0:
            self.assertLess(time.monotonic(), deadline, "the request still runs")
            time.sleep(0.02)

    def test_health_and_ready(self):
        self.assertEqual(self.server.get("/health")[0], 200)
        self.assertEqual(self.server.get("/ready")[0], 200)


class LifeTest(unittest.TestCase):
    def test_terminate_finishes_running_answers(self):
        server = Server("--dtype", "int4")
        self.addCleanup(server.close)
        stream = ask(server.client(), "Tell me a long story.", stream=True, max_tokens=120,
                     extra_body={"ignore_eos": True})
        chunks = iter(stream)
        next(chunks)
        server.process.send_signal(signal.SIGTERM)
        finish = None
        for chunk in chunks:
            if chunk.choices and chunk.choices[0].finish_reason:
                finish = chunk.choices[0].finish_reason
        self.assertEqual(finish, "length")
        self.assertEqual(server.process.wait(40), 0, server.text())

    def test_port_in_use_is_said(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            result = subprocess.run([BINARY, "serve", MODEL, "--port", str(port)], capture_output=True,
                                    text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.assertEqual(result.returncode, 3)
        self.assertIn(str(port), result.stderr)
        self.assertIn("--port", result.stderr)

    def test_keys(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("secret-key-of-the-test\n")
            keys.flush()
            server = Server("--api-key-file", keys.name)
            self.addCleanup(server.close)
            with self.assertRaises(openai.AuthenticationError):
                ask(server.client("wrong"), "hi")
            self.assertTrue(ask(server.client("secret-key-of-the-test"), "hi", max_tokens=2).choices)
            self.assertNotIn("secret-key-of-the-test", server.text())


if __name__ == "__main__":
    if MODEL is None:
        print("skipped: no model: run ./run setup, or set TARE_MODEL=/path/file.gguf")
        sys.exit(77)
    unittest.main()
