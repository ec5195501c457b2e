// The server under TLS, against this room's own client.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <filesystem>
#include <future>

#include "net/http_client.h"
#include "net/http_server.h"
#include "net/raw_client.h"

namespace tare::net {
namespace {

using ::testing::HasSubstr;

// A self-signed certificate for 127.0.0.1, and its key, as PEM files.
struct Files {
  Files() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tare-tls-XXXXXX").string();
    dir = ::mkdtemp(pattern.data());
    certificate = (dir / "cert.pem").string();
    key = (dir / "key.pem").string();
    Make();
  }
  ~Files() { std::filesystem::remove_all(dir); }

  void Make() const {
    EVP_PKEY* pair = EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256");
    X509* made = X509_new();
    X509_set_version(made, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made), 1);
    X509_gmtime_adj(X509_getm_notBefore(made), -60);
    X509_gmtime_adj(X509_getm_notAfter(made), 3600);
    X509_set_pubkey(made, pair);
    X509_NAME* name = X509_get_subject_name(made);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("127.0.0.1"), -1, -1, 0);
    X509_set_issuer_name(made, name);
    X509_EXTENSION* alternative =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
    X509_add_ext(made, alternative, -1);
    X509_EXTENSION_free(alternative);
    X509_sign(made, pair, EVP_sha256());
    std::FILE* file = std::fopen(certificate.c_str(), "w");
    PEM_write_X509(file, made);
    std::fclose(file);
    file = std::fopen(key.c_str(), "w");
    PEM_write_PrivateKey(file, pair, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
    X509_free(made);
    EVP_PKEY_free(pair);
  }

  std::filesystem::path dir;
  std::string certificate, key;
};

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

std::unique_ptr<HttpServer> StartServer(const Files& files) {
  HttpServerOptions options;
  options.tls_certificate_file = files.certificate;
  options.tls_key_file = files.key;
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
  const Files files;
  auto server = StartServer(files);
  auto client = *HttpClientThread::Create({.ca_file = files.certificate});
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
  const Files files;
  auto server = StartServer(files);
  RawClient client(server->port());
  client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("HTTP/1.1 200").find("HTTP/1.1 200"), std::string::npos);
  EXPECT_EQ(server->stats().bad_requests, 1u);
}

TEST(HttpServerTls, TakesANewCertificateForNewConnections) {
  const Files files;
  auto server = StartServer(files);
  auto first = *HttpClientThread::Create({.ca_file = files.certificate});
  Ask(*first, server->port(), "GET");
  files.Make();
  ASSERT_TRUE(server->ReloadCertificate());
  EXPECT_TRUE(Ask(*first, server->port(), "GET")->reused) << "open connections go on";
  auto second = *HttpClientThread::Create({.ca_file = files.certificate});
  Ask(*second, server->port(), "GET");
  std::filesystem::remove(files.key);
  EXPECT_FALSE(server->ReloadCertificate());
  auto third = *HttpClientThread::Create({.ca_file = files.certificate});
  Ask(*third, server->port(), "GET");
}

TEST(HttpServerTls, NamesWhatItCannotUse) {
  const Files files;
  HttpServerOptions options;
  options.tls_certificate_file = files.certificate;
  EXPECT_THAT(HttpServer::Start(options, nullptr).error().message, HasSubstr("both"));
  options.tls_key_file = files.certificate;
  EXPECT_THAT(HttpServer::Start(options, nullptr).error().message, HasSubstr("cannot use the key"));
  options.tls_certificate_file = "/nonexistent.pem";
  EXPECT_THAT(HttpServer::Start(options, nullptr).error().message, HasSubstr("/nonexistent.pem"));
}

}  // namespace
}  // namespace tare::net
