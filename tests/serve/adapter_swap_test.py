#!/usr/bin/env python3
"""Requests for a model and its adapters while one adapter is replaced again and again: none lost, none mixed. Each
version of the adapter makes the model write a letter of its own, so every answer tells which version wrote every
token of it. Needs nothing but Python and a tare binary.

  adapter_swap_test.py TARE [--requests 10000] [--swaps 100]
"""
import argparse
import http.client
import pathlib
import random
import shutil
import sys
import tempfile
import threading
import time

import tiny_model
from hot_swap_test import ADMIN_KEY, CLIENTS, LETTERS, call, read_answer, start

BASE, STEADY, VERSIONS = "z", LETTERS[0], LETTERS[1:tiny_model.HIDDEN]


class Run:
    def __init__(self, port, requests, swaps):
        self.port, self.requests, self.swaps = port, requests, swaps
        self.sent = self.swapped = self.begun_swaps = 0
        self.faults, self.answers = [], {}
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
            model = chance.choice(["m", "m:steady", "swapped", "m:swapped"])
            stream, tokens = chance.random() < 0.25, chance.randint(1, 4)
            body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens,
                    "temperature": 0, "stream": stream}
            try:
                status, text = call(self.port, "/v1/chat/completions", body, connection=connection)
                written, whole = read_answer(text, stream) if status == 200 else (text, False)
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                status, written, whole = 0, repr(error), False
                connection.close()
            with self.lock:
                self.judge(model, status, written, whole, tokens, earliest)

    def judge(self, model, status, written, whole, tokens, earliest):
        """Under the lock."""
        letter = written[:1]
        if status != 200 or not whole:
            self.faults.append(f"lost: {model} {status} {written!r}")
        elif written != letter * tokens:
            self.faults.append(f"mixed: {model} {written!r}")
        elif "swapped" in model:
            # Which version serves repeats; those that may have are few.
            may = {VERSIONS[i % len(VERSIONS)] for i in range(earliest, self.begun_swaps + 1)}
            if letter not in may:
                self.faults.append(f"{model} wrote {letter}, only {sorted(may)} served")
        elif letter != (BASE if model == "m" else STEADY):
            self.faults.append(f"{model} wrote {letter}")
        self.answers[model] = self.answers.get(model, 0) + 1

    def load(self, folder, name, place, replace=False):
        path = folder / f"adapter-{place}"
        begin = time.monotonic()
        status, text = call(self.port, "/v1/load_lora_adapter",
                            {"lora_name": name, "lora_path": str(path), "load_inplace": replace}, ADMIN_KEY)
        if status != 200:
            self.faults.append(f"loading {name} from {path}: {status} {text}")
        return time.monotonic() - begin

    def swap_all(self, folder):
        times = []
        for swap in range(1, self.swaps + 1):
            while self.sent < self.requests * swap / (self.swaps + 1) and not self.faults:
                time.sleep(0.001)  # spread over the run
            with self.lock:
                self.begun_swaps = swap
            times.append(self.load(folder, "swapped", 1 + swap % len(VERSIONS), replace=True))
            with self.lock:
                self.swapped = swap
        return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tare")
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--swaps", type=int, default=100)
    words = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tare-adapters-"))
    model = folder / "model.gguf"
    tiny_model.write(model, BASE, STEADY + VERSIONS)
    for place in range(1 + len(VERSIONS)):
        tiny_model.write_adapter(folder / f"adapter-{place}", place)
    process, port, _ = start(words.tare, folder, model)
    run = Run(port, words.requests, words.swaps)
    try:
        run.load(folder, "steady", 0)
        run.load(folder, "swapped", 1)
        begin = time.monotonic()
        clients = [threading.Thread(target=run.client, args=(seed,)) for seed in range(CLIENTS)]
        for client in clients:
            client.start()
        times = sorted(run.swap_all(folder))
        for client in clients:
            client.join()
        took = time.monotonic() - begin
        process.terminate()
        code = process.wait(60)
        log = (folder / "log").read_text()
    finally:
        process.kill()
        shutil.rmtree(folder)
    if code != 0:
        run.faults.append(f"it ended with {code}")
    print(f"{sum(run.answers.values()) - len(run.faults)} of {words.requests} requests whole during {words.swaps} "
          f"swaps in {took:.1f} s; a swap took {times[len(times) // 2] * 1e3:.1f} ms in the median, "
          f"{times[-1] * 1e3:.1f} ms at most; answers by model: {run.answers}")
    if run.faults:
        print(f"{len(run.faults)} faults, first: {run.faults[:5]}\n{log[-2000:]}")
        sys.exit(1)


if __name__ == "__main__":
    main()
