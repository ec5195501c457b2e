#!/usr/bin/env python3
"""Requests while a local model is replaced again and again: none lost, none mixed. Each version of the model
writes one letter of its own, so every answer tells which version wrote every token of it. Needs nothing but
Python and a tare binary.

  hot_swap_test.py TARE [--requests 1000] [--swaps 5]      the heavy run: --requests 10000 --swaps 20
"""
import argparse
import os
import pathlib
import shutil
import sys
import tempfile

import tiny_model
from serving import ADMIN_KEY, LETTERS, Server, SwapRun


class ModelRun(SwapRun):
    def __init__(self, server, requests, swaps, model):
        super().__init__(server, requests, swaps, longest=24, streamed=0.5)
        self.model = model

    def served(self, model, letter, earliest):
        version = LETTERS.find(letter)
        if not earliest <= version <= self.begun:
            raise ValueError(f"from version {version}, sent when {earliest} served, answered at {self.begun}")
        return version

    def swap(self, number):
        other = self.model.with_suffix(".new")
        tiny_model.write(other, LETTERS[number])
        os.rename(other, self.model)
        status, body = self.server.admin("POST", "/admin/reload", {})
        return None if status == 200 else body


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tare")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--swaps", type=int, default=5)
    words = parser.parse_args()
    if not 0 < words.swaps < len(LETTERS):
        parser.error(f"--swaps must be from 1 to {len(LETTERS) - 1}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tare-hot-"))
    try:
        model = folder / "model.gguf"
        tiny_model.write(model, LETTERS[0])
        server = Server("--config", str(tiny_model.write_config(folder, model)), binary=words.tare,
                        TARE_TEST_ADMIN=ADMIN_KEY)
        try:
            run = ModelRun(server, words.requests, words.swaps, model)
            took = run.run()
            log = server.text()
        finally:
            server.close()
    finally:
        shutil.rmtree(folder)
    print(f"{sum(run.answers.values())} of {words.requests} requests whole during {words.swaps} swaps in {took:.1f} s; "
          f"longest swap {max(run.times) * 1e3:.0f} ms; {log.count('unloaded')} former models freed; "
          f"answers by version: {[run.answers.get(v, 0) for v in range(words.swaps + 1)]}")
    if run.faults:
        print(f"{len(run.faults)} faults, first: {run.faults[:5]}\n{log[-2000:]}")
        sys.exit(1)


if __name__ == "__main__":
    main()
