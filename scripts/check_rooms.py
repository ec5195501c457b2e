#!/usr/bin/env python3
"""Holds the structure rules: includes point only to the same or a lower room, files stay small.

Rooms may include exactly the rooms listed for them (docs/ARCHITECTURE.md has the same picture).
Exits 1 and names every offending line.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINE_LIMIT = 800

# room -> rooms it may include besides itself
MAY_INCLUDE = {
    "base": [],
    "kernels": ["base"],
    "net": ["base"],
    "store": ["base"],
    "econ": ["base"],
    "model": ["kernels", "base"],
    "api": ["base"],
    "engine": ["model", "kernels", "base"],
    "sim": ["engine", "kernels", "load", "econ", "store", "base"],
    "gateway": ["engine", "api", "net", "store", "model", "kernels", "base"],
    "load": ["api", "net", "store", "model", "base"],
    "advise": ["load", "econ", "sim", "store", "net", "api", "base"],
}
for capability in ("trust", "retrieve", "observe", "learn", "eval", "documents"):
    MAY_INCLUDE[capability] = [r for r in MAY_INCLUDE if r not in ("advise",)]

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def main() -> int:
    problems = []
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in (".h", ".cc"):
            continue
        relative = path.relative_to(ROOT)
        room = relative.parts[1]
        if room not in MAY_INCLUDE:
            problems.append(f"{relative}: room '{room}' is not known to {pathlib.Path(__file__).name}")
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        if len(lines) > LINE_LIMIT:
            problems.append(f"{relative}: {len(lines)} lines, the limit is {LINE_LIMIT}")
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = match.group(1).split("/")[0]
            if target == "apps" or (target in MAY_INCLUDE and target != room
                                    and target not in MAY_INCLUDE[room]):
                problems.append(f"{relative}:{number}: {room} may not include {match.group(1)}")
    for problem in problems:
        print(problem)
    if not problems:
        print("rooms: includes point downward, no file over the limit")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
