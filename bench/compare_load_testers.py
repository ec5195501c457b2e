#!/usr/bin/env python3
"""How much load `tare load` makes beside other load testers, on the same server, in turns.

Against wrk: plain requests, answers of one token, one client thread each. Against GuideLLM and
vLLM's bench client: streamed answers, tokens received per second. A tester that is not installed is
named and left out. Each pair is run alternately so that what else the machine does falls on both;
the ratio is the median over the rounds.

  bench/compare_load_testers.py --rounds 3 --seconds 5
  bench/compare_load_testers.py --guidellm ~/venv/bin/guidellm --processor ./tokenizer
"""
import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

BODY = {"model": "pacing", "max_tokens": 1,
        "messages": [{"role": "user", "content": "time and again the same words are said here"}]}


def fail(message):
    print(f"compare_load_testers: {message}", file=sys.stderr)
    return 3


class Server:
    """A pacing server of its own process; `url` is its address."""

    def __init__(self, program, first_token_us=0, gap_us=0):
        self.process = subprocess.Popen([program, str(first_token_us), str(gap_us)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            sys.exit(fail(f"{program} did not start"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(30)


def run(command, seconds):
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds * 6 + 120)


def tare(arguments, url, extra):
    command = [arguments.tare, "load", url, "--users", str(arguments.users), "--threads", "1",
               "--duration", f"{arguments.seconds}s", "--warm-up", "500ms", "--json", "--no-save",
               "--input-tokens", "8", "--seed", "7", *extra]
    result = run(command, arguments.seconds)
    if result.returncode not in (0, 1):
        sys.exit(fail(f"tare load failed: {result.stderr.strip().splitlines()[-1:]}"))
    return json.loads(result.stdout)["summary"]["rates"]


def tare_plain(arguments, url):
    return tare(arguments, url, ["--no-stream", "--output-tokens", "1"])["requests_per_s"]


def tare_streamed(arguments, url):
    return tare(arguments, url, ["--output-tokens", str(arguments.output_tokens)])["output_tokens_per_s"]


def wrk(arguments, url):
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write('wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\n'
                     f"wrk.body = {json.dumps(json.dumps(BODY))}\n")
        script.flush()
        result = run([arguments.wrk, "-t1", f"-c{arguments.users}", f"-d{arguments.seconds}s", "-s",
                      script.name, url + "/v1/chat/completions"], arguments.seconds)
    found = re.search(r"Requests/sec:\s*([\d.]+)", result.stdout)
    if found is None:
        sys.exit(fail(f"wrk gave no rate: {result.stdout[-300:]}{result.stderr[-300:]}"))
    return float(found.group(1))


def guidellm(arguments, url):  # its command line from version 0.8 on
    with tempfile.TemporaryDirectory() as out:
        report = os.path.join(out, "report.json")
        result = run([arguments.guidellm, "run", "--backend",
                      f"kind=openai_http,target={url},model=pacing,validate_backend=false",
                      "--profile", f"kind=concurrent,streams={arguments.users}",
                      "--constraint", f"kind=max_duration,seconds={arguments.seconds}",
                      "--tokenizer", f"kind=hf_auto,model={arguments.processor}",
                      "--data", "kind=synthetic_text,prompt_tokens=8,"
                      f"output_tokens={arguments.output_tokens}",
                      "--output", f"kind=json,path={report}", "--disable-console"],
                     arguments.seconds)
        if not os.path.exists(report):
            sys.exit(fail(f"guidellm wrote no report: {result.stderr[-600:]}"))
        with open(report, encoding="utf-8") as file:
            metrics = json.load(file)["benchmarks"][0]["metrics"]
        return metrics["output_tokens_per_second"]["successful"]["mean"]


def vllm(arguments, url):
    with tempfile.TemporaryDirectory() as out:
        result = run([arguments.vllm, "bench", "serve", "--backend", "openai-chat", "--base-url",
                      url, "--endpoint", "/v1/chat/completions", "--model", "pacing", "--tokenizer",
                      arguments.processor, "--dataset-name", "random", "--random-input-len", "8",
                      "--random-output-len", str(arguments.output_tokens), "--num-prompts",
                      str(arguments.users * 10), "--max-concurrency", str(arguments.users),
                      "--save-result", "--result-dir", out, "--result-filename", "r.json"],
                     arguments.seconds)
        report = os.path.join(out, "r.json")
        if not os.path.exists(report):
            sys.exit(fail(f"vllm bench wrote no report: {result.stderr[-600:]}"))
        with open(report, encoding="utf-8") as file:
            return json.load(file)["output_throughput"]


def cpu():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        return f"{names[0]} × {len(names)}" if names else platform.processor()
    except OSError:
        return platform.processor()


def compare(arguments, url, ours, theirs):
    mine, others = [], []
    for _ in range(arguments.rounds):
        mine.append(ours(arguments, url))
        others.append(theirs(arguments, url))
    return {"tare": statistics.median(mine), "other": statistics.median(others),
            "ratio": statistics.median(a / b for a, b in zip(mine, others) if b > 0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tare", default="build/tare")
    parser.add_argument("--server", default="build/bench/pacing_server")
    parser.add_argument("--wrk", default="wrk")
    parser.add_argument("--guidellm", default="guidellm")
    parser.add_argument("--vllm", default="vllm")
    parser.add_argument("--processor", default="", help="folder of a tokenizer, for GuideLLM, vLLM")
    parser.add_argument("--users", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for program in (arguments.tare, arguments.server):
        if shutil.which(program) is None:
            return fail(f"{program} is missing: build the release preset")

    document = {"machine": cpu(), "rounds": arguments.rounds, "results": [], "skipped": []}
    with Server(arguments.server) as server:
        for name, program, ours, theirs, unit, bar in (
                ("wrk", arguments.wrk, tare_plain, wrk, "plain requests/s", 0.6),
                ("guidellm", arguments.guidellm, tare_streamed, guidellm, "streamed tokens/s", 20),
                ("vllm bench", arguments.vllm, tare_streamed, vllm, "streamed tokens/s", 20)):
            if shutil.which(program) is None:
                document["skipped"].append(f"{name}: {program} is not installed")
            elif theirs is not wrk and not arguments.processor:
                document["skipped"].append(f"{name}: give --processor, the folder of a tokenizer")
            else:
                result = compare(arguments, server.url, ours, theirs)
                document["results"].append({"peer": name, "unit": unit, "bar": bar, **result})
    if arguments.json:
        print(json.dumps(document, indent=2))
    else:
        print(f"{document['machine']}, median of {arguments.rounds} rounds of {arguments.seconds} s")
        for r in document["results"]:
            print(f"{r['unit']:<18} tare {r['tare']:>12,.0f}   {r['peer']} {r['other']:>12,.0f}   "
                  f"ratio {r['ratio']:.2f} (bar {r['bar']})")
        for skipped in document["skipped"]:
            print(f"left out  {skipped}")
    missed = [r for r in document["results"] if r["ratio"] < r["bar"]]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
