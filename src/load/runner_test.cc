#include "load/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <future>
#include <optional>
#include <thread>

#include "base/files.h"
#include "base/text.h"
#include "load/pacing_server.h"
#include "net/raw_server.h"

namespace tare::load {
namespace {

using net::RawConnection;
using net::RawServer;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

LoadOptions Options(const std::string& url, int users, std::uint64_t requests) {
  LoadOptions options;
  options.url = url;
  options.arrival.users = users;
  options.requests = requests;
  options.workload.input_tokens = 40;
  options.workload.output_tokens = 8;
  options.workload.seed = 3;
  return options;
}

const store::ValidityCheck* Check(const store::RunRecord& record, const std::string& name) {
  for (const store::ValidityCheck& check : record.checks) {
    if (check.name == name) return &check;
  }
  return nullptr;
}

std::string Failures(const store::RunRecord& record) {
  std::string text;
  for (const store::ValidityCheck& check : record.checks) {
    if (!check.ok) text += check.name + ": " + check.detail + "\n";
  }
  return text;
}

TEST(RunLoad, MeasuresWhatAServerOfKnownTimesDid) {
  PacingOptions pacing;
  pacing.first_token = milliseconds(20);
  pacing.gap = milliseconds(3);
  const auto server = PacingServer::Start(pacing).value();
  LoadOptions options = Options(server->url(), 4, 40);
  options.name = "known";
  options.levels.ttft = 30.0;
  const auto record = RunLoad(options, nullptr);
  ASSERT_TRUE(record.has_value()) << record.error().message;
  const store::RunSummary& s = record->summary;
  EXPECT_EQ(s.total, 40u);
  EXPECT_EQ(s.ok, 40u) << Failures(*record);
  EXPECT_EQ(s.output_tokens, 40u * 8);
  EXPECT_EQ(s.input_tokens, 40u * 40) << "the calibration makes prompts of the exact length";
  // The server cannot be early, and the client may add little: a loaded machine, much.
  EXPECT_GE(s.ttft.sent.min, 0.0199);
  EXPECT_LT(s.ttft.sent.p50, 5);
  EXPECT_GE(s.e2e.sent.min, 0.0199 + 7 * 0.003);
  EXPECT_GE(s.tpot.sent.max, 0.003);
  EXPECT_EQ(s.itl.sent.n, 40u * 7);
  EXPECT_GE(s.itl.sent.max, 0.003);
  EXPECT_GE(s.ttft.intended.p50, s.ttft.sent.p50);
  EXPECT_TRUE(std::isnan(s.ttft.sent.p99)) << "40 samples carry no P99";
  EXPECT_EQ(record->target["model"], "pacing");
  EXPECT_EQ(record->workload["seed"], 3);
  EXPECT_GT(s.peak_rss_bytes, 0u) << "the server is this very process";
  EXPECT_NEAR(s.goodput_per_s, s.requests_per_s, 1e-9);
  EXPECT_EQ(record->series["requests"]["ok"].size(), 40u);
}

TEST(RunLoad, WhatEndsByItsCountIsMeasuredOverTheTimeItTook) {
  const auto server = PacingServer::Start({}).value();
  for (const auto kind : {ArrivalSpec::Kind::kClosed, ArrivalSpec::Kind::kConstant}) {
    LoadOptions options = Options(server->url(), 2, 20);
    options.arrival.kind = kind;
    options.arrival.rate = 200;
    options.duration = std::chrono::hours(1);
    options.warm_up = Nanos(0);
    const store::RunSummary s = RunLoad(options, nullptr).value().summary;
    EXPECT_EQ(s.ok, 20u);
    EXPECT_LT(s.duration_s, 600);
    EXPECT_NEAR(s.requests_per_s * s.duration_s, 20, 1e-6);
  }
}

TEST(RunLoad, TokensPerChunkAreKept) {
  PacingOptions pacing;
  pacing.tokens_per_chunk = 4;
  const auto server = PacingServer::Start(pacing).value();
  const auto record = RunLoad(Options(server->url(), 2, 12), nullptr).value();
  EXPECT_EQ(record.summary.output_tokens, 12u * 8);
  EXPECT_EQ(record.summary.itl.sent.n, 12u) << "two chunks of four tokens: one gap";
}

TEST(RunLoad, OpenLoopCountsFromTheIntendedTime) {
  const auto server = PacingServer::Start({}).value();
  LoadOptions options = Options(server->url(), 1, 60);
  options.arrival.kind = ArrivalSpec::Kind::kPoisson;
  options.arrival.rate = 400;
  const auto record = RunLoad(options, nullptr).value();
  EXPECT_EQ(record.summary.total, 60u);
  EXPECT_EQ(record.summary.ok, 60u) << Failures(record);
  EXPECT_GE(record.summary.e2e.intended.mean, record.summary.e2e.sent.mean);
  ASSERT_NE(Check(record, "achieved_rate"), nullptr);
  EXPECT_TRUE(Check(record, "achieved_rate")->ok);
}

TEST(RunLoad, DurationWithWarmUpAndDrain) {
  PacingOptions pacing;
  pacing.gap = milliseconds(1);
  const auto server = PacingServer::Start(pacing).value();
  LoadOptions options = Options(server->url(), 3, 0);
  options.duration = milliseconds(400);
  options.warm_up = milliseconds(100);
  const auto record = RunLoad(options, nullptr).value();
  EXPECT_GT(record.summary.ok, 0u);
  EXPECT_EQ(record.summary.failed, 0u) << Failures(record);
  EXPECT_DOUBLE_EQ(record.summary.duration_s, 0.4);
  EXPECT_GT(record.series["requests"]["ok"].size(), record.summary.total)
      << "requests of the warm-up are kept but not counted";
}

TEST(RunLoad, WholeAnswersHaveNoFirstToken) {
  const auto server = PacingServer::Start({}).value();
  LoadOptions options = Options(server->url(), 2, 20);
  options.stream = false;
  const auto record = RunLoad(options, nullptr).value();
  EXPECT_EQ(record.summary.ok, 20u);
  EXPECT_EQ(record.summary.ttft.sent.n, 0u);
  EXPECT_EQ(record.summary.e2e.sent.n, 20u);
  EXPECT_EQ(record.summary.output_tokens, 20u * 8);
}

TEST(RunLoad, WritesCsv) {
  const auto server = PacingServer::Start({}).value();
  LoadOptions options = Options(server->url(), 2, 10);
  options.out_dir = ::testing::TempDir() + "tare-csv-" + std::to_string(::getpid());
  ASSERT_TRUE(RunLoad(options, nullptr).has_value());
  const std::string requests = ReadFile(options.out_dir / "requests.csv").value();
  const std::string per_second = ReadFile(options.out_dir / "seconds.csv").value();
  std::filesystem::remove_all(options.out_dir);
  const auto lines = Split(Trim(requests), '\n');
  ASSERT_EQ(lines.size(), 11u);
  for (const auto line : lines) {
    EXPECT_EQ(Split(line, ',').size(), Split(lines[0], ',').size()) << line;
  }
  EXPECT_THAT(per_second, HasSubstr("second,in_window,"));
}

TEST(RunLoad, SaysWhatIsWrongBeforeARun) {
  LoadOptions options = Options("ftp://x", 1, 1);
  EXPECT_EQ(RunLoad(options, nullptr).error().kind, ErrorKind::kInvalidArgument);
  options = Options("http://127.0.0.1:1", 1, 0);
  EXPECT_THAT(RunLoad(options, nullptr).error().message, HasSubstr("--duration"));
  options = Options("http://127.0.0.1:1", 0, 5);
  EXPECT_THAT(RunLoad(options, nullptr).error().message, HasSubstr("--users"));
  {
    std::optional<RawServer> gone(std::in_place, [](RawConnection&, int) {});
    options = Options(gone->Url(), 1, 5);
  }
  EXPECT_THAT(RunLoad(options, nullptr).error().message, HasSubstr("refused"));
  RawServer html([](RawConnection& c, int) {
    while (!c.ReadRequest().empty()) c.Write(net::PlainResponse("<html>"));
  });
  options = Options(html.Url(), 1, 5);
  options.model = "m";
  EXPECT_THAT(RunLoad(options, nullptr).error().message, HasSubstr("OpenAI-compatible"));
}

// ----- servers that fail. Each answers the probes well (they are not streamed), then misbehaves.

std::string ProbeAnswer() {
  return net::PlainResponse(R"({"choices":[{"message":{"content":"x"},"finish_reason":"length"}],)"
                            R"("usage":{"prompt_tokens":20,"completion_tokens":1}})");
}

constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

std::string StreamPiece(std::string_view payload) {
  return fmt::format("{:x}\r\n{}\r\n", payload.size(), payload);
}

constexpr std::string_view kToken = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n";

// Answers probes itself and hands streamed requests to `misbehave`; false from it ends the
// connection.
class FaultyServer {
 public:
  explicit FaultyServer(std::function<bool(RawConnection&)> misbehave)
      : server_([f = std::move(misbehave)](RawConnection& c, int) {
          while (true) {
            const std::string request = c.ReadRequest();
            if (request.empty()) return;
            if (request.find("\"stream\":true") == std::string::npos) {
              if (!c.Write(ProbeAnswer())) return;
            } else if (!f(c)) {
              return;
            }
          }
        }) {}
  RawServer& raw() { return server_; }

  // Runs 6 requests by 2 users against it; returns the errors by kind.
  std::map<std::string, std::uint64_t> Errors(Nanos timeout = seconds(60)) {
    LoadOptions options = Options(server_.Url(), 2, 6);
    options.model = "m";
    options.request_timeout = timeout;
    const auto record = RunLoad(options, nullptr);
    EXPECT_TRUE(record.has_value()) << record.error().message;
    if (!record) return {};
    EXPECT_EQ(record->summary.total, 6u);
    EXPECT_FALSE(record->valid);
    return record->summary.errors_by_kind;
  }

 private:
  RawServer server_;
};

using Kinds = std::map<std::string, std::uint64_t>;

TEST(RunLoadFaults, ServerErrorsAreCountedByStatus) {
  FaultyServer server([](RawConnection& c) {
    return c.Write("HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nfull");
  });
  EXPECT_EQ(server.Errors(), (Kinds{{"http_503", 6}}));
}

TEST(RunLoadFaults, ACutStreamIsAFailure) {
  FaultyServer cut([](RawConnection& c) {
    c.Write(std::string(kStreamHead) + StreamPiece(kToken));
    return false;
  });
  EXPECT_EQ(cut.Errors(), (Kinds{{"closed_early", 6}}));
  FaultyServer unfinished([](RawConnection& c) {
    return c.Write(std::string(kStreamHead) + StreamPiece(kToken) + "0\r\n\r\n");
  });
  EXPECT_EQ(unfinished.Errors(), (Kinds{{"stream_cut", 6}}));
  FaultyServer empty([](RawConnection& c) {
    return c.Write(std::string(kStreamHead) + StreamPiece("data: [DONE]\n\n") + "0\r\n\r\n");
  });
  EXPECT_EQ(empty.Errors(), (Kinds{{"no_tokens", 6}}));
}

TEST(RunLoadFaults, InvalidEventsAndErrorsInTheStream) {
  FaultyServer bad([](RawConnection& c) {
    c.Write(std::string(kStreamHead) + StreamPiece("data: {not json\n\n"));
    c.WaitForClose();
    return false;
  });
  EXPECT_EQ(bad.Errors(), (Kinds{{"bad_event", 6}}));
  FaultyServer error([](RawConnection& c) {
    c.Write(std::string(kStreamHead) + StreamPiece("data: {\"error\":{\"message\":\"oom\"}}\n\n"));
    c.WaitForClose();
    return false;
  });
  EXPECT_EQ(error.Errors(), (Kinds{{"error_event", 6}}));
}

TEST(RunLoadFaults, SlowAndHalfOpenServersEndOnTime) {
  FaultyServer silent([](RawConnection& c) {
    c.WaitForClose();
    return false;
  });
  EXPECT_EQ(silent.Errors(milliseconds(300)), (Kinds{{"total_timeout", 6}}));
  FaultyServer loris([](RawConnection& c) {
    c.Write(kStreamHead);
    // One byte of a keep-alive comment after another, as fast as they go: no token ever comes.
    while (c.Write(StreamPiece(":\n"))) {
    }
    return false;
  });
  EXPECT_EQ(loris.Errors(milliseconds(300)), (Kinds{{"total_timeout", 6}}));
}

TEST(RunLoadFaults, HugeChunksAreRefused) {
  FaultyServer huge([](RawConnection& c) {
    c.Write(kStreamHead);
    const std::string piece = StreamPiece("data: " + std::string(1 << 20, 'x'));
    while (c.Write(piece)) {
    }
    return false;
  });
  LoadOptions options = Options(huge.raw().Url(), 1, 2);
  options.model = "m";
  const auto record = RunLoad(options, nullptr).value();
  EXPECT_EQ(record.summary.errors_by_kind, (Kinds{{"bad_event", 2}}));
}

TEST(RunLoadFaults, TheServerDiesInMidRun) {
  std::atomic<int> answered{0};
  std::optional<FaultyServer> server;
  std::promise<void> enough;
  server.emplace([&](RawConnection& c) {
    const int number = answered.fetch_add(1);
    if (number == 10) enough.set_value();
    if (number >= 10) return false;  // the process is going down
    return c.Write(std::string(kStreamHead) + StreamPiece(kToken) +
                   StreamPiece("data: [DONE]\n\n") + "0\r\n\r\n");
  });
  std::thread killer([&] {
    enough.get_future().wait();
    server->raw().Stop();
  });
  LoadOptions options = Options(server->raw().Url(), 2, 20);
  options.model = "m";
  const auto record = RunLoad(options, nullptr).value();
  killer.join();
  EXPECT_EQ(record.summary.total, 20u);
  EXPECT_EQ(record.summary.ok, 10u);
  // Cut off, then (once nobody listens any more) refused.
  std::uint64_t explained = 0;
  for (const char* kind : {"closed_early", "reset", "connect_refused"}) {
    const auto it = record.summary.errors_by_kind.find(kind);
    if (it != record.summary.errors_by_kind.end()) explained += it->second;
  }
  EXPECT_EQ(explained, 10u);
  EXPECT_FALSE(record.valid);
}

TEST(RunLoadFaults, ARunInWhichEverythingFailedIsInvalid) {
  FaultyServer server(
      [](RawConnection& c) { return c.Write("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"); });
  LoadOptions options = Options(server.raw().Url(), 1, 3);
  options.model = "m";
  const auto record = RunLoad(options, nullptr).value();
  EXPECT_FALSE(record.valid);
  EXPECT_FALSE(Check(record, "errors")->ok);
  EXPECT_THAT(Check(record, "errors")->detail, HasSubstr("http_500"));
}

}  // namespace
}  // namespace tare::load
