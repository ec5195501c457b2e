#!/usr/bin/env python3
"""Serves one GGUF file with tare and with llama.cpp's llama-server and loads both the same way.

    bench/compare_llama_server.py --model model.gguf [--users 1,8,16] [--duration 30] [--threads 2]

Both servers get the same file, threads, number of slots and requests for completions (closed loop,
prompts of 128 tokens that share nothing, answers of 64, greedy), one after the other at each number
of users. Prints output tokens per second and time to first token of each, and the ratios.
llama-server is looked for on the PATH; nothing of llama.cpp is part of this project.
Exit code: 0 measured, 2 wrong usage, 3 a server is missing or failed.
"""
import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

START_SECONDS = 300


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def stop(process):
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def start(command, ready_url):
    """The server process once `ready_url` answers 200; exits when it ends before."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(fail(f"{command[0]} ended with code {process.returncode} while starting"))
        try:
            with urllib.request.urlopen(ready_url, timeout=2):
                return process
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    stop(process)
    sys.exit(fail(f"{command[0]} was not ready after {START_SECONDS} s"))


def fail(message):
    print(f"compare_llama_server: {message}", file=sys.stderr)
    return 3


def measure(arguments, url, users):
    # At least two answers of every user fall into the window, or the run says it is invalid.
    command = [arguments.tare, "load", url, "--users", str(users),
               "--duration", f"{arguments.duration}s", "--warm-up", "2s", "--drain", "300s",
               "--input-tokens", str(arguments.input_tokens),
               "--output-tokens", str(arguments.output_tokens), "--seed", str(41 + users),
               "--api", "completions", "--json", "--no-save"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode not in (0, 1):
        sys.exit(fail(f"tare load failed: {result.stderr.strip().splitlines()[-1:]}"))
    return json.loads(result.stdout)


def figures(record):
    ttft = record["summary"]["latency_s"]["ttft"]["sent"]
    if not ttft["n"]:
        sys.exit(fail("no answer fell into the window: give a longer --duration"))
    return {
        "tokens_per_s": record["summary"]["rates"]["output_tokens_per_s"],
        # tare load gives no percentile from too few answers; a slow server may have only a mean.
        "ttft_s": ttft["p50"] if ttft["p50"] is not None else ttft["mean"],
        "ttft_is": "P50" if ttft["p50"] is not None else "mean",
        "verdict": record["validity"]["verdict"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a GGUF file both can read")
    parser.add_argument("--tare", default="build/tare")
    parser.add_argument("--llama-server", default="llama-server")
    parser.add_argument("--users", default="1,8,16")
    parser.add_argument("--duration", type=int, default=30, help="seconds of each measurement")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--input-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--dtype", default="auto", help="for tare; auto keeps what the file holds")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if shutil.which(arguments.llama_server) is None:
        return fail("llama-server is not on the PATH; build llama.cpp, or give --llama-server")
    if shutil.which(arguments.tare) is None:
        return fail(f"{arguments.tare} is missing: ./run build")

    users = [int(part) for part in arguments.users.split(",")]
    slots = max(users)
    # llama-server divides its context among the slots.
    length = 2 * (arguments.input_tokens + arguments.output_tokens) + 128
    rows = []
    for count in users:
        row = {"users": count}
        for name in ("llama-server", "tare"):
            port = free_port()
            url = f"http://127.0.0.1:{port}"
            threads = str(arguments.threads)
            if name == "tare":
                command = [arguments.tare, "serve", arguments.model, "--port", str(port),
                           "--threads", threads, "--max-num-seqs", str(slots),
                           "--max-model-len", str(length), "--dtype", arguments.dtype]
            else:
                command = [arguments.llama_server, "-m", arguments.model, "--port", str(port),
                           "-t", threads, "-np", str(slots), "-c", str(length * slots)]
            server = start(command, url + ("/ready" if name == "tare" else "/health"))
            try:
                row[name] = figures(measure(arguments, url, count))
            finally:
                stop(server)
        row["tokens_ratio"] = row["tare"]["tokens_per_s"] / row["llama-server"]["tokens_per_s"]
        row["ttft_ratio"] = row["tare"]["ttft_s"] / row["llama-server"]["ttft_s"]
        rows.append(row)
        if not arguments.json:
            if len(rows) == 1:
                print(f"{'users':>5} {'llama tok/s':>12} {'tare tok/s':>11} {'ratio':>6}"
                      f" {'llama TTFT':>15} {'tare TTFT':>15} {'ratio':>6}")
            ttft = [f"{row[name]['ttft_s']:8.3f} s {row[name]['ttft_is']:4}"
                    for name in ("llama-server", "tare")]
            invalid = [f"  {name}: {row[name]['verdict']}" for name in ("llama-server", "tare")
                       if row[name]["verdict"] != "valid"]
            print(f"{count:5d} {row['llama-server']['tokens_per_s']:12.1f}"
                  f" {row['tare']['tokens_per_s']:11.1f} {row['tokens_ratio']:6.2f}"
                  f" {ttft[0]:>15} {ttft[1]:>15} {row['ttft_ratio']:6.3f}" + "".join(invalid),
                  flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
