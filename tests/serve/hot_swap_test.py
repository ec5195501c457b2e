#!/usr/bin/env python3
"""Requests while a local model is replaced again and again: none lost, none mixed. Each version of the model
writes one letter of its own, so every answer tells which version wrote every token of it. Needs nothing but
Python and a tare binary.

  hot_swap_test.py TARE [--requests 1000] [--swaps 5]      the heavy run: --requests 10000 --swaps 20
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import tiny_model

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
CLIENTS, ADMIN_KEY = 8, "sk-admin"


def call(port, path, body, key=None, connection=None):
    own = connection is None
    connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    if own:
        connection.close()
    return answer.status, text


def read_answer(text, stream):
    """What the model wrote, and whether the answer says that it is complete."""
    if not stream:
        choice = json.loads(text)["choices"][0]
        return choice["message"]["content"], choice["finish_reason"] == "length"
    events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    written = "".join(json.loads(event)["choices"][0]["delta"].get("content") or ""
                      for event in events if event != "[DONE]" and json.loads(event)["choices"])
    return written, events[-1] == "[DONE]"


class Run:
    def __init__(self, port, requests, swaps):
        self.port, self.requests, self.swaps = port, requests, swaps
        self.sent = self.swapped = 0  # swapped: versions that surely took over
        self.begun_swaps = 0
        self.faults, self.written = [], {}
        self.lock = threading.Lock()

    def client(self, seed):
        chance = random.Random(seed)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while True:
            with self.lock:
                if self.sent >= self.requests:
                    return
                self.sent += 1
                earliest = self.swapped
            stream, tokens = chance.random() < 0.5, chance.randint(1, 24)
            body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens,
                    "temperature": 0, "stream": stream}
            try:
                status, text = call(self.port, "/v1/chat/completions", body, connection=connection)
                written, whole = read_answer(text, stream) if status == 200 else (text, False)
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                status, written, whole = 0, repr(error), False
                connection.close()
            with self.lock:
                latest = self.begun_swaps
                version = LETTERS.find(written[:1])
                if status != 200 or not whole:
                    self.faults.append(f"lost: {status} {written!r}")
                elif written != LETTERS[version] * tokens:
                    self.faults.append(f"mixed: {written!r}")
                elif not earliest <= version <= latest:
                    self.faults.append(f"from version {version}, sent when {earliest} served, answered at {latest}")
                else:
                    self.written[version] = self.written.get(version, 0) + 1

    def swap_all(self, model, admin_port):
        longest = 0.0
        for swap in range(1, self.swaps + 1):
            # Spread over the run.
            while self.sent < self.requests * swap / (self.swaps + 1) and not self.faults:
                time.sleep(0.001)
            other = model.with_suffix(".new")
            tiny_model.write(other, LETTERS[swap])
            os.rename(other, model)
            begin = time.monotonic()
            with self.lock:
                self.begun_swaps = swap
            status, body = call(admin_port, "/admin/reload", {}, ADMIN_KEY)
            longest = max(longest, time.monotonic() - begin)
            with self.lock:
                if status != 200:
                    self.faults.append(f"swap {swap} was refused: {body}")
                self.swapped = swap
        return longest


def start(binary, folder, model):
    config = folder / "tare.yaml"
    config.write_text(f"upstreams: {{tiny: {{kind: local, model: {model}, dtype: f32, threads: 1,"
                      f" flags: [--max-num-seqs, '8']}}}}\n"
                      "models: {m: {targets: [{upstream: tiny}]}}\n"
                      "admin: {port: 0, key_env: TARE_HOT_ADMIN}\n"
                      f"quota_store: {folder / 'quotas.db'}\n"
                      f"readiness_store: {folder / 'readiness.json'}\n")
    log = open(folder / "log", "w+")
    process = subprocess.Popen([binary, "serve", "--port", "0", "--packed-cache", "off", "--config", str(config)],
                               stdout=log, stderr=log, env=dict(os.environ, TARE_HOT_ADMIN=ADMIN_KEY))
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        text = (folder / "log").read_text()
        found = re.search(r"listening http://[^:]+:(\d+)", text)
        if found:
            return process, int(found.group(1)), int(re.search(r"admin +http://[^:]+:(\d+)", text).group(1))
        time.sleep(0.01)
    process.kill()
    sys.exit((folder / "log").read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tare")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--swaps", type=int, default=5)
    words = parser.parse_args()
    if not 0 < words.swaps < len(LETTERS):
        parser.error(f"--swaps must be from 1 to {len(LETTERS) - 1}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tare-hot-"))
    model = folder / "model.gguf"
    tiny_model.write(model, LETTERS[0])
    process, port, admin_port = start(words.tare, folder, model)
    run = Run(port, words.requests, words.swaps)
    begin = time.monotonic()
    clients = [threading.Thread(target=run.client, args=(seed,)) for seed in range(CLIENTS)]
    try:
        for client in clients:
            client.start()
        longest = run.swap_all(model, admin_port)
        for client in clients:
            client.join()
        process.terminate()
        code = process.wait(60)
        log = (folder / "log").read_text()
    finally:
        process.kill()
        shutil.rmtree(folder)
    freed = log.count("unloaded")
    if code != 0:
        run.faults.append(f"it ended with {code}")
    print(f"{sum(run.written.values())} of {words.requests} requests whole during {words.swaps} swaps in "
          f"{time.monotonic() - begin:.1f} s; longest swap {longest * 1e3:.0f} ms; {freed} former models freed; "
          f"answers by version: {[run.written.get(v, 0) for v in range(words.swaps + 1)]}")
    if run.faults:
        print(f"{len(run.faults)} faults, first: {run.faults[:5]}\n{log[-2000:]}")
        sys.exit(1)


if __name__ == "__main__":
    main()
