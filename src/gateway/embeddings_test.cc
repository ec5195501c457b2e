// /v1/embeddings from the HTTP request to the answer: an embedder of this process, and servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/local_embedder.h"
#include "gateway/gateway.h"
#include "gateway/local_embeddings.h"
#include "gateway/local_models.h"
#include "gateway/router_fixture.h"
#include "model/tiny_encoder.h"

namespace tare::gateway {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

// A client that waits for its answer.
class Client final : public net::ResponseWriter {
 public:
  void Send(int code, const net::HttpHeaders&, std::string text) override {
    std::lock_guard lock(mutex_);
    status_ = code;
    body_ = std::move(text);
    changed_.notify_all();
  }
  void StartStream(int, const net::HttpHeaders&) override { FAIL() << "no stream was asked for"; }
  bool Write(std::string_view) override { return true; }
  void End() override {}
  void Abort() override {}
  void OnClose(std::function<void()>) override {}
  bool closed() const override { return false; }

  // Status and answer.
  std::pair<int, json> Wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [this] { return status_ != 0; }));
    return {status_, json::parse(body_, nullptr, false)};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int status_ = 0;
  std::string body_;
};

std::pair<int, json> Post(Gateway& gateway, const std::string& path, const json& body,
                          const std::string& key = "") {
  net::HttpRequest request;
  request.method = "POST";
  request.target = path;
  request.body = body.dump();
  if (!key.empty()) request.headers = {{"Authorization", "Bearer " + key}};
  auto client = std::make_shared<Client>();
  gateway.Handle(std::move(request), client);
  return client->Wait();
}

class LocalEmbeddingsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string pattern = testing::TempDir() + "tare-embeddings-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    model::WriteTinyEncoder(model::ReadTinyEncoders().front(), folder_, "", 16);
    engine::LocalModelOptions options;
    options.model = folder_.string();
    options.threads = 2;
    auto local = engine::LoadLocalEmbedder(options);
    ASSERT_TRUE(local) << local.error().message;
    embedder_ = std::move(local->embedder);
  }
  static void TearDownTestSuite() {
    embedder_.reset();
    fs::remove_all(folder_);
  }
  LocalEmbeddingsTest()
      : upstream_(std::make_shared<LocalEmbeddings>("mini", embedder_)), gateway_(Options()) {
    gateway_.SetUpstream(upstream_);
  }

  static GatewayOptions Options() {
    GatewayOptions options;
    options.version = "1";
    return options;
  }
  std::pair<int, json> Embed(json body) {
    if (!body.contains("model")) body["model"] = "mini";
    return Post(gateway_, "/v1/embeddings", body);
  }
  void Refused(const json& body, int status, const char* param, const char* word) {
    const auto [code, answer] = Embed(body);
    EXPECT_EQ(code, status) << body;
    EXPECT_EQ(answer["error"]["param"], param) << answer;
    EXPECT_THAT(answer["error"]["message"].get<std::string>(), HasSubstr(word));
  }

  static inline fs::path folder_;
  static inline std::shared_ptr<engine::Embedder> embedder_;
  std::shared_ptr<LocalEmbeddings> upstream_;
  Gateway gateway_;
};

TEST_F(LocalEmbeddingsTest, ABatchIsItsSinglesBitForBit) {
  const json texts = {"a b", "abc d", "a b", "z"};
  const auto [status, batch] = Embed({{"input", texts}});
  ASSERT_EQ(status, 200) << batch;
  EXPECT_EQ(batch["object"], "list");
  EXPECT_EQ(batch["model"], "mini");
  ASSERT_EQ(batch["data"].size(), 4u);
  int tokens = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto [single_status, single] = Embed({{"input", texts[i]}});
    ASSERT_EQ(single_status, 200);
    EXPECT_EQ(batch["data"][i]["index"], i);
    EXPECT_EQ(batch["data"][i]["object"], "embedding");
    EXPECT_EQ(batch["data"][i]["embedding"], single["data"][0]["embedding"]) << i;
    EXPECT_EQ(single["data"][0]["embedding"].size(), 48u);
    tokens += single["usage"]["prompt_tokens"].get<int>();
  }
  EXPECT_EQ(batch["usage"], (json{{"prompt_tokens", tokens}, {"total_tokens", tokens}}));
}

// What a start shows as a first request follows from it.
TEST_F(LocalEmbeddingsTest, ARouteOfAnotherNameIsKnownToMakeEmbeddings) {
  EXPECT_TRUE(upstream_->Models().front().embeds);
  RouterConfig config;
  UpstreamConfig here;
  here.remote.name = "here";
  here.local = upstream_;
  config.upstreams = {here};
  config.routes = {{.model = "vectors", .targets = {{"here", "mini"}}}};
  const auto router = Router::Create(std::move(config));
  ASSERT_TRUE(router) << router.error().message;
  EXPECT_EQ((*router)->Models().front().id, "vectors");
  EXPECT_TRUE((*router)->Models().front().embeds);
}

TEST_F(LocalEmbeddingsTest, TokenIdsAreTheTextTheyStandFor) {
  const auto [status, text] = Embed({{"input", "ab"}});  // [CLS] a ##b [SEP]
  const auto [ids_status, ids] = Embed({{"input", {2, 5, 32, 3}}});
  EXPECT_EQ(status, 200);
  EXPECT_EQ(text["data"], ids["data"]);
  const auto [list_status, list] = Embed({{"input", {{2, 5, 32, 3}, {2, 5, 3}}}});
  EXPECT_EQ(list["data"][0], ids["data"][0]);
  EXPECT_EQ(list["usage"]["prompt_tokens"], 7);
}

TEST_F(LocalEmbeddingsTest, ShorterVectorsAreTheBeginningNormalisedAgain) {
  const auto [status, whole] = Embed({{"input", "a b c"}});
  const auto [short_status, part] = Embed({{"input", "a b c"}, {"dimensions", 8}});
  ASSERT_EQ(short_status, 200);
  const std::vector<float> all = whole["data"][0]["embedding"];
  const std::vector<float> few = part["data"][0]["embedding"];
  ASSERT_EQ(few.size(), 8u);
  double length = 0, squares = 0;
  for (std::size_t i = 0; i < 8; ++i) length += double{all[i]} * all[i];
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(few[i], all[i] / std::sqrt(length), 1e-6);
    squares += double{few[i]} * few[i];
  }
  EXPECT_NEAR(squares, 1.0, 1e-6);
  Refused({{"input", "a"}, {"dimensions", 49}}, 400, "dimensions", "have 48");
}

TEST_F(LocalEmbeddingsTest, TooLongInputsAreRefusedUnlessCuttingIsAskedFor) {
  const std::string text = "a b c d e f g h i j k l m n o";  // 17 tokens
  const auto [status, refused] = Embed({{"input", {"a", text}}});
  EXPECT_EQ(status, 400);
  EXPECT_EQ(refused["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(refused["error"]["type"], "invalid_request_error");
  EXPECT_THAT(refused["error"]["message"].get<std::string>(),
              HasSubstr("at most 16 tokens, but input 1 has 17"));
  const auto [cut_status, cut] = Embed({{"input", text}, {"truncate_prompt_tokens", -1}});
  ASSERT_EQ(cut_status, 200) << cut;
  EXPECT_EQ(cut["usage"]["prompt_tokens"], 16);
  // The beginning and [SEP]: the text without its last letter.
  const auto [same_status, same] = Embed({{"input", text.substr(0, text.size() - 2)}});
  EXPECT_EQ(cut["data"], same["data"]);
  const auto [few_status, few] = Embed({{"input", text}, {"truncate_prompt_tokens", 4}});
  EXPECT_EQ(few["usage"]["prompt_tokens"], 4);
  Refused({{"input", "a"}, {"truncate_prompt_tokens", 17}}, 400, "truncate_prompt_tokens", "16");
}

TEST_F(LocalEmbeddingsTest, MistakesAreNamed) {
  Refused({{"input", {"a", ""}}}, 400, "input", "input 1 is empty");
  Refused({{"input", {120}}}, 400, "input", "0 to 119");
  Refused({{"input", {{2, 3}, json::array()}}}, 400, "input", "no tokens");
  Refused({{"input", "a"}, {"encoding_format", "int8"}}, 400, "encoding_format", "base64");
  Refused({{"input", "a"}, {"model", "other"}}, 404, "model", "has 'mini'");
  const auto [status, chat] =
      Post(gateway_, "/v1/chat/completions",
           {{"model", "mini"}, {"messages", {{{"role", "user"}, {"content", "hi"}}}}});
  EXPECT_EQ(status, 400);
  EXPECT_THAT(chat["error"]["message"].get<std::string>(), HasSubstr("/v1/embeddings"));
}

TEST_F(LocalEmbeddingsTest, LargeRequestsAreTheSameAndLeaveItIdle) {
  json texts = json::array();
  for (int i = 0; i < 700; ++i) texts.push_back(i % 2 == 0 ? "a b c d e f g" : "h i j k");
  const auto [status, answer] = Embed({{"input", texts}});  // 7 KB of text, 33,600 numbers
  ASSERT_EQ(status, 200);
  ASSERT_EQ(answer["data"].size(), 700u);
  EXPECT_EQ(answer["data"][0]["embedding"], answer["data"][698]["embedding"]);
  EXPECT_EQ(answer["data"][1]["embedding"], answer["data"][699]["embedding"]);
  for (int i = 0; i < 500; ++i) texts.push_back("l m n o p q r");  // past what is tokenized inline
  const auto [more_status, more] = Embed({{"input", texts}});
  ASSERT_EQ(more_status, 200);
  EXPECT_EQ(more["data"][0]["embedding"], answer["data"][0]["embedding"]);
  EXPECT_TRUE(ProbeModel(*upstream_, "mini", true, std::chrono::seconds(60)));
  EXPECT_FALSE(ProbeModel(*upstream_, "mini", false, std::chrono::seconds(60)));
  const Nanos patience = net::MonotonicNow() + std::chrono::seconds(60);
  while (!upstream_->Idle() && net::MonotonicNow() < patience) std::this_thread::yield();
  EXPECT_TRUE(upstream_->Idle()) << "the last answer is only a moment ahead";
}

TEST_F(LocalEmbeddingsTest, KeysLimitsAndUseAreThoseOfOtherRequests) {
  auto access = std::make_shared<Access>();
  access->keys.push_back(
      std::make_shared<const AccessKey>(AccessKey{"web", "search", {}, false, HashKey("web")}));
  access->keys.push_back(std::make_shared<const AccessKey>(
      AccessKey{"chat", "chat", {"other"}, false, HashKey("chat")}));
  access->tenants["search"].requests_per_minute = 1;
  access->prices["mini"] = {1000, 1000, 2000};
  const auto ledger = *QuotaLedger::Create(
      nullptr, [] { return std::chrono::system_clock::time_point(std::chrono::seconds(90)); });
  Gateway gateway({"1", access, nullptr, ledger, nullptr});
  gateway.SetUpstream(upstream_);
  gateway.metrics().AddSource([&](Metrics::Families& out) {
    AppendTenantFamilies(*ledger, out);
    AppendEmbedderFamilies(embedder_->Stats(), out, "mini");
  });
  const json body = {{"model", "mini"}, {"input", "a b c"}};
  EXPECT_EQ(Post(gateway, "/v1/embeddings", body).first, 401);
  EXPECT_EQ(Post(gateway, "/v1/embeddings", body, "chat").first, 403);
  EXPECT_EQ(Post(gateway, "/v1/embeddings", body, "web").first, 200);
  EXPECT_EQ(Post(gateway, "/v1/embeddings", body, "web").first, 429);
  const std::string text = gateway.metrics().Text();
  EXPECT_THAT(
      text,
      HasSubstr("tare_tenant_tokens_total{tenant=\"search\",model=\"mini\",kind=\"prompt\"} 5"));
  EXPECT_THAT(text, HasSubstr("tare_embedding_steps_total{model=\"mini\"}"));
}

// Servers behind the router.
class RemoteEmbeddingsTest : public RouterTest {
 protected:
  std::shared_ptr<Collected> Embed() {
    api::ChatRequest request;
    request.model = "m";
    request.embeddings.emplace().texts = {"x"};
    request.max_tokens = 0;
    request.wire_body = R"({"model":"m","input":["x"],"custom":[1,2]})";
    auto sink = std::make_shared<Collected>();
    auto call = router_->Chat(std::move(request), sink);
    EXPECT_TRUE(call);
    EXPECT_TRUE(sink->Wait()) << "hangs";
    return sink;
  }
  static bool Vectors(net::RawConnection& connection, int) {
    return Status(
        connection, 200,
        R"({"object":"list","data":[{"index":0,"embedding":[0.125,1e-9,0.10,0.12345678901234567891]}],)"
        R"("model":"org/m","usage":{"prompt_tokens":3,"total_tokens":3}})");
  }
};

TEST_F(RemoteEmbeddingsTest, PassThroughWithTheUpstreamsName) {
  Start(Vectors);
  const auto sink = Embed();
  ASSERT_FALSE(sink->error) << sink->error->message;
  EXPECT_EQ(sink->answered_by, "m");
  EXPECT_EQ(sink->text, R"({"index":0,"embedding":[0.125,1e-9,0.10,0.12345678901234567891]})");
  EXPECT_EQ(sink->usage.prompt_tokens, 3);
  EXPECT_EQ(sink->usage.completion_tokens, 0);
  const std::string request = primary_->last_request();
  EXPECT_THAT(request, HasSubstr("POST /v1/embeddings "));
  EXPECT_THAT(request, HasSubstr(R"({"model":"org/m","input":["x"],"custom":[1,2]})"));
}

TEST_F(RemoteEmbeddingsTest, AFailingServerIsReplacedAndAMistakeIsNot) {
  Start([](net::RawConnection& c, int) { return Status(c, 500, "{}"); }, Vectors);
  const auto sink = Embed();
  ASSERT_FALSE(sink->error) << sink->error->message;
  EXPECT_EQ(sink->answered_by, "big");
  router_.reset();
  Start([](net::RawConnection& c, int) { return Status(c, 200, R"({"data":[]})"); }, Vectors);
  EXPECT_FALSE(Embed()->error) << "an answer without vectors is a failure too";
  router_.reset();
  Start([](net::RawConnection& c, int) { return Status(c, 400, kPolicyError); }, Vectors);
  const auto refused = Embed();
  ASSERT_TRUE(refused->error);
  EXPECT_EQ(fallback_->requests(), 0);
}

}  // namespace
}  // namespace tare::gateway
