#!/usr/bin/env python3
"""instructions.py TARE...: user instructions a request through the gateway, counted by valgrind.

Times on a shared machine move by half; this count moves by about one in a hundred, so that it shows what a
change saves. A fake upstream here answers one token; the gateway has a key, quotas kept in a file, metrics and
an access log. The count is the slope between two numbers of requests, so start-up does not matter; the kernel's
work is not in it. Valgrind has no AVX-512: libraries take their AVX2 paths."""
import http.client
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

KEY = "sk-bench"
FEW, MANY = 50, 450
EVENTS = b"".join(b"data: " + event + b"\n\n" for event in (
    b'{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
    b'"delta":{"content":" token"},"finish_reason":null}]}',
    b'{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
    b'"delta":{},"finish_reason":"stop"}]}',
    b'{"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":4,"total_tokens":24}}',
    b"[DONE]"))


class Upstream(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                         + b"%x\r\n" % len(EVENTS) + EVENTS + b"\r\n0\r\n\r\n")

    def log_message(self, *_):
        pass


def instructions(binary, upstream, requests):
    """Of one run of the gateway, from start to end."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        log = folder / "log"
        (folder / "tare.yaml").write_text(f"""
upstreams: {{fake: {{url: '{upstream}'}}}}
models: {{m: {{price: {{input: 0.15, output: 0.6}}, targets: [{{upstream: fake}}]}}}}
tenants: {{t: {{requests_per_minute: 100000000, usd_per_month: 1000000}}}}
keys: [{{name: bench, tenant: t, key_env: TARE_BENCH_KEY}}]
access_log: {folder}/access.log
quota_store: {folder}/quotas.db
readiness_store: {folder}/readiness.json
""")
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/profile", binary, "serve",
                   "--config", str(folder / "tare.yaml"), "--port", "0"]
        with log.open("w") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, env=dict(os.environ, TARE_BENCH_KEY=KEY))
        try:
            end = time.monotonic() + 120
            while not (found := re.search(r"listening http://[^:]+:(\d+)", log.read_text())):
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(log.read_text())
                time.sleep(0.05)
            body = json.dumps({"model": "m", "stream": False, "max_tokens": 16, "messages": [
                {"role": "user", "content": "The quick brown fox jumps over the lazy dog. " * 5}]})
            head = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
                    f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n")
            with socket.create_connection(("127.0.0.1", int(found[1]))) as client:
                # In one piece, so that the gateway reads it in one.
                for _ in range(requests):
                    client.sendall((head + body).encode())
                    answer = http.client.HTTPResponse(client)
                    answer.begin()
                    text = answer.read()
                    if answer.status != 200:
                        raise SystemExit(text.decode())
            process.send_signal(signal.SIGTERM)
            process.wait(120)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        return int(re.search(r"Collected : (\d+)", log.read_text())[1])


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    upstream = f"http://127.0.0.1:{server.server_port}"
    for binary in sys.argv[1:]:
        count = instructions(binary, upstream, MANY) - instructions(binary, upstream, FEW)
        print(f"{binary}  {count / (MANY - FEW):,.0f} instructions a request")


if __name__ == "__main__":
    main()
