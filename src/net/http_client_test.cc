#include "net/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <future>
#include <optional>

#include "net/raw_server.h"
#include "net/test_certificate.h"

namespace tare::net {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Collects one answer; `ended` becomes ready with the call's end.
struct Collector final : ClientHandler {
  HttpResponseHead head;
  std::string body;
  std::vector<Nanos> stamps;
  ClientTimes times;
  std::optional<ClientFailure> failure;
  std::promise<void> ended;
  std::function<void()> on_body;

  void OnHead(const HttpResponseHead& h, const ClientTimes&) override { head = h; }
  void OnBody(std::string_view piece, Nanos received) override {
    body += piece;
    stamps.push_back(received);
    if (on_body) on_body();
  }
  void OnDone(const ClientTimes& t) override {
    times = t;
    ended.set_value();
  }
  void OnFailure(const ClientFailure& f, const ClientTimes& t) override {
    failure = f;
    times = t;
    ended.set_value();
  }
};

class HttpClientTest : public ::testing::Test {
 protected:
  std::unique_ptr<HttpClientThread> client_ = HttpClientThread::Create({}).value();

  static ClientRequest To(const RawServer& server, std::string body = {}) {
    ClientRequest request;
    request.method = body.empty() ? "GET" : "POST";
    request.url = ParseUrl(server.Url()).value().WithPath("/x");
    request.body = std::move(body);
    return request;
  }
  std::shared_ptr<Collector> Do(ClientRequest request) {
    auto collector = std::make_shared<Collector>();
    const auto call = client_->Start(std::move(request), collector);
    EXPECT_TRUE(call.has_value());
    EXPECT_EQ(collector->ended.get_future().wait_for(std::chrono::seconds(20)),
              std::future_status::ready);
    return collector;
  }
  ClientFailureKind FailureOf(ClientRequest request) {
    const auto collector = Do(std::move(request));
    EXPECT_TRUE(collector->failure.has_value());
    if (!collector->failure) return ClientFailureKind::kResolve;
    EXPECT_FALSE(collector->failure->error.message.empty());
    return collector->failure->kind;
  }
};

TEST_F(HttpClientTest, KeepsTheConnection) {
  RawServer server([](RawConnection& c, int) {
    while (!c.ReadRequest().empty()) c.Write(PlainResponse("hello"));
  });
  const auto first = Do(To(server));
  const auto second = Do(To(server, "{}"));
  EXPECT_EQ(first->body, "hello");
  EXPECT_EQ(second->head.status, 200);
  EXPECT_FALSE(first->times.reused);
  EXPECT_TRUE(second->times.reused);
  EXPECT_EQ(server.connections(), 1);
  EXPECT_LE(first->times.started, first->times.connected);
  EXPECT_LE(first->times.connected, first->times.sent);
  EXPECT_LE(first->times.sent, first->times.first_byte);
  EXPECT_LE(first->times.first_byte, first->times.ended);
}

TEST_F(HttpClientTest, LargeRequestAndAnswerGoThroughWhole) {
  const std::string large(3 << 20, 'q');
  RawServer server([&](RawConnection& c, int) {
    const std::string request = c.ReadRequest();
    c.Write(PlainResponse(request.substr(request.find("\r\n\r\n") + 4)));
  });
  EXPECT_EQ(Do(To(server, large))->body, large);
}

TEST_F(HttpClientTest, ResendsOnceWhenAKeptConnectionTurnsOutClosed) {
  RawServer server([](RawConnection& c, int) {
    c.ReadRequest();
    c.Write(PlainResponse("one"));
    // Takes the next request and drops it: the client cannot know it was read.
    c.ReadUntil("\r\n\r\n");
  });
  EXPECT_EQ(Do(To(server))->body, "one");
  const auto second = Do(To(server));
  EXPECT_FALSE(second->failure.has_value());
  EXPECT_EQ(second->times.resent, 1);
  EXPECT_EQ(server.connections(), 2);
}

TEST_F(HttpClientTest, FailuresAreToldApart) {
  {
    std::optional<RawServer> gone(std::in_place, [](RawConnection&, int) {});
    const ClientRequest request = To(*gone);
    gone.reset();
    EXPECT_EQ(FailureOf(request), ClientFailureKind::kConnectRefused);
  }
  {
    RawServer server([](RawConnection& c, int) { c.ReadRequest(); });
    EXPECT_EQ(FailureOf(To(server)), ClientFailureKind::kClosedEarly);
  }
  {
    RawServer server([](RawConnection& c, int) {
      c.ReadRequest();
      c.Write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
      c.Reset();
    });
    const ClientFailureKind kind = FailureOf(To(server));
    EXPECT_TRUE(kind == ClientFailureKind::kReset || kind == ClientFailureKind::kClosedEarly);
  }
  {
    RawServer server([](RawConnection& c, int) {
      c.ReadRequest();
      c.Write("SSH-2.0-OpenSSH\r\n");
      c.WaitForClose();
    });
    EXPECT_EQ(FailureOf(To(server)), ClientFailureKind::kBadResponse);
  }
  {
    ClientRequest request;
    request.url = ParseUrl("http://no-such-host.invalid").value();
    EXPECT_EQ(FailureOf(request), ClientFailureKind::kResolve);
  }
}

TEST_F(HttpClientTest, EveryPhaseHasItsTimeLimit) {
  RawServer silent([](RawConnection& c, int) { c.WaitForClose(); });
  ClientRequest request = To(silent);
  request.first_byte_timeout = milliseconds(20);
  EXPECT_EQ(FailureOf(request), ClientFailureKind::kFirstByteTimeout);

  RawServer stops([](RawConnection& c, int) {
    c.ReadRequest();
    c.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
    c.WaitForClose();
  });
  request = To(stops);
  request.idle_timeout = milliseconds(20);
  EXPECT_EQ(FailureOf(request), ClientFailureKind::kIdleTimeout);
  request = To(stops);
  request.total_timeout = milliseconds(20);
  EXPECT_EQ(FailureOf(request), ClientFailureKind::kTotalTimeout);

  // A loris that sends one header byte after another never gets past the head.
  RawServer loris([](RawConnection& c, int) {
    c.ReadRequest();
    while (c.Write("H")) {
    }
  });
  request = To(loris);
  request.total_timeout = milliseconds(50);
  const ClientFailureKind kind = FailureOf(request);
  EXPECT_TRUE(kind == ClientFailureKind::kTotalTimeout || kind == ClientFailureKind::kBadResponse);
}

TEST_F(HttpClientTest, CancelClosesTheConnection) {
  std::promise<void> closed;
  RawServer server([&](RawConnection& c, int) {
    c.ReadRequest();
    c.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
    c.WaitForClose();
    closed.set_value();
  });
  auto collector = std::make_shared<Collector>();
  std::promise<void> first_piece;
  collector->on_body = [&] { first_piece.set_value(); };
  const auto call = client_->Start(To(server), collector).value();
  first_piece.get_future().wait();
  call->Cancel();
  EXPECT_EQ(closed.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(collector->ended.get_future().wait_for(milliseconds(0)), std::future_status::timeout);
}

TEST_F(HttpClientTest, AHandlerMayCancelItsOwnCall) {
  RawServer server([](RawConnection& c, int) {
    c.ReadRequest();
    c.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n");
    c.WaitForClose();
  });
  const auto loop = EventLoop::Create().value();
  const auto client = HttpClient::Create(loop.get(), {}).value();
  auto collector = std::make_shared<Collector>();
  HttpClient::CallId id{};
  collector->on_body = [&] {
    client->Cancel(id);
    loop->Stop();
  };
  id = client->Start(To(server), collector).value();
  loop->Run();
  EXPECT_EQ(collector->body, "a");
  EXPECT_EQ(client->running(), 0u);
  EXPECT_EQ(client->open_connections(), 0u);
}

TEST_F(HttpClientTest, RefusesHeadersThatWouldSplitTheRequest) {
  ClientRequest request;
  request.url = ParseUrl("http://127.0.0.1:1").value();
  request.headers = {{"Authorization", "Bearer x\r\nEvil: 1"}};
  const auto call = client_->Start(request, std::make_shared<Collector>());
  ASSERT_FALSE(call.has_value());
  EXPECT_THAT(call.error().message, HasSubstr("Authorization"));
}

TEST_F(HttpClientTest, FetchBlockingLimitsTheBody) {
  RawServer server([](RawConnection& c, int) {
    c.ReadRequest();
    c.Write(PlainResponse("0123456789"));
  });
  EXPECT_EQ(FetchBlocking(To(server))->body, "0123456789");
  EXPECT_THAT(FetchBlocking(To(server), 5).error().message, HasSubstr("longer than 5"));
}

// ----- TLS, against OpenSSL's own server side with a certificate made here

TEST_F(HttpClientTest, SpeaksTlsAndChecksTheCertificate) {
  TestCertificate made;
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  SSL_CTX_use_certificate_file(context, made.certificate_file.c_str(), SSL_FILETYPE_PEM);
  SSL_CTX_use_PrivateKey_file(context, made.key_file.c_str(), SSL_FILETYPE_PEM);
  const std::string large(300'000, 'z');
  RawServer server([&](RawConnection& c, int) {
    SSL* tls = SSL_new(context);
    SSL_set_fd(tls, c.fd());
    if (SSL_accept(tls) == 1) {
      char buffer[4096];
      while (SSL_read(tls, buffer, sizeof buffer) > 0) {
        const std::string answer = PlainResponse(large);
        SSL_write(tls, answer.data(), static_cast<int>(answer.size()));
      }
    }
    SSL_free(tls);
  });
  ClientRequest request = To(server);
  request.url.tls = true;

  EXPECT_EQ(FailureOf(request), ClientFailureKind::kTls) << "nobody vouches for the certificate";

  client_ = HttpClientThread::Create({.ca_file = made.certificate_file}).value();
  const auto trusted = Do(request);
  EXPECT_FALSE(trusted->failure.has_value());
  EXPECT_EQ(trusted->body, large);
  EXPECT_TRUE(Do(request)->times.reused);

  ClientRequest wrong_name = request;
  wrong_name.url.host = "localhost";  // the certificate names the address only
  EXPECT_EQ(FailureOf(wrong_name), ClientFailureKind::kTls);

  client_ = HttpClientThread::Create({.verify_tls = false}).value();
  EXPECT_EQ(Do(wrong_name)->body, large);
  client_.reset();
  server.Stop();
  SSL_CTX_free(context);
}

// ----- the event loop itself

TEST(EventLoop, RunsTimersInOrderOfTheirTimes) {
  const auto loop = EventLoop::Create().value();
  const Nanos now = MonotonicNow();
  std::string order;
  loop->RunAt(now + milliseconds(2), [&] {
    order += 'c';
    loop->Stop();
  });
  loop->RunAt(now + milliseconds(1), [&] { order += 'b'; });
  loop->RunAt(Nanos(0), [&] { order += 'a'; });
  const auto cancelled = loop->RunAt(now, [&] { order += 'x'; });
  loop->CancelTimer(cancelled);
  loop->Run();
  EXPECT_EQ(order, "abc");
  EXPECT_EQ(loop->self().timer_lateness.count(), 3u);
}

TEST(EventLoop, PostingToALoopThatIsGoneDoesNothing) {
  std::shared_ptr<EventLoop::Mailbox> mailbox;
  {
    const auto loop = EventLoop::Create().value();
    mailbox = loop->mailbox();
  }
  mailbox->Post([] { FAIL(); });
}

}  // namespace
}  // namespace tare::net
