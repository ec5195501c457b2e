#!/usr/bin/env python3
"""Compares `tare bench` with llama.cpp's llama-bench and llama-batched-bench on the same files.

usage: bench/compare_llama.py [options] MODEL.gguf...

The two programs take turns, so that whatever else the machine does disturbs both; of --rounds the
best figure of each counts. Rows: prefill of 512 and 2,048 tokens, decoding from an (almost) empty
context and at depth 2,048, and decoding 2, 4, 8 and 16, 32 sequences at once (128 tokens in, 64
out; groups few and batch). A row prints tokens per second of both, their ratio, and the share each reaches of the limit that binds
(reading the weights once a step, or multiplying), as `tare bench` measures it in the same run;
llama.cpp's share is taken for the same work in the same types.

llama-bench and llama-batched-bench are found on the PATH or in --llama-dir. Exit code 0 when all
rows were measured, 1 when one reached less than --want asks for, 3 when a program is missing or
fails.

Mixtures of experts, with the models of bench/random_model.py and what they are meant to reach:

  bench/compare_llama.py --groups single,few --want pp512=8,batch2=2,batch4=2,batch8=2 moe-q8.gguf
  bench/compare_llama.py --groups single,few --want pp512=6,batch2=2,batch4=2,batch8=2,decode@2048=3 mla-q8.gguf
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time

ROWS = ("pp512", "pp2048", "decode", "decode@2048", "batch2", "batch4", "batch8", "batch16", "batch32")
BATCHES = {"few": [2, 4, 8], "batch": [16, 32]}


def fail(message):
    print(f"compare_llama: {message}", file=sys.stderr)
    sys.exit(3)


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        tail = (done.stderr or done.stdout).strip().splitlines()[-3:]
        fail(f"{' '.join(command)}: exit code {done.returncode}\n" + "\n".join(tail))
    return done.stdout


def find(name, folder):
    path = os.path.join(folder, name) if folder else shutil.which(name)
    if not path or not os.access(path, os.X_OK):
        fail(f"{name} is not {'in ' + folder if folder else 'on the PATH'}; give --llama-dir")
    return path


class Tare:
    def __init__(self, args):
        self.args = args
        self.shares = {}

    def bench(self, model, prompts, generate, batches):
        args = self.args
        out = run([args.tare, "bench", model, "--json", "--repeat", "1", "--threads", str(args.threads),
                   "--pp", ",".join(map(str, prompts)), "--tg", str(generate),
                   "--batch", ",".join(map(str, batches))])
        return json.loads(out)["results"]

    def measure(self, model, group):
        generate = self.args.generate
        rates = {}

        def keep(row, result):
            rates[row] = result["tokens_per_s"]
            self.shares[model, row] = result["limit_share"] / result["tokens_per_s"]

        if group == "single":
            for r in self.bench(model, [16, 512, 2048], generate, [1]):
                if r["phase"] == "prefill" and r["prompt_tokens"] > 16:
                    keep(f"pp{r['prompt_tokens']}", r)
                elif r["phase"] == "decode" and r["prompt_tokens"] != 512:
                    keep("decode" if r["prompt_tokens"] == 16 else "decode@2048", r)
        else:
            for r in self.bench(model, [128], 64, BATCHES[group]):
                if r["phase"] == "decode":
                    keep(f"batch{r['batch']}", r)
        return rates


class Llama:
    def __init__(self, args):
        self.args = args
        self.bench_path = find("llama-bench", args.llama_dir)
        self.batched_path = find("llama-batched-bench", args.llama_dir)

    def bench(self, model, *options):
        return json.loads(run([self.bench_path, "-m", model, "-t", str(self.args.threads), "-r", "1",
                               "-o", "json", *options]))

    def measure(self, model, group):
        generate = str(self.args.generate)
        rates = {}
        if group == "single":
            for r in self.bench(model, "-p", "512,2048", "-n", generate):
                rates[f"pp{r['n_prompt']}" if r["n_prompt"] else "decode"] = r["avg_ts"]
            for r in self.bench(model, "-p", "0", "-n", generate, "-d", "2048"):
                rates["decode@2048"] = r["avg_ts"]
        else:
            out = run([self.batched_path, "-m", model, "-t", str(self.args.threads), "-c", "8192", "-b", "2048",
                       "-ub", "512", "-npp", "128", "-ntg", "64", "-npl",
                       ",".join(map(str, BATCHES[group])), "--output-format", "jsonl"])
            for line in out.splitlines():
                if line.startswith("{"):
                    r = json.loads(line)
                    rates[f"batch{r['pl']}"] = r["speed_tg"]
        return rates


def wanted(text):
    ratios = {}
    for part in filter(None, text.split(",")):
        row, _, ratio = part.partition("=")
        if row not in ROWS:
            raise argparse.ArgumentTypeError(f"'{row}' is no row; rows are {', '.join(ROWS)}")
        try:
            ratios[row] = float(ratio)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{part}' is not ROW=RATIO, as in pp512=8") from None
    return ratios


def groups(text):
    names = text.split(",")
    for name in names:
        if name != "single" and name not in BATCHES:
            raise argparse.ArgumentTypeError(f"'{name}' is no group; groups are single, {', '.join(BATCHES)}")
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--tare", default="build/tare")
    parser.add_argument("--llama-dir", help="folder of llama-bench and llama-batched-bench")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=2, help="turns of each program; the best counts (default 2)")
    parser.add_argument("--generate", type=int, default=32, help="tokens decoded in the single-sequence rows")
    parser.add_argument("--groups", type=groups, default="single,batch",
                        help="of single, few and batch (default single,batch)")
    parser.add_argument("--want", type=wanted, default={}, metavar="ROW=RATIO,...",
                        help="ratios to llama.cpp that rows must reach")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args()
    programs = {"tare": Tare(args), "llama": Llama(args)}
    rows = []
    begin = time.monotonic()
    for model in args.models:
        best = {}
        for group in args.groups:
            for turn in range(args.rounds):
                order = ["tare", "llama"] if turn % 2 == 0 else ["llama", "tare"]
                for name in order:
                    for row, rate in programs[name].measure(model, group).items():
                        best[name, row] = max(rate, best.get((name, row), 0.0))
        if not args.json:
            print(f"{os.path.basename(model)}, {args.threads} threads, best of {args.rounds}")
            print(f"  {'':12} {'tare':>9} {'llama.cpp':>9} {'ratio':>6} {'of limit':>9} {'':>9}")
        for row in ROWS:
            if ("tare", row) not in best or ("llama", row) not in best:
                continue
            ours, theirs = best["tare", row], best["llama", row]
            unit = programs["tare"].shares[model, row]
            rows.append({"model": os.path.basename(model), "row": row, "tare_tokens_per_s": ours,
                         "llama_tokens_per_s": theirs, "ratio": ours / theirs,
                         "tare_limit_share": ours * unit, "llama_limit_share": theirs * unit,
                         "wanted_ratio": args.want.get(row)})
            if not args.json:
                print(f"  {row:12} {ours:9.1f} {theirs:9.1f} {ours / theirs:6.2f} {ours * unit:8.0%} {theirs * unit:8.0%}"
                      + (f"  wanted {args.want[row]:g}" if row in args.want else ""), flush=True)
    if args.json:
        print(json.dumps({"threads": args.threads, "rounds": args.rounds, "rows": rows}, indent=2))
    else:
        print(f"{time.monotonic() - begin:.0f} s")
    short = [row for row in rows if row["wanted_ratio"] and row["ratio"] < row["wanted_ratio"]]
    if short:
        print("compare_llama: below what is wanted: " +
              ", ".join(f"{row['row']} of {row['model']}" for row in short), file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
