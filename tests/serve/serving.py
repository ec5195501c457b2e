"""What the server tests share: the tare binary as a process of its own, models that may be at hand, and clients that
keep asking while what they ask for is swapped. Needs nothing but Python."""
import functools
import http.client
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import threading
import time

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ADMIN_KEY = "sk-admin"


def find_model(variable="TARE_MODEL", name="smollm2-135m-instruct-q4_1.gguf"):
    """A model by its environment variable or in the user's cache; None when it is not there."""
    if os.environ.get(variable):
        return os.environ[variable]
    cache = (os.environ.get("TARE_CACHE_DIR")
             or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tare"))
    path = pathlib.Path(cache) / name
    return str(path) if path.exists() else None


class Server:
    """`tare serve` with these flags, on a port of its own; its log is kept for messages of failing tests."""

    def __init__(self, *flags, binary=None, **environment):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.process = subprocess.Popen(
            [binary or os.environ["TARE_BINARY"], "serve", "--port", "0", "--packed-cache", "off", *flags],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=dict(os.environ, **environment))
        self.url = self.wait_for(r"^listening (http://\S+)", 120)
        self.port = int(self.url.rsplit(":", 1)[1])

    @functools.cached_property
    def admin_port(self):
        return int(self.wait_for(r"^admin +http://[^:]+:(\d+)"))

    def text(self):
        return pathlib.Path(self.log.name).read_text()

    def wait_for(self, pattern, timeout=60):
        """The first group of `pattern` in the log."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            ended = self.process.poll() is not None
            found = re.search(pattern, self.text(), re.M)
            if found:
                return found.group(found.lastindex or 0)
            if ended:
                break
            time.sleep(0.01)
        raise AssertionError(f"no '{pattern}' in the log:\n{self.text()}")

    def call(self, method, path, body=None, key=None, port=None, connection=None):
        """Status and text. On `connection`, which stays open, or on one of its own."""
        used = connection or http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=60)
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        try:
            used.request(method, path, None if body is None else json.dumps(body), headers)
            answer = used.getresponse()
            return answer.status, answer.read().decode()
        finally:
            if connection is None:
                used.close()

    def admin(self, method, path, body=None, key=ADMIN_KEY):
        return self.call(method, path, body, key, self.admin_port)

    def client(self, key="none"):
        """The official library, which only some tests have."""
        import openai
        return openai.OpenAI(base_url=self.url + "/v1", api_key=key, max_retries=0, timeout=120)

    def metrics(self):
        return self.call("GET", "/metrics")[1]

    def metric(self, name):
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.metrics(), re.M)
        if not found:
            raise AssertionError(f"no metric {name}")
        return float(found.group(1))

    def stop(self, how=signal.SIGTERM):
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(60)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()


def read_answer(text, stream):
    """What the model wrote, and whether the answer says that it is complete."""
    if not stream:
        choice = json.loads(text)["choices"][0]
        return choice["message"]["content"], choice["finish_reason"] == "length"
    events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    written = "".join(json.loads(event)["choices"][0]["delta"].get("content") or ""
                      for event in events if event != "[DONE]" and json.loads(event)["choices"])
    return written, events[-1] == "[DONE]"


class SwapRun:
    """Clients that ask until `requests` are sent, while versions of what they ask for are swapped, spread over the
    run. Every version writes one letter over and over, so an answer tells which versions wrote it. What is wrong is
    in `faults`; `answers` counts by what `served` returns."""

    def __init__(self, server, requests, swaps, longest, streamed, models=("m",)):
        self.server, self.requests, self.swaps = server, requests, swaps
        self.longest, self.streamed, self.models = longest, streamed, models  # tokens; share of streams
        # Swaps that surely took over, and those that may have.
        self.sent = self.swapped = self.begun = 0
        self.faults, self.answers, self.times = [], {}, []
        self.lock = threading.Lock()

    def served(self, model, letter, earliest):
        """Under the lock: what to count the answer as, or a fault (a ValueError). `earliest`: the version that had
        taken over when the request was sent."""
        raise NotImplementedError

    def swap(self, number):
        """Brings version `number`; an error's words, or None."""
        raise NotImplementedError

    def client(self, seed):
        chance = random.Random(seed)
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        while True:
            with self.lock:
                if self.sent >= self.requests:
                    return
                self.sent += 1
                earliest = self.swapped
            model, stream = chance.choice(self.models), chance.random() < self.streamed
            tokens = chance.randint(1, self.longest)
            body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens,
                    "temperature": 0, "stream": stream}
            try:
                status, text = self.server.call("POST", "/v1/chat/completions", body, connection=connection)
                written, whole = read_answer(text, stream) if status == 200 else (text, False)
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                status, written, whole = 0, repr(error), False
                connection.close()
            with self.lock:
                if status != 200 or not whole:
                    self.faults.append(f"lost: {model} {status} {written!r}")
                elif written != written[:1] * tokens:
                    self.faults.append(f"mixed: {model} {written!r}")
                else:
                    try:
                        kind = self.served(model, written[:1], earliest)
                        self.answers[kind] = self.answers.get(kind, 0) + 1
                    except ValueError as fault:
                        self.faults.append(str(fault))

    def run(self, clients=8):
        """Seconds it took."""
        begin = time.monotonic()
        threads = [threading.Thread(target=self.client, args=(seed,)) for seed in range(clients)]
        for thread in threads:
            thread.start()
        for number in range(1, self.swaps + 1):
            while self.sent < self.requests * number / (self.swaps + 1) and not self.faults:
                time.sleep(0.001)
            with self.lock:
                self.begun = number
            start = time.monotonic()
            fault = self.swap(number)
            self.times.append(time.monotonic() - start)
            with self.lock:
                self.swapped = number
                if fault:
                    self.faults.append(f"swap {number}: {fault}")
        for thread in threads:
            thread.join()
        code = self.server.stop()
        if code != 0:
            self.faults.append(f"it ended with {code}")
        return time.monotonic() - begin
