#include "net/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <future>
#include <mutex>
#include <thread>

#include "net/raw_client.h"

namespace tare::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::string_view kGet = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

std::unique_ptr<HttpServer> StartOrDie(HttpServerOptions options, HttpHandler handler) {
  auto server = HttpServer::Start(std::move(options), std::move(handler));
  EXPECT_TRUE(server) << server.error().message;
  return server ? std::move(*server) : nullptr;
}

void Echo(HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  writer->Send(200, {{"Content-Type", "text/plain"}},
               request.method + " " + request.target + "|" + request.body);
}

// Keeps the writers of requests for the test to answer.
class Held {
 public:
  HttpHandler handler() {
    return [this](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
      promise_.set_value(std::move(writer));
    };
  }
  std::shared_ptr<ResponseWriter> Next() {
    auto writer = promise_.get_future().get();
    promise_ = {};
    return writer;
  }

 private:
  std::promise<std::shared_ptr<ResponseWriter>> promise_;
};

TEST(HttpServer, AnswersAndKeepsTheConnection) {
  auto server = StartOrDie({}, Echo);
  RawClient client(server->port());
  for (int i = 0; i < 3; ++i) {
    client.Send("POST /a?b=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    const std::string answer = client.ReadResponse();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\nDate: "));
    EXPECT_THAT(answer, HasSubstr("POST /a?b=1|hello"));
    EXPECT_THAT(answer, Not(HasSubstr("Connection: close")));
  }
  EXPECT_EQ(server->stats().accepted, 1u);
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  auto server = StartOrDie({}, Echo);
  RawClient client(server->port());
  client.Send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.ReadResponse(), HasSubstr("GET /1|"));
  EXPECT_THAT(client.ReadResponse(), HasSubstr("GET /2|"));
}

TEST(HttpServer, ReadsChunkedBodies) {
  auto server = StartOrDie({}, Echo);
  RawClient client(server->port());
  client.Send(
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n"
      "0\r\n\r\n");
  EXPECT_THAT(client.ReadResponse(), HasSubstr("POST /|abcde"));
}

TEST(HttpServer, InvitesBodiesThatWait) {
  auto server = StartOrDie({}, Echo);
  RawClient client(server->port());
  client.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("ok");
  EXPECT_THAT(client.ReadResponse(), HasSubstr("POST /|ok"));
}

TEST(HttpServer, HeadCarriesNoBody) {
  auto server = StartOrDie({}, Echo);
  RawClient client(server->port());
  client.Send("HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string answer = client.ReadToEnd();
  EXPECT_THAT(answer, HasSubstr("Content-Length: 7\r\n"));
  EXPECT_THAT(answer, ::testing::EndsWith("\r\n\r\n"));
}

TEST(HttpServer, StreamsPiecesFromAnotherThread) {
  Held held;
  auto server = StartOrDie({}, held.handler());
  RawClient client(server->port());
  client.Send(kGet);
  auto writer = held.Next();
  writer->StartStream(200, {{"Content-Type", "text/event-stream"}});
  EXPECT_TRUE(writer->Write("data: 1\n\n"));
  EXPECT_THAT(client.ReadUntil("data: 1\n\n\r\n"), HasSubstr("Transfer-Encoding: chunked"));
  EXPECT_TRUE(writer->Write("data: 2\n\n"));
  writer->End();
  EXPECT_FALSE(writer->Write("late"));
  EXPECT_EQ(client.ReadUntil("0\r\n\r\n"), "9\r\ndata: 2\n\n\r\n0\r\n\r\n");
  client.Send(kGet);  // the connection goes on
  held.Next()->Send(200, {}, "next");
  EXPECT_THAT(client.ReadResponse(), HasSubstr("next"));
}

TEST(HttpServer, StreamsToHttp10UntilClose) {
  auto server = StartOrDie({}, [](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
    writer->StartStream(200, {});
    writer->Write("abc");
    writer->End();
  });
  RawClient client(server->port());
  client.Send("GET / HTTP/1.0\r\n\r\n");
  const std::string answer = client.ReadToEnd();
  EXPECT_THAT(answer, ::testing::EndsWith("\r\n\r\nabc"));
  EXPECT_THAT(answer, Not(HasSubstr("chunked")));
}

TEST(HttpServer, NoticesAClientThatLeaves) {
  Held held;
  auto server = StartOrDie({}, held.handler());
  RawClient client(server->port());
  client.Send(kGet);
  auto writer = held.Next();
  std::promise<void> closed;
  writer->OnClose([&] { closed.set_value(); });
  client.Close();
  EXPECT_EQ(closed.get_future().wait_for(seconds(10)), std::future_status::ready);
  EXPECT_TRUE(writer->closed());
  EXPECT_FALSE(writer->Write("x"));
  writer->Send(200, {}, "nobody listens");
  EXPECT_EQ(server->stats().disconnects, 1u);
  bool late = false;
  writer->OnClose([&] { late = true; });
  EXPECT_TRUE(late);
}

TEST(HttpServer, AHalfClosedConnectionEndsAfterItsAnswer) {
  auto server = StartOrDie({}, Echo);
  // The end of file races with the end of the answer; whichever is first, nothing waits for the
  // idle timeout.
  for (int i = 0; i < 200; ++i) {
    RawClient client(server->port());
    client.Send(kGet);
    client.HalfClose();
    client.ReadToEnd();
    ASSERT_FALSE(client.timed_out());
  }
}

TEST(HttpServer, CloseIsNotReportedForCompleteAnswers) {
  std::atomic<int> closes{0};
  {
    auto server = StartOrDie({}, [&](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
      writer->OnClose([&] { ++closes; });
      writer->Send(200, {}, "done");
    });
    RawClient client(server->port());
    client.Send(kGet);
    EXPECT_THAT(client.ReadResponse(), HasSubstr("done"));
  }
  EXPECT_EQ(closes.load(), 0);
}

TEST(HttpServer, CutsStreamsOfClientsThatDoNotRead) {
  Held held;
  HttpServerOptions options;
  options.max_queued_bytes = 64 * 1024;
  auto server = StartOrDie(options, held.handler());
  RawClient client(server->port(), 4096);
  client.Send(kGet);
  auto writer = held.Next();
  std::promise<void> closed;
  writer->OnClose([&] { closed.set_value(); });
  writer->StartStream(200, {});
  const std::string piece(16 * 1024, 'x');
  int accepted = 0;
  while (accepted < 100000 && writer->Write(piece)) ++accepted;
  EXPECT_LT(accepted, 100000) << "the queue is bounded";
  EXPECT_EQ(closed.get_future().wait_for(seconds(10)), std::future_status::ready);
  EXPECT_EQ(server->stats().slow_clients, 1u);
  EXPECT_THAT(client.ReadToEnd(), Not(HasSubstr("\r\n0\r\n\r\n")));
}

TEST(HttpServer, AbortedAndAbandonedStreamsLookCut) {
  Held held;
  auto server = StartOrDie({}, held.handler());
  for (const bool abandon : {false, true}) {
    RawClient client(server->port());
    client.Send(kGet);
    auto writer = held.Next();
    writer->StartStream(200, {});
    writer->Write("half");
    if (!abandon) writer->Abort();
    writer.reset();
    const std::string answer = client.ReadToEnd();
    EXPECT_THAT(answer, HasSubstr("4\r\nhalf\r\n"));
    EXPECT_THAT(answer, Not(HasSubstr("0\r\n\r\n")));
  }
}

TEST(HttpServer, UnansweredRequestsGet500) {
  HttpServerOptions options;
  options.error_body = [](int status, const std::string&) { return std::to_string(status); };
  auto server = StartOrDie(options, [](HttpRequest request, std::shared_ptr<ResponseWriter>) {
    if (request.target == "/throw") throw std::runtime_error("handler bug");
  });
  RawClient client(server->port());
  client.Send(kGet);
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 500 "));
  client.Send("GET /throw HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.ReadResponse(), ::testing::EndsWith("\r\n\r\n500"));
}

struct BadRequest {
  const char* name;
  std::string bytes;
  const char* status;
};
void PrintTo(const BadRequest& bad, std::ostream* out) { *out << bad.name; }

class HttpServerBadInput : public ::testing::TestWithParam<BadRequest> {};

TEST_P(HttpServerBadInput, IsRefusedAndTheServerLives) {
  HttpServerOptions options;
  options.max_body_bytes = 1000;
  auto server = StartOrDie(options, Echo);
  RawClient client(server->port());
  client.Send(GetParam().bytes);
  EXPECT_THAT(client.ReadToEnd(), StartsWith(std::string("HTTP/1.1 ") + GetParam().status));
  EXPECT_FALSE(client.timed_out());
  RawClient next(server->port());
  next.Send(kGet);
  EXPECT_THAT(next.ReadResponse(), HasSubstr("200 OK"));
}

INSTANTIATE_TEST_SUITE_P(
    All, HttpServerBadInput,
    ::testing::Values(
        BadRequest{"garbage", std::string("\0\1\2\3garbage\r\n\r\n", 15), "400"},
        BadRequest{"version", "GET / HTTP/9.9\r\n\r\n", "400"},
        BadRequest{"no_target", "GET\r\n\r\n", "400"},
        BadRequest{"tls_hello", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", 13),
                   "400"},
        BadRequest{"header_name", "GET / HTTP/1.1\r\nBad Name: x\r\n\r\n", "400"},
        BadRequest{"header_control", std::string("GET / HTTP/1.1\r\nA: \0\r\n\r\n", 23), "400"},
        BadRequest{"length", "POST / HTTP/1.1\r\nContent-Length: 1x\r\n\r\n", "400"},
        BadRequest{"negative_length", "POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", "400"},
        BadRequest{"two_lengths",
                   "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400"},
        BadRequest{"smuggling",
                   "POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
                   "\r\n",
                   "400"},
        BadRequest{"chunk_size", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                   "400"},
        BadRequest{"huge_header", "GET / HTTP/1.1\r\nA: " + std::string(20000, 'a') + "\r\n\r\n",
                   "431"},
        BadRequest{"endless_header", "GET / HTTP/1.1\r\nA: " + std::string(200000, 'a'), "431"},
        BadRequest{"huge_target", "GET /" + std::string(20000, 'a') + " HTTP/1.1\r\n\r\n", "431"},
        BadRequest{"large_body",
                   "POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + std::string(100000, 'b'),
                   "413"},
        BadRequest{"claimed_body", "POST / HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n",
                   "413"},
        BadRequest{"overflowing_length",
                   "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", "400"},
        BadRequest{
            "endless_chunk_line",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;" + std::string(200000, 'x'),
            "4"},
        BadRequest{"large_chunks",
                   "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n" +
                       std::string(0x800, 'b') + "\r\n",
                   "413"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(HttpServer, SurvivesAnyBytes) {
  auto server = StartOrDie({}, Echo);
  rc::check("arbitrary bytes around a request never hang or kill the server", [&] {
    std::string bytes = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
    if (*rc::gen::arbitrary<bool>()) bytes.insert(0, "POST / HTTP/1.1\r\nContent-Length: 3\r\n");
    RawClient client(server->port());
    client.Send(bytes);
    client.HalfClose();
    client.ReadToEnd();
    RC_ASSERT(!client.timed_out());
  });
  RawClient client(server->port());
  client.Send(kGet);
  EXPECT_THAT(client.ReadResponse(), HasSubstr("200 OK"));
}

TEST(HttpServer, SlowRequestsTimeOut) {
  HttpServerOptions options;
  options.header_timeout = options.body_timeout = options.idle_timeout = milliseconds(40);
  auto server = StartOrDie(options, Echo);
  RawClient silent(server->port());
  RawClient head(server->port());
  head.Send("GET / HT");
  RawClient body(server->port());
  body.Send("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(silent.ReadToEnd(), "");
  EXPECT_THAT(head.ReadToEnd(), StartsWith("HTTP/1.1 408 "));
  EXPECT_THAT(body.ReadToEnd(), StartsWith("HTTP/1.1 408 "));
  EXPECT_FALSE(silent.timed_out() || head.timed_out() || body.timed_out());
}

TEST(HttpServer, TurnsAwayConnectionsOverTheLimit) {
  Held held;
  HttpServerOptions options;
  options.max_connections = 1;
  auto server = StartOrDie(options, held.handler());
  RawClient first(server->port());
  first.Send(kGet);
  auto writer = held.Next();
  RawClient second(server->port());
  EXPECT_THAT(second.ReadToEnd(), StartsWith("HTTP/1.1 503 "));
  writer->Send(200, {}, "served");
  EXPECT_THAT(first.ReadResponse(), HasSubstr("served"));
  EXPECT_EQ(server->stats().refused, 1u);
}

TEST(HttpServer, NamesAPortInUse) {
  auto server = StartOrDie({}, Echo);
  HttpServerOptions options;
  options.port = server->port();
  const auto second = HttpServer::Start(options, Echo);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorKind::kUnavailable);
  EXPECT_THAT(second.error().message, HasSubstr(std::to_string(options.port)));
  EXPECT_THAT(second.error().message, HasSubstr("--port"));
}

TEST(HttpServer, NamesABadAddress) {
  HttpServerOptions options;
  options.host = "example.invalid";
  const auto server = HttpServer::Start(options, Echo);
  ASSERT_FALSE(server);
  EXPECT_THAT(server.error().message, HasSubstr("'example.invalid'"));
}

TEST(HttpServer, DrainFinishesWhatRuns) {
  Held held;
  auto server = StartOrDie({}, held.handler());
  RawClient idle(server->port());
  RawClient busy(server->port());
  busy.Send(kGet);
  auto writer = held.Next();
  auto drained = std::async(std::launch::async, [&] { return server->Drain(seconds(10)); });
  EXPECT_EQ(idle.ReadToEnd(), "") << "idle connections close at once";
  writer->Send(200, {}, "finished");
  EXPECT_THAT(busy.ReadToEnd(), HasSubstr("Connection: close"));
  busy.Close();
  EXPECT_TRUE(drained.get());
  EXPECT_FALSE(RawClient(server->port()).connected());
}

TEST(HttpServer, DrainGivesUpAtItsDeadline) {
  Held held;
  auto server = StartOrDie({}, held.handler());
  RawClient client(server->port());
  client.Send(kGet);
  auto writer = held.Next();
  std::promise<void> closed;
  writer->OnClose([&] { closed.set_value(); });
  EXPECT_FALSE(server->Drain(milliseconds(20)));
  EXPECT_EQ(closed.get_future().wait_for(seconds(10)), std::future_status::ready);
}

TEST(HttpServer, WritersMayOutliveTheServer) {
  Held held;
  auto server = StartOrDie({}, held.handler());
  RawClient client(server->port());
  client.Send(kGet);
  auto writer = held.Next();
  server.reset();
  EXPECT_FALSE(writer->Write("x"));
  writer->Send(200, {}, "late");
}

TEST(HttpServer, ManyClientsOnSeveralThreads) {
  HttpServerOptions options;
  options.threads = 3;
  auto server = StartOrDie(options, [](HttpRequest request, std::shared_ptr<ResponseWriter> w) {
    w->StartStream(200, {});
    for (int i = 0; i < 20; ++i) w->Write(request.target);
    w->End();
  });
  std::vector<std::thread> clients;
  std::atomic<int> right{0};
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      RawClient client(server->port());
      for (int i = 0; i < 50; ++i) {
        const std::string target = "/" + std::to_string(c) + "-" + std::to_string(i);
        client.Send("GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n");
        const std::string answer = client.ReadUntil("0\r\n\r\n");
        std::size_t found = 0;
        for (auto at = answer.find(target); at != std::string::npos;
             at = answer.find(target, at + 1)) {
          ++found;
        }
        if (found == 20) ++right;
      }
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(right.load(), 8 * 50);
}

TEST(HttpMessage, FindsHeadersInAnyCase) {
  const HttpHeaders headers = {{"Content-Type", "a"}, {"X", "b"}};
  EXPECT_EQ(*FindHeader(headers, "content-TYPE"), "a");
  EXPECT_EQ(FindHeader(headers, "Content"), nullptr);
}

}  // namespace
}  // namespace tare::net
