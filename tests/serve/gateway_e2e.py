#!/usr/bin/env python3
"""tare serve as a gateway, end to end: the real binary before a fake upstream, and (when the model is
at hand) replacing a running model. Needs nothing but Python. TARE_BINARY names the binary."""
import collections
import http.client
import http.server
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import serving
from serving import ADMIN_KEY

KEY = "sk-client"
MODEL = serving.find_model()


class FakeUpstream:
    """Answers every chat with one token, 100 prompt tokens and 50 written ones."""

    def __init__(self):
        served = self.served = collections.Counter()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                served[body["model"]] += 1
                answer = json.dumps({
                    "choices": [{"index": 0, "finish_reason": "stop",
                                 "message": {"role": "assistant", "content": "hi"}}],
                    "usage": {"prompt_tokens": 100, "completion_tokens": 50}}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_):  # clients that were killed are part of the tests
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Gateway(serving.Server):
    def __init__(self, *flags):
        super().__init__(*flags, TARE_E2E_KEY=KEY, TARE_E2E_ADMIN=ADMIN_KEY)

    def call(self, method, path, body=None, key=KEY, port=None, connection=None):
        return super().call(method, path, body, key, port, connection)

    def chat(self, model="m", **more):
        # Estimated at 100 tokens (a third of the messages' 301 bytes), which is what the fake upstream
        # says it read: what is reserved is what is used.
        return self.call("POST", "/v1/chat/completions",
                         {"model": model, "messages": [{"role": "user", "content": "x" * 272}],
                          "max_tokens": 50, **more})


class GatewayTest(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tare-gateway-"))
        self.upstream = FakeUpstream()
        self.config = self.dir / "tare.yaml"
        self.gateway = None

    def tearDown(self):
        if self.gateway is not None:
            self.gateway.stop()
            self.gateway.close()
        self.upstream.close()
        shutil.rmtree(self.dir)

    def write(self, model="m", tenant="{}", target="org/m"):
        self.config.write_text(f"""
upstreams: {{fake: {{url: '{self.upstream.url}'}}}}
models: {{{model}: {{price: {{input: 1, output: 2}}, targets: [{{upstream: fake, model: {target}}}]}}}}
tenants: {{team: {tenant}}}
keys: [{{name: client, tenant: team, key_env: TARE_E2E_KEY}}]
admin: {{port: 0, key_env: TARE_E2E_ADMIN}}
quota_store: {self.dir / 'quotas.db'}
readiness_store: {self.dir / 'readiness.json'}
access_log: {self.dir / 'access.log'}
""")

    def start(self):
        self.gateway = Gateway("--config", str(self.config))
        return self.gateway

    def admin(self, method, path, body=None, key=ADMIN_KEY):
        return self.gateway.admin(method, path, body, key)

    def test_a_configuration_is_checked_without_serving(self):
        self.write(tenant="{usd_per_month: 1}")

        def check():
            result = subprocess.run([os.environ["TARE_BINARY"], "serve", "--config", str(self.config), "--check-config",
                                     "--json"], capture_output=True, text=True,
                                    env=dict(os.environ, TARE_E2E_KEY=KEY, TARE_E2E_ADMIN=ADMIN_KEY))
            return result.returncode, json.loads(result.stdout), result.stderr

        code, found, _ = check()
        self.assertEqual((code, found["valid"], found["keys"], found["tenants"]), (0, True, 1, 1))
        self.assertEqual((found["models"], found["warnings"]), (["model 'm': fake"], []))
        self.config.write_text(self.config.read_text().replace("price: {input: 1, output: 2}, ", ""))
        self.assertIn("'m'", check()[1]["warnings"][0], "a budget does not hold what has no price")
        self.config.write_text(self.config.read_text().replace("TARE_E2E_KEY", "TARE_E2E_NONE"))
        code, found, said = check()
        self.assertEqual((code, found["valid"], len(found["errors"])), (2, False, 1), "one mistake, said once")
        self.assertIn("'TARE_E2E_NONE' is not set", found["errors"][0])
        self.assertIn(found["errors"][0], said)

    def test_reload(self):
        self.write()
        gateway = self.start()
        self.assertEqual(gateway.chat()[0], 200)
        self.assertEqual(self.admin("POST", "/admin/reload", key=KEY)[0], 401)
        self.assertEqual(self.admin("GET", "/admin/startup", key=KEY)[0], 401)
        self.assertEqual(self.admin("GET", "/admin/startup"), (200, '{"models":[]}'))
        self.write(model="n")
        self.assertEqual(self.admin("POST", "/admin/reload"), (200, '{"reloaded":true}'))
        self.assertEqual(gateway.chat("n")[0], 200)
        self.assertEqual(gateway.chat("m")[0], 404)
        # Broken: said, and nothing changes.
        self.write(model="o", tenant="{usd_per_monht: 1}")
        status, body = self.admin("POST", "/admin/reload")
        self.assertEqual(status, 422)
        self.assertIn("usd_per_month", body)
        self.assertEqual(gateway.chat("n")[0], 200)
        # A change of the file is enough; a signal is, too.
        self.write(model="p")
        end = time.monotonic() + 20
        while gateway.chat("p")[0] != 200:
            self.assertLess(time.monotonic(), end, gateway.text())
        self.write(model="q")
        gateway.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 20
        while gateway.chat("q")[0] != 200:
            self.assertLess(time.monotonic(), end, gateway.text())
        status, body = self.admin("GET", "/admin/readiness")
        reload = next(c for c in json.loads(body)["channels"] if c["channel"] == "reload")
        self.assertEqual((status, reload["met"]), (200, reload["events"]))
        self.assertGreaterEqual(reload["events"], 3)
        self.assertEqual(gateway.stop(), 0)
        self.gateway = None
        lines = [json.loads(line) for line in (self.dir / "access.log").read_text().splitlines()]
        chats = [line for line in lines if line["path"] == "/v1/chat/completions"]
        self.assertEqual(chats[0]["tenant"], "team")
        self.assertEqual(chats[0]["key"], "client")
        self.assertNotIn(KEY, (self.dir / "access.log").read_text())

    def test_a_budget_is_exact_and_outlives_kill_9(self):
        # A request costs 100 x 1 + 50 x 2 = 200 micro-USD and reserves as much: room for 1,000.
        self.write(tenant="{usd_per_month: 0.2}")
        gateway = self.start()
        answers = collections.Counter()
        lock = threading.Lock()

        def client(stop_after):
            while True:
                try:
                    status, _ = gateway.chat()
                except (OSError, http.client.HTTPException):
                    status = 0
                with lock:
                    answers[status] += 1
                    if status != 200 or sum(answers.values()) >= stop_after:
                        return

        def clients(count, stop_after):
            threads = [threading.Thread(target=client, args=(stop_after,)) for _ in range(count)]
            for thread in threads:
                thread.start()
            return threads

        running = clients(64, 10 ** 9)
        end = time.monotonic() + 60
        while self.upstream.served["org/m"] < 400 and time.monotonic() < end:
            time.sleep(0.005)
        gateway.stop(signal.SIGKILL)
        for thread in running:
            thread.join()
        self.gateway = None
        reached = self.upstream.served["org/m"]
        self.assertGreaterEqual(reached, 400)

        gateway = self.start()
        for thread in clients(64, 10 ** 9):
            thread.join()
        served = self.upstream.served["org/m"]
        self.assertLessEqual(served, 1000)
        # What was under way at the kill counts as spent (at most one request a client), and the
        # hundredth that the store is ahead.
        self.assertGreaterEqual(served, 1000 - 64 - 10)
        self.assertGreater(answers[429], 0)
        usage = json.loads(self.admin("GET", "/admin/usage")[1])
        team = usage["tenants"][0]
        self.assertLessEqual(team["month_usd"], 0.2 + 1e-9)
        self.assertGreater(team["month_usd"], 0.2 - 2 * 0.0002)
        metrics = gateway.call("GET", "/metrics")[1]
        self.assertRegex(metrics, r'tare_quota_refused_total\{tenant="team",limit="usd_per_month"\} \d')

    def test_a_rollout_outlives_kill_9(self):
        store = self.dir / "rollouts.json"
        self.write()
        config = self.config.read_text().replace("targets: [{upstream: fake, model: org/m}]}", """
  targets: [{upstream: fake, model: org/m}],
  rollout: {target: {upstream: fake, model: org/new}, share: 50%, min_samples: 100000}}""")
        self.config.write_text(config + f"rollout_store: {store}\n")
        gateway = self.start()
        stop = threading.Event()

        def client():
            while not stop.is_set():
                try:
                    gateway.chat()
                except (OSError, http.client.HTTPException):
                    return  # killed

        threads = [threading.Thread(target=client) for _ in range(8)]
        for thread in threads:
            thread.start()
        kept, end = 0, time.monotonic() + 60
        while kept < 100 and time.monotonic() < end:
            time.sleep(0.01)
            if store.exists():
                json.loads(store.read_text())  # never half a file
                saved = json.loads(self.admin("GET", "/admin/rollouts")[1])["rollouts"][0]
                kept = saved["canary_samples"]
        written = store.stat().st_mtime_ns
        while store.stat().st_mtime_ns == written and time.monotonic() < end:
            time.sleep(0.01)  # what was just read is in the file
        gateway.stop(signal.SIGKILL)
        stop.set()
        for thread in threads:
            thread.join()
        self.gateway = None

        self.start()
        state = json.loads(self.admin("GET", "/admin/rollouts")[1])["rollouts"][0]
        self.assertEqual(state["state"], "running")
        self.assertGreaterEqual(state["canary_samples"], 100)
        self.assertGreaterEqual(state["canary_samples"], kept)
        self.assertLessEqual(state["canary_samples"], self.upstream.served["org/new"])
        self.assertLessEqual(state["baseline_samples"], self.upstream.served["org/m"])
        # A decision outlives it as well.
        status, body = self.admin("POST", "/admin/rollouts", {"model": "m", "state": "rolled_back"})
        self.assertEqual(status, 200, body)
        while "rolled_back" not in store.read_text() and time.monotonic() < end:
            time.sleep(0.01)
        self.gateway.stop(signal.SIGKILL)
        tried = self.upstream.served["org/new"]
        gateway = self.start()
        state = json.loads(self.admin("GET", "/admin/rollouts")[1])["rollouts"][0]
        self.assertEqual(state["state"], "rolled_back")
        for _ in range(20):
            self.assertEqual(gateway.chat()[0], 200)
        self.assertEqual(self.upstream.served["org/new"], tried, "nothing goes to a canary that was rolled back")


class Postgres:
    """A server of its own in a temporary folder, on a Unix socket only. None when it is not installed."""

    def __init__(self, bin_dir):
        self.folder = tempfile.mkdtemp(prefix="tare-pg-")
        # The server refuses to run as root.
        self.user = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        if self.user:
            shutil.chown(self.folder, "postgres", "postgres")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": self.folder, **self.user}
        data = f"{self.folder}/data"
        subprocess.run([f"{bin_dir}/initdb", "-D", data, "-A", "trust", "-N", "-U", "postgres"], check=True, **quiet)
        self.process = subprocess.Popen([f"{bin_dir}/postgres", "-D", data, "-k", self.folder, "-c",
                                         "listen_addresses=", "-c", "fsync=off"], **quiet)
        end = time.monotonic() + 60
        while subprocess.run([f"{bin_dir}/pg_isready", "-h", self.folder], **quiet).returncode != 0:
            if time.monotonic() > end:
                raise AssertionError("PostgreSQL did not start")
            time.sleep(0.02)
        self.url = f"postgresql://postgres@/postgres?host={self.folder}"

    @staticmethod
    def binaries():
        found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        return str(found[-1].parent) if found else None

    def freeze(self, frozen):
        pid = self.process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):  # those that serve a connection have groups of their own
            os.kill(each, signal.SIGSTOP if frozen else signal.SIGCONT)

    def close(self):
        self.freeze(False)
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(60)
        shutil.rmtree(self.folder)


@unittest.skipUnless(Postgres.binaries(), "PostgreSQL is not here: apt-get install postgresql")
class SharedBudgetTest(unittest.TestCase):
    def test_two_gateways_with_32_clients_each_serve_a_budget_exactly(self):
        database, upstream = Postgres(Postgres.binaries()), FakeUpstream()
        self.addCleanup(database.close)
        self.addCleanup(upstream.close)
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tare-shared-"))
        self.addCleanup(shutil.rmtree, folder)
        config = folder / "tare.yaml"
        # A request costs 200 micro-USD, as above: room for 1,000.
        config.write_text(f"""
upstreams: {{fake: {{url: '{upstream.url}'}}}}
models: {{m: {{price: {{input: 1, output: 2}}, targets: [{{upstream: fake}}]}}}}
tenants: {{team: {{usd_per_month: 0.2}}}}
keys: [{{name: client, tenant: team, key_env: TARE_E2E_KEY}}]
admin: {{port: 0, key_env: TARE_E2E_ADMIN}}
quota_store: '{database.url}'
readiness_store: {folder / 'readiness.json'}
""")
        gateways = [Gateway("--config", str(config)) for _ in range(2)]
        self.addCleanup(lambda: [gateway.close() for gateway in gateways])
        answers, lock = collections.Counter(), threading.Lock()

        def client(gateway):
            status = 200
            while status == 200:
                status, body = gateway.chat()
                with lock:
                    answers[status if status == 200 else json.loads(body)["error"]["code"]] += 1

        threads = [threading.Thread(target=client, args=(gateways[i % 2],)) for i in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, {200: 1000, "insufficient_quota": 64})
        self.assertEqual(upstream.served["m"], 1000)
        end = time.monotonic() + 20
        while True:  # the other gateway sends its part within a second
            status, body = gateways[0].admin("GET", "/admin/usage")
            used = sum(row["requests"] for row in json.loads(body)["usage"])
            if used == 1000 or time.monotonic() > end:
                break
            time.sleep(0.1)
        self.assertEqual((status, used), (200, 1000))

    def test_a_database_that_hangs_holds_only_the_call_that_asks_it(self):
        database, upstream = Postgres(Postgres.binaries()), FakeUpstream()
        self.addCleanup(database.close)
        self.addCleanup(upstream.close)
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tare-hang-"))
        self.addCleanup(shutil.rmtree, folder)
        config = folder / "tare.yaml"
        config.write_text(f"""
upstreams: {{fake: {{url: '{upstream.url}'}}}}
models: {{m: {{targets: [{{upstream: fake}}]}}}}
tenants: {{limited: {{requests_per_minute: 100}}, free: {{}}}}
keys: [{{name: a, tenant: limited, key_env: TARE_E2E_KEY}}, {{name: b, tenant: free, key_env: TARE_E2E_ADMIN}}]
quota_store: '{database.url}'
readiness_store: {folder / 'readiness.json'}
""")
        gateway = Gateway("--config", str(config))
        self.addCleanup(gateway.close)
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        self.assertEqual(gateway.chat()[0], 200)
        database.freeze(True)
        limited = []
        blocked = []

        def wait():
            begin = time.monotonic()
            limited.append(gateway.chat())
            blocked.append(time.monotonic() - begin)

        waiting = threading.Thread(target=wait)
        waiting.start()
        longest, others = 0, 0
        while waiting.is_alive():
            begin = time.monotonic()
            self.assertEqual(gateway.call("POST", "/v1/chat/completions", body, key=ADMIN_KEY)[0], 200)
            longest = max(longest, time.monotonic() - begin)
            others += 1
        waiting.join()
        self.assertEqual(limited[0][0], 503, limited)
        self.assertGreater(others, 10)
        self.assertLess(longest, blocked[0] / 2, "nobody else waits")
        begin = time.monotonic()
        self.assertEqual(gateway.chat()[0], 503)
        self.assertLess(time.monotonic() - begin, blocked[0] / 2, "refused at once for a while")
        database.freeze(False)
        end = time.monotonic() + 30
        while gateway.chat()[0] != 200:
            self.assertLess(time.monotonic(), end, gateway.text())
            time.sleep(0.05)
        self.assertRegex(gateway.call("GET", "/metrics")[1],
                         r'tare_quota_refused_total\{tenant="limited",limit="store"\} \d')
        self.assertEqual(gateway.text().count("limits hold, but"), 1, "said once")


@unittest.skipUnless(MODEL, "the model is not here: ./run setup fetches it")
class HotReloadTest(unittest.TestCase):
    SWAPS = int(os.environ.get("TARE_SWAPS", "3"))

    def test_no_request_is_lost(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tare-hot-"))
        self.addCleanup(shutil.rmtree, folder)
        model = folder / "model.gguf"
        shutil.copy(MODEL, model)
        gateway = Gateway(str(model), "--dtype", "int4", "--name", "m", "--kv-memory", "64MiB",
                          "--max-model-len", "512")
        self.addCleanup(gateway.close)
        stop = threading.Event()
        answers = collections.Counter()

        def client():
            while not stop.is_set():
                status, body = gateway.chat(max_tokens=4, temperature=0)
                text = json.loads(body)["choices"][0]["message"]["content"] if status == 200 else body
                answers[(status, text)] += 1

        threads = [threading.Thread(target=client) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            gateway.process.send_signal(signal.SIGHUP)
            gateway.wait_for(r"0 of 1 models were loaded anew")
            for swap in range(self.SWAPS):
                # Other bytes, the same weights: what follows a GGUF file's tensors is not read.
                other = folder / "other"
                shutil.copy(MODEL, other)
                with other.open("ab") as out:
                    out.write(b"\0" * (swap + 1))
                os.rename(other, model)
                gateway.process.send_signal(signal.SIGHUP)
                end = time.monotonic() + 120
                while gateway.text().count("1 of 1 models were loaded anew") <= swap:
                    self.assertLess(time.monotonic(), end, gateway.text())
                    time.sleep(0.05)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(len(answers), 1, f"every answer is whole and the same: {answers}")
        self.assertEqual(next(iter(answers))[0], 200)
        gateway.wait_for(r"unloaded +the former")
        print(f"{sum(answers.values())} requests during {self.SWAPS} swaps, none lost")


class CutUpstream:
    """Streams three pieces of an answer, then dies."""

    PIECES = ["Paris", " is", " the"]

    def __init__(self):
        pieces = self.PIECES

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                for piece in pieces:
                    chat = {"delta": {"content": piece}} if "chat" in self.path else {"text": piece}
                    event = json.dumps({"choices": [{"index": 0, **chat, "finish_reason": None}]})
                    self.wfile.write(f"data: {event}\n\n".encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@unittest.skipUnless(MODEL, "the model is not here: ./run setup fetches it")
class CutStreamTest(unittest.TestCase):
    def test_a_local_model_goes_on_with_anothers_answer(self):
        upstream = CutUpstream()
        self.addCleanup(upstream.close)
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tare-cut-"))
        self.addCleanup(shutil.rmtree, folder)
        config = folder / "tare.yaml"
        config.write_text(f"""
upstreams: {{frail: {{url: '{upstream.url}'}}}}
models:
  m: {{continue_cut_streams: true, targets: [{{upstream: frail}}, {{upstream: local}}]}}
  small: {{targets: [{{upstream: local}}]}}
quota_store: {folder / 'quotas.db'}
readiness_store: {folder / 'readiness.json'}
""")
        gateway = Gateway(MODEL, "--config", str(config), "--dtype", "int4", "--kv-memory", "64MiB",
                          "--max-model-len", "512")
        self.addCleanup(gateway.close)
        question = [{"role": "user", "content": "What is the capital of France?"}]
        more = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 12,
                "temperature": 0, "ignore_eos": True}
        for path, asked in (("/v1/chat/completions", {"messages": question}),
                            ("/v1/completions", {"prompt": "The capital of France?"})):
            status, body = gateway.call("POST", path, {"model": "m", **asked, **more})
            self.assertEqual(status, 200, body)
            events = body.strip().split("\n\n")
            self.assertEqual(events[-1], "data: [DONE]", body)
            events = [json.loads(event[len("data: "):]) for event in events[:-1]]
            self.assertEqual({event["model"] for event in events}, {"m"})
            self.assertEqual(len({event["id"] for event in events}), 1)
            choices = [choice for event in events for choice in event["choices"]]
            roles = [choice for choice in choices if "role" in choice.get("delta", {})]
            self.assertEqual(len(roles), 1 if "chat" in path else 0)
            text = "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices)
            self.assertTrue(text.startswith("Paris is the"), text)
            self.assertEqual(choices[-1]["finish_reason"], "length")
            self.assertEqual(events[-1]["usage"]["completion_tokens"], 12, "three and nine more")
            if "chat" in path:
                # The same as when the client itself asks for it.
                begun = question + [{"role": "assistant", "content": "Paris is the"}]
                status, body = gateway.call("POST", path, {
                    "model": "small", "messages": begun, "continue_final_message": True, "max_tokens": 9,
                    "temperature": 0, "ignore_eos": True})
                self.assertEqual(status, 200, body)
                rest = json.loads(body)["choices"][0]["message"]["content"]
                self.assertEqual(text, "Paris is the" + rest)
        metrics = gateway.call("GET", "/metrics")[1]
        self.assertRegex(metrics, r'tare_upstream_continued_total\{upstream="local"\} 2')


if __name__ == "__main__":
    unittest.main(verbosity=2)
