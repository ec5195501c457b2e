// Faults that need more than a misbehaving answer: broken TLS, sockets that half exist, ends that
// must come on time. The others are in runner_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "load/runner.h"
#include "net/event_loop.h"
#include "net/http_server.h"
#include "net/raw_client.h"
#include "net/raw_server.h"
#include "net/test_certificate.h"

namespace tare::load {
namespace {

using net::RawConnection;
using net::RawServer;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

using Kinds = std::map<std::string, std::uint64_t>;

constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
constexpr std::string_view kToken = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n";
constexpr std::string_view kProbeAnswer =
    R"({"choices":[{"message":{"content":"x"},"finish_reason":"length"}],)"
    R"("usage":{"prompt_tokens":20,"completion_tokens":1}})";

std::string Piece(std::string_view payload) {
  return fmt::format("{:x}\r\n{}\r\n", payload.size(), payload);
}

LoadOptions Options(const std::string& url, std::uint64_t requests) {
  LoadOptions options;
  options.url = url;
  options.model = "m";
  options.arrival.users = 2;
  options.requests = requests;
  options.workload.input_tokens = 20;
  options.workload.output_tokens = 4;
  options.workload.seed = 3;
  options.verify_tls = false;
  return options;
}

// Answers what is not streamed and lets `misbehave` have the rest; false ends the connection.
RawServer::Script Faulty(std::function<bool(RawConnection&)> misbehave) {
  return [f = std::move(misbehave)](RawConnection& c, int) {
    while (true) {
      const std::string request = c.ReadRequest();
      if (request.empty()) return;
      if (request.find("\"stream\":true") == std::string::npos) {
        if (!c.Write(net::PlainResponse(std::string(kProbeAnswer)))) return;
      } else if (!f(c)) {
        return;
      }
    }
  };
}

TEST(RunLoadFaults, AResetInMidStream) {
  RawServer server(Faulty([](RawConnection& c) {
    c.Write(std::string(kStreamHead) + Piece(kToken));
    c.Reset();
    return false;
  }));
  const auto record = RunLoad(Options(server.Url(), 6), nullptr).value();
  EXPECT_EQ(record.summary.failed, 6u);
  // The reset may overtake the bytes before it, never become a success.
  for (const auto& [kind, count] : record.summary.errors_by_kind) {
    EXPECT_TRUE(kind == "reset" || kind == "closed_early") << kind;
  }
  EXPECT_FALSE(record.valid);
}

TEST(RunLoadFaults, WhatIsNotHttp) {
  RawServer server(Faulty([](RawConnection& c) {
    c.Write("SSH-2.0-OpenSSH_9.2p1\r\n\r\n");
    return false;
  }));
  EXPECT_EQ(RunLoad(Options(server.Url(), 4), nullptr).value().summary.errors_by_kind,
            (Kinds{{"bad_response", 4}}));
}

// The peer's machine is gone: its socket neither sends nor closes.
TEST(RunLoadFaults, AHalfOpenSocketInMidStream) {
  RawServer server(Faulty([](RawConnection& c) {
    c.Write(std::string(kStreamHead) + Piece(kToken));
    c.WaitForClose();
    return false;
  }));
  LoadOptions options = Options(server.Url(), 4);
  options.request_timeout = milliseconds(200);
  EXPECT_EQ(RunLoad(options, nullptr).value().summary.errors_by_kind,
            (Kinds{{"total_timeout", 4}}));
}

TEST(RunLoadFaults, TheRunEndsOnTimeWhateverHangs) {
  RawServer server(Faulty([](RawConnection& c) {
    c.Write(kStreamHead);
    c.WaitForClose();
    return false;
  }));
  LoadOptions options = Options(server.Url(), 0);
  options.duration = milliseconds(200);
  options.warm_up = Nanos(0);
  options.drain = milliseconds(200);
  const Nanos begin = net::MonotonicNow();
  const auto record = RunLoad(options, nullptr).value();
  // Five minutes is what the requests would wait; machines of CI are slow.
  EXPECT_LT(net::MonotonicNow() - begin, seconds(20));
  EXPECT_EQ(record.summary.errors_by_kind, (Kinds{{"unfinished", 2}}));
  EXPECT_FALSE(record.valid);
}

// A TLS server behind a wire that breaks once the probes are through.
TEST(RunLoadFaults, TlsThatBreaks) {
  const net::TestCertificate certificate;
  std::atomic<int> probes{0};
  net::HttpServerOptions https;
  https.tls_certificate_file = certificate.certificate_file;
  https.tls_key_file = certificate.key_file;
  const auto server =
      net::HttpServer::Start(https, [&](net::HttpRequest request,
                                        std::shared_ptr<net::ResponseWriter> writer) {
        if (request.target.find("completions") == std::string::npos) {
          return writer->Send(404, {}, "{}");
        }
        ++probes;
        writer->Send(200, {{"Content-Type", "application/json"}}, std::string(kProbeAnswer));
      }).value();
  constexpr int kProbes = 2;  // the two prompts that calibrate lengths
  RawServer wire([&](RawConnection& c, int) {
    if (probes >= kProbes) {
      c.ReadUntil(std::string_view("\x01", 1));  // of the client's hello
      c.Write("HTTP/1.1 400 Bad Request\r\n\r\n");
      return;
    }
    net::RawClient upstream(server->port());
    std::thread back([&] {
      char buffer[4096];
      while (true) {
        const ssize_t n = ::recv(upstream.fd(), buffer, sizeof buffer, 0);
        if (n <= 0 || !c.Write(std::string_view(buffer, static_cast<std::size_t>(n)))) break;
      }
      ::shutdown(c.fd(), SHUT_RDWR);
    });
    char buffer[4096];
    while (true) {
      const ssize_t n = ::recv(c.fd(), buffer, sizeof buffer, 0);
      if (n <= 0 || !upstream.Send(std::string_view(buffer, static_cast<std::size_t>(n)))) break;
    }
    ::shutdown(upstream.fd(), SHUT_RDWR);
    back.join();
  });
  const std::string url = fmt::format("https://127.0.0.1:{}", wire.port());
  const auto record = RunLoad(Options(url, 4), nullptr);
  ASSERT_TRUE(record.has_value()) << record.error().message;
  EXPECT_EQ(record->summary.errors_by_kind, (Kinds{{"tls", 4}}));
  EXPECT_FALSE(record->valid);

  // A certificate nobody vouches for ends the run before it begins, with the way out.
  LoadOptions strict = Options(fmt::format("https://127.0.0.1:{}", server->port()), 4);
  strict.verify_tls = true;
  EXPECT_THAT(RunLoad(strict, nullptr).error().message, HasSubstr("certificate"));
}

}  // namespace
}  // namespace tare::load
