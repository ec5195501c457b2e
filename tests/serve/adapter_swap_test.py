#!/usr/bin/env python3
"""Requests for a model and its adapters while one adapter is replaced again and again: none lost, none mixed. Each
version of the adapter makes the model write a letter of its own, so every answer tells which version wrote every
token of it. Needs nothing but Python and a tare binary.

  adapter_swap_test.py TARE [--requests 10000] [--swaps 100]
"""
import argparse
import pathlib
import shutil
import sys
import tempfile

import tiny_model
from serving import ADMIN_KEY, LETTERS, Server, SwapRun

BASE, STEADY, VERSIONS = "z", LETTERS[0], LETTERS[1:tiny_model.HIDDEN]


class AdapterRun(SwapRun):
    def __init__(self, server, requests, swaps, folder):
        super().__init__(server, requests, swaps, longest=4, streamed=0.25,
                         models=("m", "m:steady", "swapped", "m:swapped"))
        self.folder = folder

    def served(self, model, letter, earliest):
        if "swapped" in model:
            # Which version serves repeats; those that may have are few.
            may = {VERSIONS[i % len(VERSIONS)] for i in range(earliest, self.begun + 1)}
            if letter not in may:
                raise ValueError(f"{model} wrote {letter}, only {sorted(may)} served")
        elif letter != (BASE if model == "m" else STEADY):
            raise ValueError(f"{model} wrote {letter}")
        return model

    def load(self, name, place, replace=False):
        body = {"lora_name": name, "lora_path": str(self.folder / f"adapter-{place}"), "load_inplace": replace}
        status, text = self.server.call("POST", "/v1/load_lora_adapter", body, ADMIN_KEY)
        return None if status == 200 else f"loading {body}: {status} {text}"

    def swap(self, number):
        return self.load("swapped", 1 + number % len(VERSIONS), replace=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tare")
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--swaps", type=int, default=100)
    words = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tare-adapters-"))
    try:
        model = folder / "model.gguf"
        tiny_model.write(model, BASE, STEADY + VERSIONS)
        for place in range(1 + len(VERSIONS)):
            tiny_model.write_adapter(folder / f"adapter-{place}", place)
        server = Server("--config", str(tiny_model.write_config(folder, model)), binary=words.tare,
                        TARE_TEST_ADMIN=ADMIN_KEY)
        try:
            run = AdapterRun(server, words.requests, words.swaps, folder)
            run.faults += filter(None, (run.load("steady", 0), run.load("swapped", 1)))
            took = run.run()
            log = server.text()
        finally:
            server.close()
    finally:
        shutil.rmtree(folder)
    times = sorted(run.times)
    print(f"{sum(run.answers.values())} of {words.requests} requests whole during {words.swaps} "
          f"swaps in {took:.1f} s; a swap took {times[len(times) // 2] * 1e3:.1f} ms in the median, "
          f"{times[-1] * 1e3:.1f} ms at most; answers by model: {run.answers}")
    if run.faults:
        print(f"{len(run.faults)} faults, first: {run.faults[:5]}\n{log[-2000:]}")
        sys.exit(1)


if __name__ == "__main__":
    main()
