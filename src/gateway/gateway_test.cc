#include "gateway/gateway.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "api/wire_error.h"
#include "base/files.h"
#include "gateway/api_keys.h"
#include "net/raw_client.h"

namespace tare::gateway {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// An upstream whose answers the test plays.
class FakeUpstream final : public Upstream {
 public:
  struct Started {
    api::ChatRequest request;
    std::shared_ptr<ChatSink> sink;
    bool cancelled = false;
  };
  class Call final : public ChatCall {
   public:
    explicit Call(std::shared_ptr<Started> started) : started_(std::move(started)) {}
    ~Call() override { Cancel(); }
    void Cancel() override { started_->cancelled = true; }

   private:
    std::shared_ptr<Started> started_;
  };

  std::vector<ModelInfo> Models() const override { return {{"m/1", 42, 128, ""}}; }
  bool Ready() const override { return ready; }
  Result<std::unique_ptr<ChatCall>> Chat(api::ChatRequest request,
                                         std::shared_ptr<ChatSink> sink) override {
    if (refusal) return tl::unexpected(*refusal);
    last = std::make_shared<Started>(Started{std::move(request), std::move(sink)});
    return std::make_unique<Call>(last);
  }
  Result<std::vector<TokenId>> Tokenize(const api::ChatRequest& request, bool) const override {
    return std::vector<TokenId>(request.prompt.size(), TokenId(7));
  }
  bool Feedback(const std::string& request_id, int label) override {
    labels.emplace_back(request_id, label);
    return request_id == "r-1";  // the only answer it knows
  }

  void LoadAdapter(api::LoadAdapterRequest request, std::function<void(Status)> done) override {
    adapters.push_back(request.name + "=" + request.folder + (request.replace ? "!" : ""));
    load_done = std::move(done);
  }
  std::string AdapterBase(const std::string& model) const override {
    return model == "m/1:sql" ? "m/1" : "";
  }

  bool ready = true;
  std::vector<std::string> adapters;
  std::function<void(Status)> load_done;
  std::optional<Error> refusal;
  std::shared_ptr<Started> last;
  std::vector<std::pair<std::string, int>> labels;
};

std::shared_ptr<const Access> AccessOf(std::vector<AccessKey> keys) {
  auto access = std::make_shared<Access>();
  for (AccessKey& key : keys) {
    access->keys.push_back(std::make_shared<const AccessKey>(std::move(key)));
  }
  return access;
}

// What a client would have got.
class FakeWriter final : public net::ResponseWriter {
 public:
  void Send(int code, const net::HttpHeaders& head, std::string text) override {
    status = code;
    headers = head;
    body = std::move(text);
    ended = true;
  }
  void StartStream(int code, const net::HttpHeaders& head) override {
    status = code;
    headers = head;
  }
  bool Write(std::string_view piece) override {
    body.append(piece);
    return true;
  }
  void End() override { ended = true; }
  void Abort() override { aborted = true; }
  void OnClose(std::function<void()> callback) override { on_close = std::move(callback); }
  bool closed() const override { return false; }

  std::string Header(std::string_view name) const {
    const std::string* value = net::FindHeader(headers, name);
    return value != nullptr ? *value : "";
  }
  json Json() const { return json::parse(body); }

  int status = 0;
  net::HttpHeaders headers;
  std::string body;
  bool ended = false;
  bool aborted = false;
  std::function<void()> on_close;
};

class GatewayTest : public ::testing::Test {
 protected:
  GatewayTest() : gateway_(Options()) { gateway_.SetUpstream(upstream_); }

  GatewayOptions Options() {
    GatewayOptions options;
    options.version = "1.2.3";
    options.clock = &clock_;
    return options;
  }

  std::shared_ptr<FakeWriter> Send(std::string method, std::string target, std::string body = "",
                                   net::HttpHeaders headers = {}) {
    return SendTo(gateway_, std::move(method), std::move(target), std::move(body),
                  std::move(headers));
  }
  std::shared_ptr<FakeWriter> SendTo(Gateway& gateway, std::string method, std::string target,
                                     std::string body = "", net::HttpHeaders headers = {}) {
    net::HttpRequest request;
    request.method = std::move(method);
    request.target = std::move(target);
    request.body = std::move(body);
    request.headers = std::move(headers);
    request.received = clock_.Now();
    request.peer = peer_;
    auto writer = std::make_shared<FakeWriter>();
    gateway.Handle(std::move(request), writer);
    return writer;
  }
  std::shared_ptr<FakeWriter> Chat(const json& extra = json::object()) {
    json body = {{"model", "m/1"}, {"messages", {{{"role", "user"}, {"content", "hi"}}}}};
    body.update(extra);
    return Send("POST", "/v1/chat/completions", body.dump());
  }

  ManualClock clock_;
  std::string peer_ = "127.0.0.1";
  std::shared_ptr<FakeUpstream> upstream_ = std::make_shared<FakeUpstream>();
  Gateway gateway_;
};

TEST_F(GatewayTest, AnswersAChat) {
  auto writer = Chat();
  EXPECT_FALSE(writer->ended) << "no thread waits for the upstream";
  auto& sink = *upstream_->last->sink;
  sink.OnChunk({0, "Hel", 1, {}, api::FinishReason::kNone});
  sink.OnChunk({0, "lo", 1, {}, api::FinishReason::kStop});
  sink.OnDone({3, 2, 1});
  EXPECT_EQ(writer->status, 200);
  const json answer = writer->Json();
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "Hello");
  EXPECT_EQ(answer["model"], "m/1");
  EXPECT_THAT(answer["id"].get<std::string>(), HasSubstr("chatcmpl-"));
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 3);
}

TEST_F(GatewayTest, LoadsAnAdapterWithoutWaiting) {
  const char* path = "/v1/load_lora_adapter";
  auto writer = Send("POST", path, R"({"lora_name":"sql","lora_path":"/a","load_inplace":true})");
  EXPECT_FALSE(writer->ended);
  EXPECT_THAT(upstream_->adapters, ::testing::ElementsAre("sql=/a!"));
  upstream_->load_done({});
  EXPECT_EQ(writer->status, 200);
  EXPECT_EQ(writer->body, "Success: LoRA adapter 'sql' added successfully.");
  writer = Send("POST", path, R"({"lora_name":"sql","lora_path":"/a"})");
  upstream_->load_done(Fail(ErrorKind::kNotFound, "nothing there"));
  EXPECT_EQ(writer->status, 404);
  EXPECT_EQ(Send("POST", path, R"({"lora_name":"sql"})")->Json()["error"]["param"], "lora_path");
  EXPECT_EQ(Send("POST", path, R"({"lora_name":"","lora_path":"/a"})")->status, 400);
  EXPECT_EQ(Send("POST", "/v1/unload_lora_adapter", R"({"lora_name":"x"})")->status, 404);
  EXPECT_EQ(Send("POST", "/v1/unload_lora_adapter", R"({"lora_name":3})")->status, 400);
}

TEST_F(GatewayTest, OnlyTheOperatorLoadsAdapters) {
  const std::string body = R"({"lora_name":"sql","lora_path":"/a"})";
  const auto load = [&](Gateway& gateway, const char* key) {
    net::HttpHeaders headers;
    if (key != nullptr) headers.push_back({"Authorization", std::string("Bearer ") + key});
    const auto writer = SendTo(gateway, "POST", "/v1/load_lora_adapter", body, headers);
    return writer->ended ? writer->status : 0;  // 0: taken
  };
  EXPECT_EQ(load(gateway_, nullptr), 0);
  for (const char* other : {"10.0.0.7", "::ffff:10.0.0.7", "fe80::1"}) {
    peer_ = other;
    EXPECT_EQ(load(gateway_, nullptr), 403) << other;
  }
  for (const char* same : {"127.0.0.1", "::1", "::ffff:127.0.0.1"}) {
    peer_ = same;
    EXPECT_EQ(load(gateway_, nullptr), 0) << same;
  }
  EXPECT_EQ(
      SendTo(gateway_, "POST", "/v1/load_lora_adapter", body, {{"Origin", "http://some.page"}})
          ->status,
      403);
  AccessKey client;
  client.hash = HashKey("sk-client");
  gateway_.SetAccess(AccessOf({client}), nullptr);
  EXPECT_EQ(load(gateway_, "sk-client"), 403);
  GatewayOptions options = Options();
  options.operator_key = HashKey("sk-admin");
  Gateway guarded(options);
  guarded.SetUpstream(upstream_);
  EXPECT_EQ(load(guarded, nullptr), 401);
  EXPECT_EQ(load(guarded, "sk-client"), 401);
  EXPECT_EQ(load(guarded, "sk-admin"), 0);
  peer_ = "10.0.0.7";
  EXPECT_EQ(load(guarded, "sk-admin"), 0);
}

TEST_F(GatewayTest, StreamsAChat) {
  auto writer = Chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
  auto& sink = *upstream_->last->sink;
  sink.OnChunk({0, "Hel", 1, {}, api::FinishReason::kNone});
  EXPECT_EQ(writer->Header("Content-Type"), "text/event-stream");
  EXPECT_THAT(writer->body, HasSubstr("\"role\":\"assistant\""));
  EXPECT_THAT(writer->body, HasSubstr("\"Hel\""));
  EXPECT_FALSE(writer->ended);
  sink.OnChunk({0, "lo", 1, {}, api::FinishReason::kStop});
  sink.OnDone({3, 2, 0});
  EXPECT_TRUE(writer->ended);
  EXPECT_THAT(writer->body, HasSubstr("\"total_tokens\":5"));
  EXPECT_THAT(writer->body, ::testing::EndsWith("data: [DONE]\n\n"));
}

TEST_F(GatewayTest, AnswersACompletion) {
  auto writer = Send("POST", "/v1/completions", R"({"model":"m/1","prompt":"x","max_tokens":3})");
  EXPECT_EQ(upstream_->last->request.prompt, "x");
  upstream_->last->sink->OnChunk({0, "abc", 3, {}, api::FinishReason::kLength});
  upstream_->last->sink->OnDone({1, 3, 0});
  EXPECT_EQ(writer->Json()["choices"][0]["text"], "abc");
  EXPECT_EQ(writer->Json()["choices"][0]["finish_reason"], "length");
}

TEST_F(GatewayTest, ErrorsBeforeTheFirstChunkHaveAStatus) {
  auto writer = Chat({{"stream", true}});
  upstream_->last->sink->OnError(
      {ErrorKind::kInvalidArgument, "too long", "messages", api::kContextLengthExceeded});
  EXPECT_EQ(writer->status, 400);
  EXPECT_EQ(writer->Json()["error"]["code"], "context_length_exceeded");
}

TEST_F(GatewayTest, ACutStreamIsNeverASuccess) {
  auto writer = Chat({{"stream", true}});
  upstream_->last->sink->OnChunk({0, "Hel", 1, {}, api::FinishReason::kNone});
  upstream_->last->sink->OnError({ErrorKind::kNetwork, "the server left", "", ""});
  EXPECT_TRUE(writer->ended);
  EXPECT_THAT(writer->body, HasSubstr("stream_interrupted"));
  EXPECT_THAT(writer->body, Not(HasSubstr("[DONE]")));
  EXPECT_THAT(gateway_.metrics().Text(), HasSubstr("code=\"502\""));
}

TEST_F(GatewayTest, ACancelledAnswerIsNeverASuccess) {
  auto whole = Chat();
  upstream_->last->sink->OnChunk({0, "Hel", 1, {}, api::FinishReason::kCancelled});
  upstream_->last->sink->OnDone({});
  EXPECT_EQ(whole->status, 503);
  auto stream = Chat({{"stream", true}});
  upstream_->last->sink->OnChunk({0, "Hel", 1, {}, api::FinishReason::kCancelled});
  upstream_->last->sink->OnDone({});
  EXPECT_THAT(stream->body, Not(HasSubstr("[DONE]")));
  EXPECT_THAT(stream->body, HasSubstr("shutting down"));
}

TEST_F(GatewayTest, CancelsWhenTheClientLeaves) {
  auto writer = Chat();
  auto started = upstream_->last;
  EXPECT_FALSE(started->cancelled);
  writer->on_close();
  EXPECT_TRUE(started->cancelled);
  started->sink->OnDone({});  // may still come
  EXPECT_THAT(gateway_.metrics().Text(), HasSubstr("tare_requests_total{code=\"499\","));
  EXPECT_THAT(gateway_.metrics().Text(), Not(HasSubstr("code=\"200\"")));
  EXPECT_THAT(gateway_.metrics().Text(), HasSubstr("tare_e2e_request_latency_seconds_count 0"));
}

TEST_F(GatewayTest, NamesTheModelThatAnswers) {
  auto writer = Chat({{"stream", true}});
  EXPECT_THAT(upstream_->last->request.wire_body, HasSubstr("\"messages\""));
  upstream_->last->sink->OnRoute("fallback");
  upstream_->last->sink->OnChunk({0, "x", 1, {}, api::FinishReason::kStop});
  upstream_->last->sink->OnDone({});
  EXPECT_THAT(writer->body, HasSubstr("\"model\":\"fallback\""));
  EXPECT_THAT(writer->body, Not(HasSubstr("\"model\":\"m/1\"")));
}

TEST_F(GatewayTest, PassesRefusalsOn) {
  upstream_->refusal = Error{ErrorKind::kNotFound, "no such model", "model", api::kModelNotFound};
  auto writer = Chat();
  EXPECT_EQ(writer->status, 404);
  EXPECT_EQ(writer->Json()["error"]["code"], "model_not_found");
  upstream_->refusal = Error{ErrorKind::kUnavailable, "queue full", "", ""};
  writer = Chat();
  EXPECT_EQ(writer->status, 503);
  EXPECT_NE(writer->Header("Retry-After"), "");
}

TEST_F(GatewayTest, NamesWrongParameters) {
  auto writer = Chat({{"temperature", -1}});
  EXPECT_EQ(writer->status, 400);
  EXPECT_EQ(writer->Json()["error"]["param"], "temperature");
  EXPECT_EQ(Send("POST", "/v1/chat/completions", "{")->status, 400);
}

TEST_F(GatewayTest, KnowsItsPathsAndMethods) {
  EXPECT_EQ(Send("GET", "/nothing")->status, 404);
  EXPECT_EQ(Send("GET", "/nothing\xFF")->Json()["error"]["type"], "not_found_error");
  auto writer = Send("GET", "/v1/chat/completions");
  EXPECT_EQ(writer->status, 405);
  EXPECT_EQ(writer->Header("Allow"), "POST");
  EXPECT_EQ(Send("GET", "/version")->Json()["version"], "1.2.3");
  EXPECT_EQ(Send("HEAD", "/health?x=1")->status, 200);
}

TEST_F(GatewayTest, ListsModels) {
  EXPECT_EQ(Send("GET", "/v1/models")->Json()["data"][0]["id"], "m/1");
  EXPECT_EQ(Send("GET", "/v1/models/m/1")->Json()["max_model_len"], 128);
  EXPECT_EQ(Send("GET", "/v1/models/m2")->Json()["error"]["code"], "model_not_found");
}

TEST_F(GatewayTest, Tokenizes) {
  const json answer = Send("POST", "/tokenize", R"({"model":"m/1","prompt":"abc"})")->Json();
  EXPECT_EQ(answer["count"], 3);
  EXPECT_EQ(answer["tokens"], json({7, 7, 7}));
  EXPECT_EQ(answer["max_model_len"], 128);
  EXPECT_EQ(Send("POST", "/detokenize", R"({"model":"m/1","tokens":[1]})")->status, 400);
  const json refused = Send("POST", "/tokenize",
                            R"({"model":"m/1","messages":[{"role":"user","content":"a"}],)"
                            R"("add_generation_prompt":false})")
                           ->Json();
  EXPECT_EQ(refused["error"]["param"], "add_generation_prompt");
}

TEST_F(GatewayTest, IsNotReadyBeforeItsModelAndWhileDraining) {
  Gateway empty({"1", nullptr, &clock_});
  EXPECT_EQ(SendTo(empty, "GET", "/health")->status, 200);
  auto ready = SendTo(empty, "GET", "/ready");
  EXPECT_EQ(ready->status, 503);
  EXPECT_NE(ready->Header("Retry-After"), "");
  EXPECT_EQ(SendTo(empty, "GET", "/v1/models")->status, 503);
  EXPECT_EQ(Send("GET", "/ready")->status, 200);
  auto running = Chat();
  gateway_.BeginDrain();
  EXPECT_EQ(Send("GET", "/ready")->status, 503);
  EXPECT_EQ(Chat()->status, 503);
  upstream_->last->sink->OnDone({});
  EXPECT_EQ(running->status, 200) << "what runs is finished";
}

TEST_F(GatewayTest, KeysGuardTheApiButNotTheProbes) {
  Gateway gateway({"1", AccessOf({{"k", "default", {}, false, HashKey("secret")}}), &clock_});
  gateway.SetUpstream(upstream_);
  for (const net::HttpHeaders& headers :
       {net::HttpHeaders{}, net::HttpHeaders{{"Authorization", "Bearer wrong"}},
        net::HttpHeaders{{"Authorization", "secret"}},
        net::HttpHeaders{{"Authorization", "Bearer "}}}) {
    auto writer = SendTo(gateway, "GET", "/v1/models", "", headers);
    EXPECT_EQ(writer->status, 401);
    EXPECT_EQ(writer->Json()["error"]["code"], "invalid_api_key");
  }
  EXPECT_EQ(SendTo(gateway, "GET", "/v1/models", "", {{"authorization", "bearer secret"}})->status,
            200);
  EXPECT_EQ(SendTo(gateway, "GET", "/health")->status, 200);
  EXPECT_EQ(SendTo(gateway, "GET", "/metrics")->status, 200);
}

TEST_F(GatewayTest, EchoesPlainRequestIds) {
  EXPECT_EQ(Send("GET", "/health", "", {{"X-Request-Id", "abc-1"}})->Header("X-Request-Id"),
            "abc-1");
  EXPECT_NE(Send("GET", "/health", "", {{"X-Request-Id", "a\r\nb"}})->Header("X-Request-Id"),
            "a\r\nb");
}

TEST_F(GatewayTest, MeasuresLatenciesOnItsClock) {
  auto writer = Chat();
  auto& sink = *upstream_->last->sink;
  clock_.Advance(std::chrono::milliseconds(30));
  sink.OnChunk({0, "a", 1, {}, api::FinishReason::kNone});
  clock_.Advance(std::chrono::milliseconds(4));
  sink.OnChunk({0, "", 0, {}, api::FinishReason::kNone});
  sink.OnChunk({0, "b", 1, {}, api::FinishReason::kStop});
  sink.OnDone({5, 2, 0});
  const std::string text = gateway_.metrics().Text();
  EXPECT_THAT(text, HasSubstr("tare_time_to_first_token_seconds_sum 0.03"));
  EXPECT_THAT(text, HasSubstr("tare_inter_token_latency_seconds_sum 0.004"));
  EXPECT_THAT(text, HasSubstr("tare_inter_token_latency_seconds_count 1"));
  EXPECT_THAT(text, HasSubstr("tare_e2e_request_latency_seconds_sum 0.034"));
  EXPECT_THAT(text, HasSubstr("tare_tokens_total{kind=\"prompt\"} 5"));
  EXPECT_THAT(text,
              HasSubstr("tare_requests_total{code=\"200\",endpoint=\"/v1/chat/completions\"} 1"));
}

TEST(Metrics, ShowsTheEngineAndTheServer) {
  Metrics metrics;
  engine::EngineStats stats;
  stats.running = 3;
  stats.pages_total = 10;
  stats.pages_used = 4;
  stats.steps = 2;
  stats.step_seconds_histogram[0] = 1;
  stats.step_seconds_histogram.back() = 1;
  stats.experts = engine::Summarize({.first_layer = 1,
                                     .layers = 2,
                                     .experts = 2,
                                     .tokens = {6, 2, 4, 4},
                                     .touched = 7,
                                     .present = 8,
                                     .step_touched = 3,
                                     .step_present = 4});
  metrics.AddSource([&](Metrics::Families& out) {
    AppendEngineFamilies(stats, out);
    AppendServerFamilies({}, out);
    AppendUpstreamFamilies({{.name = "up",
                             .attempts = 3,
                             .successes = 2,
                             .failures = 1,
                             .retries = 1,
                             .continued = 2,
                             .breaker_open = true,
                             .watch = {}}},
                           out);
  });
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("\ntare_requests_running 3\n"));
  EXPECT_THAT(text, HasSubstr("tare_kv_pages{state=\"free\"} 6"));
  EXPECT_THAT(text, HasSubstr("tare_engine_step_seconds_bucket{le=\"0.001\"} 1"));
  EXPECT_THAT(text, HasSubstr("tare_engine_step_seconds_bucket{le=\"+Inf\"} 2"));
  EXPECT_THAT(text, HasSubstr("# TYPE tare_http_connections gauge"));
  EXPECT_THAT(text, HasSubstr("tare_expert_tokens_total{expert=\"0\"} 10"));
  EXPECT_THAT(text, HasSubstr("tare_expert_imbalance_ratio{layer=\"1\"} 1.5"));
  EXPECT_THAT(text, HasSubstr("tare_expert_entropy_ratio{layer=\"2\"} 1"));
  EXPECT_THAT(text, HasSubstr("tare_expert_touched_ratio 0.75"));
  EXPECT_THAT(text, HasSubstr("tare_experts_touched_total 7"));
  EXPECT_THAT(text,
              HasSubstr("tare_upstream_attempts_total{upstream=\"up\",outcome=\"failure\"} 1"));
  EXPECT_THAT(text, HasSubstr("tare_upstream_continued_total{upstream=\"up\"} 2"));
  EXPECT_THAT(text, HasSubstr("tare_upstream_breaker_open{upstream=\"up\"} 1"));
}

TEST_F(GatewayTest, AKeySaysWhichModelsAndWhichTier) {
  Gateway gateway({"1",
                   AccessOf({{"web", "a", {"m/1"}, false, HashKey("web")},
                             {"night", "a", {"m/1"}, true, HashKey("night")},
                             {"other", "a", {"m/2"}, false, HashKey("other")}}),
                   &clock_});
  gateway.SetUpstream(upstream_);
  const auto ask = [&](const char* key, net::HttpHeaders more = {}) {
    more.push_back({"Authorization", std::string("Bearer ") + key});
    return SendTo(gateway, "POST", "/v1/chat/completions",
                  R"({"model":"m/1","messages":[{"role":"user","content":"hi"}]})", more);
  };
  auto refused = ask("other");
  EXPECT_EQ(refused->status, 403);
  EXPECT_EQ(refused->Json()["error"]["code"], "model_not_allowed");
  const auto tier_of = [&](const char* key, net::HttpHeaders more = {}) {
    const auto asked = ask(key, std::move(more));
    asked->on_close();  // leaves without waiting for the answer
    return upstream_->last->request.tier;
  };
  EXPECT_EQ(tier_of("web"), api::Tier::kInteractive);
  EXPECT_EQ(tier_of("web", {{"x-tare-tier", "batch"}}), api::Tier::kBatch);
  EXPECT_EQ(tier_of("night", {{"X-Tare-Tier", "interactive"}}), api::Tier::kBatch)
      << "a client cannot promote itself";
  gateway.SetAccess(AccessOf({{"new", "a", {}, false, HashKey("new")}}), nullptr);
  EXPECT_EQ(ask("web")->status, 401);
}

TEST_F(GatewayTest, HoldsTenantsToTheirLimitsAndCountsTheirUse) {
  auto access = std::make_shared<Access>();
  access->keys.push_back(
      std::make_shared<const AccessKey>(AccessKey{"web", "search", {}, false, HashKey("web")}));
  access->tenants["search"].requests_per_minute = 2;
  access->prices["m/1"] = {1000, 1000, 2000};
  const auto ledger = *QuotaLedger::Create(
      nullptr, [] { return std::chrono::system_clock::time_point(std::chrono::seconds(90)); });
  Gateway gateway({"1", access, &clock_, ledger, nullptr});
  gateway.SetUpstream(upstream_);
  gateway.metrics().AddSource([&](Metrics::Families& out) { AppendTenantFamilies(*ledger, out); });
  const auto ask = [&] {
    return SendTo(gateway, "POST", "/v1/chat/completions",
                  R"({"model":"m/1","messages":[{"role":"user","content":"hi"}]})",
                  {{"Authorization", "Bearer web"}});
  };
  ask();
  upstream_->last->sink->OnError({ErrorKind::kNetwork, "failed", "", ""});
  ask();
  upstream_->last->sink->OnChunk({0, "x", 1, {}, api::FinishReason::kStop});
  upstream_->last->sink->OnDone({10, 5, 0});
  auto left = ask();
  upstream_->last->sink->OnChunk({0, "x", 1, {}, api::FinishReason::kNone});
  auto refused = ask();
  EXPECT_EQ(refused->status, 429) << "a failed call costs nothing, two others are the limit";
  EXPECT_EQ(refused->Json()["error"]["code"], "rate_limit_exceeded");
  EXPECT_EQ(refused->Header("Retry-After"), "30");
  left->on_close();
  const std::string text = gateway.metrics().Text();
  EXPECT_THAT(text, HasSubstr("tare_tenant_requests_total{tenant=\"search\",model=\"m/1\"} 2"));
  EXPECT_THAT(
      text,
      HasSubstr("tare_tenant_tokens_total{tenant=\"search\",model=\"m/1\",kind=\"output\"} 6"));
  EXPECT_THAT(text, HasSubstr("tare_quota_refused_total{tenant=\"search\","
                              "limit=\"requests_per_minute\"} 1"));
}

TEST_F(GatewayTest, AnAdapterCostsWhatItsModelDoes) {
  auto access = std::make_shared<Access>();
  access->prices["m/1"] = {1000, 1000, 2000};
  const auto ledger = *QuotaLedger::Create(nullptr);
  Gateway gateway({"1", access, &clock_, ledger, nullptr});
  gateway.SetUpstream(upstream_);
  gateway.metrics().AddSource([&](Metrics::Families& out) { AppendTenantFamilies(*ledger, out); });
  SendTo(gateway, "POST", "/v1/chat/completions",
         R"({"model":"m/1:sql","messages":[{"role":"user","content":"hi"}]})");
  upstream_->last->sink->OnChunk({0, "x", 5, {}, api::FinishReason::kStop});
  upstream_->last->sink->OnDone({10, 5, 0});
  EXPECT_THAT(gateway.metrics().Text(),
              HasSubstr("tare_tenant_cost_usd_total{tenant=\"default\",model=\"m/1:sql\"} 2e-05"));
}

TEST_F(GatewayTest, TakesFeedback) {
  EXPECT_EQ(Send("POST", "/v1/feedback", R"({"id":"r-1","label":1})")->body, R"({"counted":true})");
  EXPECT_EQ(Send("POST", "/v1/feedback", R"({"id":"r-2","label":-1})")->body,
            R"({"counted":false})");
  EXPECT_EQ(upstream_->labels.at(1).second, -1);
  EXPECT_EQ(Send("POST", "/v1/feedback", R"({"id":"r-1","label":2})")->status, 400);
  EXPECT_EQ(Send("POST", "/v1/feedback", R"({"label":1})")->Json()["error"]["param"], "id");
}

TEST_F(GatewayTest, LogsEveryAnswer) {
  std::string pattern = (std::filesystem::temp_directory_path() / "tare-alog-XXXXXX").string();
  const std::filesystem::path dir = ::mkdtemp(pattern.data());
  auto log = *AccessLog::Open((dir / "access.log").string());
  {
    Gateway gateway({"1", nullptr, &clock_, nullptr, log});
    gateway.SetUpstream(upstream_);
    SendTo(gateway, "GET", "/health");
    SendTo(gateway, "POST", "/v1/chat/completions",
           R"({"model":"m/1","messages":[{"role":"user","content":"hi"}]})",
           {{"X-Request-Id", "r-7"}});
    clock_.Advance(std::chrono::milliseconds(30));
    upstream_->last->sink->OnRoute("big");
    upstream_->last->sink->OnChunk({0, "x", 1, {}, api::FinishReason::kStop});
    upstream_->last->sink->OnDone({10, 1, 0});
    SendTo(gateway, "POST", "/v1/chat/completions", "{");
    upstream_->last.reset();
  }
  log.reset();
  std::istringstream lines(*ReadFile(dir / "access.log"));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line)["path"], "/health");
  ASSERT_TRUE(std::getline(lines, line));
  const json chat = json::parse(line);
  EXPECT_EQ(chat["id"], "r-7");
  EXPECT_EQ(chat["ttft_ms"], 30.0);
  EXPECT_EQ(chat["answered_by"], "big");
  EXPECT_EQ(chat["prompt_tokens"], 10);
  EXPECT_EQ(chat["tenant"], "default");
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line)["status"], 400);
  EXPECT_EQ(json::parse(line)["error"], "invalid_argument");
  std::filesystem::remove_all(dir);
}

TEST_F(GatewayTest, TellsWhenToComeBack) {
  auto writer = Chat();
  upstream_->last->sink->OnRetryAfter(std::chrono::milliseconds(6200));
  upstream_->last->sink->OnError({ErrorKind::kUnavailable, "full", "", api::kOverloaded});
  EXPECT_EQ(writer->status, 503);
  EXPECT_EQ(writer->Header("Retry-After"), "7");
}

TEST(Metrics, TwoModelsShareAFamily) {
  Metrics metrics;
  engine::EngineStats stats;
  metrics.AddSource([&](Metrics::Families& out) { AppendEngineFamilies(stats, out, "a"); });
  metrics.AddSource([&](Metrics::Families& out) { AppendEngineFamilies(stats, out, "b"); });
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("tare_requests_running{model=\"a\"} 0\n"
                              "tare_requests_running{model=\"b\"} 0\n"));
  EXPECT_EQ(text.find("# TYPE tare_kv_pages gauge"), text.rfind("# TYPE tare_kv_pages gauge"));
}

TEST(ApiKeys, TakesPlainAndHashedKeys) {
  // printf secret | sha256sum
  const auto keys = ParseApiKeys(
      "# a comment\n\n  sk-plain \r\n"
      "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n");
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_THAT(*keys, ::testing::ElementsAre(HashKey("sk-plain"), HashKey("secret")));
}

TEST(ApiKeys, NamesTheWrongLine) {
  EXPECT_THAT(ParseApiKeys("a\nsha256:12\n").error().message, HasSubstr("line 2"));
  EXPECT_THAT(ParseApiKeys("a b\n").error().message, HasSubstr("line 1"));
  EXPECT_THAT(ParseApiKeys("# nothing\n").error().message, HasSubstr("no key"));
  EXPECT_THAT(LoadApiKeys("/nonexistent/keys").error().message, HasSubstr("/nonexistent/keys"));
}

// The whole way over a real connection: a client that leaves cancels its call.
TEST(GatewayOverHttp, DisconnectCancels) {
  auto upstream = std::make_shared<FakeUpstream>();
  Gateway gateway({"1", nullptr, nullptr});
  gateway.SetUpstream(upstream);
  std::mutex mutex;
  std::condition_variable changed;
  int handled = 0;
  auto server = net::HttpServer::Start({}, [&](auto request, auto writer) {
    gateway.Handle(std::move(request), std::move(writer));
    std::lock_guard lock(mutex);
    ++handled;
    changed.notify_all();
  });
  ASSERT_TRUE(server) << server.error().message;
  net::RawClient client((*server)->port());
  const std::string body =
      R"({"model":"m/1","stream":true,"messages":[{"role":"user","content":"x"}]})";
  client.Send(
      fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n"
                  "\r\n{}",
                  body.size(), body));
  {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(10), [&] { return handled == 1; }));
  }
  upstream->last->sink->OnChunk({0, "first", 1, {}, api::FinishReason::kNone});
  EXPECT_THAT(client.ReadUntil("first"), HasSubstr("first"));
  client.Close();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while ((*server)->stats().disconnects == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_TRUE((*server)->Drain(std::chrono::seconds(10)));
  EXPECT_TRUE(upstream->last->cancelled);
}

}  // namespace
}  // namespace tare::gateway
