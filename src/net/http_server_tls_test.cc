// The server under TLS, against this room's own client.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>

#include "net/http_client.h"
#include "net/http_server.h"
#include "net/raw_client.h"
#include "net/test_certificate.h"

namespace tare::net {
namespace {

using ::testing::HasSubstr;

class Collect final : public ClientHandler {
 public:
  void OnHead(const HttpResponseHead& head, const ClientTimes&) override { status = head.status; }
  void OnBody(std::string_view piece, Nanos) override { body.append(piece); }
  void OnDone(const ClientTimes& times) override {
    reused = times.reused;
    done.set_value("");
  }
  void OnFailure(const ClientFailure& failure, const ClientTimes&) override {
    done.set_value(failure.error.message);
  }
  int status = 0;
  bool reused = false;
  std::string body;
  std::promise<std::string> done;
};

std::unique_ptr<HttpServer> StartServer(const TestCertificate& files) {
  HttpServerOptions options;
  options.tls_certificate_file = files.certificate_file;
  options.tls_key_file = files.key_file;
  auto server =
      HttpServer::Start(options, [](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
        if (request.method == "GET") {
          writer->StartStream(200, {});
          for (int i = 0; i < 50; ++i) writer->Write("piece" + std::to_string(i) + ";");
          writer->End();
        } else {
          writer->Send(200, {}, std::to_string(request.body.size()));
        }
      });
  EXPECT_TRUE(server) << server.error().message;
  return std::move(*server);
}

std::shared_ptr<Collect> Ask(HttpClientThread& client, std::uint16_t port, std::string method,
                             std::string body = "") {
  ClientRequest request;
  request.method = std::move(method);
  request.url = *ParseUrl("https://127.0.0.1:" + std::to_string(port) + "/");
  request.body = std::move(body);
  auto answer = std::make_shared<Collect>();
  EXPECT_TRUE(client.Start(std::move(request), answer));
  EXPECT_EQ(answer->done.get_future().get(), "");
  return answer;
}

TEST(HttpServerTls, AnswersStreamsAndKeepsTheConnection) {
  const TestCertificate files;
  auto server = StartServer(files);
  auto client = *HttpClientThread::Create({.ca_file = files.certificate_file});
  const auto stream = Ask(*client, server->port(), "GET");
  EXPECT_EQ(stream->status, 200);
  EXPECT_THAT(stream->body, HasSubstr("piece49;"));
  const auto large = Ask(*client, server->port(), "POST", std::string(3'000'000, 'x'));
  EXPECT_EQ(large->body, "3000000");
  EXPECT_TRUE(large->reused);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Ask(*client, server->port(), "GET")->reused);
  client.reset();
  EXPECT_TRUE(server->Drain(std::chrono::seconds(10)));
}

TEST(HttpServerTls, APlainClientIsNotServed) {
  const TestCertificate files;
  auto server = StartServer(files);
  RawClient client(server->port());
  client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("HTTP/1.1 200").find("HTTP/1.1 200"), std::string::npos);
  EXPECT_EQ(server->stats().bad_requests, 1u);
}

TEST(HttpServerTls, TakesANewCertificateForNewConnections) {
  const TestCertificate files;
  auto server = StartServer(files);
  auto first = *HttpClientThread::Create({.ca_file = files.certificate_file});
  Ask(*first, server->port(), "GET");
  files.Renew();
  ASSERT_TRUE(server->ReloadCertificate());
  EXPECT_TRUE(Ask(*first, server->port(), "GET")->reused) << "open connections go on";
  auto second = *HttpClientThread::Create({.ca_file = files.certificate_file});
  Ask(*second, server->port(), "GET");
  std::filesystem::remove(files.key_file);
  EXPECT_FALSE(server->ReloadCertificate());
  auto third = *HttpClientThread::Create({.ca_file = files.certificate_file});
  Ask(*third, server->port(), "GET");
}

TEST(HttpServerTls, NamesWhatItCannotUse) {
  const TestCertificate files;
  HttpServerOptions options;
  options.tls_certificate_file = files.certificate_file;
  EXPECT_THAT(HttpServer::Start(options, nullptr).error().message, HasSubstr("both"));
  options.tls_key_file = files.certificate_file;
  EXPECT_THAT(HttpServer::Start(options, nullptr).error().message, HasSubstr("cannot use the key"));
  options.tls_certificate_file = "/nonexistent.pem";
  EXPECT_THAT(HttpServer::Start(options, nullptr).error().message, HasSubstr("/nonexistent.pem"));
}

}  // namespace
}  // namespace tare::net
