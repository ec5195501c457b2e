#include "gateway/gateway.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <random>
#include <utility>

#include "api/json_text.h"
#include "api/request_reader.h"
#include "api/wire_error.h"
#include "gateway/chat_exchange.h"

namespace tare::gateway {

namespace {

constexpr std::string_view kModelPath = "/v1/models/";
constexpr std::size_t kMaxRequestId = 128;
constexpr std::size_t kMaxWaitingForLease = 4096;
constexpr std::string_view kTierHeader = "X-Tare-Tier";
constexpr const char* kPlainText = "text/plain; charset=utf-8";

// Tells this process's answers from those of others in one log.
std::string RandomPrefix() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

// What a request may take, for its tenant's limits. A token is about four bytes of English and
// three of Chinese; an answer without a bound of its own is held for the usual length.
std::pair<std::int64_t, std::int64_t> EstimateTokens(const api::ChatRequest& request) {
  constexpr std::size_t kBytesPerToken = 3;
  constexpr std::int64_t kUsualAnswer = 1024;
  const auto [bytes, tokens] = request.input_size();
  const std::size_t prompt = bytes / kBytesPerToken + tokens;
  const std::int64_t answer = request.max_tokens ? *request.max_tokens : kUsualAnswer;
  return {static_cast<std::int64_t>(prompt), answer * request.n};
}

bool IsPlainId(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestId &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c <= '~'; });
}

// What comes after "Authorization: Bearer "; empty when there is nothing.
std::string_view BearerOf(const net::HttpRequest& request) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string* header = request.Header("Authorization");
  if (header == nullptr || header->size() <= kScheme.size()) return {};
  const std::string_view value(*header);
  if (!net::EqualsIgnoreCase(value.substr(0, kScheme.size()), kScheme)) return {};
  return value.substr(kScheme.size());
}

bool IsThisMachine(std::string_view peer) {
  constexpr std::string_view kMapped = "::ffff:";  // IPv4 on an IPv6 socket
  if (peer.starts_with(kMapped)) peer.remove_prefix(kMapped.size());
  return peer.starts_with("127.") || peer == "::1";
}

void AppendModel(std::string& out, const ModelInfo& model) {
  out.append(R"({"id":)");
  api::AppendJsonString(out, model.id);
  out.append(fmt::format(R"(,"object":"model","created":{},"owned_by":"tare")", model.created));
  if (model.max_model_len > 0) {
    out.append(fmt::format(R"(,"max_model_len":{})", model.max_model_len));
  }
  if (!model.parent.empty()) {
    out.append(R"(,"parent":)");
    api::AppendJsonString(out, model.parent);
  }
  out.push_back('}');
}

}  // namespace

struct Gateway::Call {
  net::HttpRequest request;
  std::shared_ptr<net::ResponseWriter> writer;
  AccessRecord record;
  std::shared_ptr<const Access> access;
  std::shared_ptr<QuotaLedger> ledger;
  std::shared_ptr<const AccessKey> key;  // null: the service is open
};

struct Gateway::Route {
  std::string_view path;  // a trailing '/' matches everything below
  std::string_view method;
  void (Gateway::*handler)(Call);
  bool needs_key;
};

const Gateway::Route* Gateway::FindRoute(std::string_view path) {
  static constexpr std::array<Route, 14> kRoutes = {{
      {"/v1/chat/completions", "POST", &Gateway::Chat, true},
      {"/v1/completions", "POST", &Gateway::Completion, true},
      {"/v1/embeddings", "POST", &Gateway::Embeddings, true},
      {"/v1/models", "GET", &Gateway::Models, true},
      {kModelPath, "GET", &Gateway::Model, true},
      {"/tokenize", "POST", &Gateway::Tokenize, true},
      {"/detokenize", "POST", &Gateway::Detokenize, true},
      {"/v1/feedback", "POST", &Gateway::Feedback, true},
      {"/v1/load_lora_adapter", "POST", &Gateway::LoadAdapter, false},
      {"/v1/unload_lora_adapter", "POST", &Gateway::UnloadAdapter, false},
      {"/health", "GET", &Gateway::Health, false},
      {"/ready", "GET", &Gateway::Ready, false},
      {"/metrics", "GET", &Gateway::MetricsText, false},
      {"/version", "GET", &Gateway::Version, false},
  }};
  for (const Route& route : kRoutes) {
    if (route.path == path) return &route;
    if (route.path.back() == '/' && path.size() > route.path.size() &&
        path.substr(0, route.path.size()) == route.path) {
      return &route;
    }
  }
  return nullptr;
}

Gateway::Gateway(GatewayOptions options)
    : options_(std::move(options)),
      clock_(OrSteady(options_.clock)),
      metrics_(std::make_shared<Metrics>()),
      books_{metrics_, options_.access_log, clock_},
      id_prefix_(RandomPrefix()),
      leases_(kMaxWaitingForLease) {
  SetAccess(options_.access, options_.ledger);
}
Gateway::~Gateway() = default;

void Gateway::SetUpstream(std::shared_ptr<Upstream> upstream) {
  std::lock_guard lock(mutex_);
  upstream_.swap(upstream);  // the old one is released outside the lock by the parameter's end
}

void Gateway::BeginDrain() { draining_.store(true); }

std::string Gateway::NewId() { return fmt::format("{}{:06x}", id_prefix_, next_id_.fetch_add(1)); }

void Gateway::SetAccess(std::shared_ptr<const Access> access, std::shared_ptr<QuotaLedger> ledger) {
  std::lock_guard lock(mutex_);
  ledger_.swap(ledger);
  access_ = access != nullptr ? std::move(access) : std::make_shared<const Access>();
}

Status Gateway::Authenticate(Call& call) const {
  {
    std::lock_guard lock(mutex_);
    call.access = access_;
    call.ledger = ledger_;
  }
  if (call.access->open()) return {};
  const std::string_view given = BearerOf(call.request);
  if (!given.empty()) call.key = call.access->Find(given);
  if (call.key != nullptr) return {};
  return tl::unexpected(Error{ErrorKind::kInvalidArgument,
                              "this server needs a key it knows: send 'Authorization: Bearer KEY'",
                              "", api::kInvalidApiKey});
}

Status Gateway::CheckOperator(const Call& call) const {
  if (options_.operator_key) {
    const KeyHash given = HashKey(BearerOf(call.request));
    if (CRYPTO_memcmp(given.data(), options_.operator_key->data(), given.size()) == 0) return {};
    return tl::unexpected(Error{ErrorKind::kInvalidArgument,
                                "this changes what is served and needs the admin key: send "
                                "'Authorization: Bearer ADMIN_KEY'",
                                "", api::kInvalidApiKey});
  }
  bool open = false;
  {
    std::lock_guard lock(mutex_);
    open = access_->open();
  }
  // A browser names the page that sent it: pages are not people at this machine.
  const bool from_page = call.request.Header("Origin") != nullptr;
  if (open && !from_page && IsThisMachine(call.request.peer)) return {};
  return tl::unexpected(Error{
      ErrorKind::kInvalidArgument,
      open ? "this changes what is served: without an admin key it is taken from this machine "
             "only; set one under 'admin' in tare.yaml"
           : "this changes what is served, which the keys of clients do not allow: set an admin "
             "key under 'admin' in tare.yaml and send that",
      "", api::kOperatorOnly});
}

Result<std::shared_ptr<Upstream>> Gateway::Working() const {
  if (draining_.load()) {
    return Fail(ErrorKind::kUnavailable, "the server is shutting down; retry elsewhere");
  }
  std::shared_ptr<Upstream> upstream;
  {
    std::lock_guard lock(mutex_);
    upstream = upstream_;
  }
  if (upstream == nullptr || !upstream->Ready()) {
    return Fail(ErrorKind::kUnavailable, "the model is not ready yet; retry in a moment");
  }
  return upstream;
}

void Gateway::Handle(net::HttpRequest request, std::shared_ptr<net::ResponseWriter> writer) {
  Call call{std::move(request), std::move(writer), {}, nullptr, nullptr, nullptr};
  const std::string* given = call.request.Header("X-Request-Id");
  call.record.id = given != nullptr && IsPlainId(*given) ? *given : NewId();
  call.record.peer = call.request.peer;
  call.record.method = call.request.method;
  call.record.path = "other";
  const Route* route = FindRoute(call.request.path());
  if (route == nullptr) {
    Answer(call, {ErrorKind::kNotFound,
                  fmt::format("there is no {} here", api::ReplaceIllFormed(call.request.path())),
                  "", ""});
    return;
  }
  call.record.path = route->path;
  const bool head = call.request.method == "HEAD" && route->method == "GET";
  if (call.request.method != route->method && !head) {
    const std::string message = fmt::format("{} takes {} only", route->path, route->method);
    Finish(call, 405);
    call.writer->Send(405,
                      {{"Content-Type", "application/json"}, {"Allow", std::string(route->method)}},
                      api::ErrorBody(405, message));
    return;
  }
  if (route->needs_key) {
    if (const Status known = Authenticate(call); !known) return Answer(call, known.error());
  }
  (this->*route->handler)(std::move(call));
}

void Gateway::Books::Enter(const Call& call, int status, const std::string& error) const {
  const Nanos duration = clock->Now() - call.request.received;
  metrics->CountRequest(call.record.path, status, duration);
  if (access_log == nullptr) return;
  AccessRecord record = call.record;
  record.status = status;
  record.duration = duration;
  record.error = error;
  access_log->Write(record, std::chrono::system_clock::now());
}

void Gateway::Books::Answer(const Call& call, int status, std::string body,
                            const char* content_type) const {
  Enter(call, status, "");
  call.writer->Send(status, {{"Content-Type", content_type}, {"X-Request-Id", call.record.id}},
                    std::move(body));
}

void Gateway::Books::Answer(const Call& call, const Error& error, Nanos retry_after) const {
  Enter(call, api::HttpStatus(error), error.code.empty() ? ToString(error.kind) : error.code);
  SendError(*call.writer, error, call.record.id, retry_after);
}

void Gateway::Finish(const Call& call, int status, const std::string& error) {
  books_.Enter(call, status, error);
}

void Gateway::Answer(const Call& call, int status, std::string body, const char* content_type) {
  books_.Answer(call, status, std::move(body), content_type);
}

void Gateway::Answer(const Call& call, const Error& error, Nanos retry_after) {
  books_.Answer(call, error, retry_after);
}

void Gateway::Chat(Call call) {
  auto request = api::ReadChatRequest(call.request.body);
  if (!request) return Answer(call, request.error());
  StartChat(std::move(call), std::move(*request), true);
}

void Gateway::Completion(Call call) {
  auto request = api::ReadCompletionRequest(call.request.body);
  if (!request) return Answer(call, request.error());
  StartChat(std::move(call), std::move(*request), false);
}

void Gateway::Embeddings(Call call) {
  auto request = api::ReadEmbeddingsRequest(call.request.body);
  if (!request) return Answer(call, request.error());
  StartChat(std::move(call), std::move(*request), false);
}

// A key of the batch tier stays there; others say per request, by header or `service_tier`.
api::Tier Gateway::TierOf(const Call& call, const api::ChatRequest& request) {
  if (call.key != nullptr && call.key->batch) return api::Tier::kBatch;
  const std::string* header = call.request.Header(kTierHeader);
  if (header == nullptr) return request.tier;
  return net::EqualsIgnoreCase(*header, "batch") ? api::Tier::kBatch : api::Tier::kInteractive;
}

void Gateway::StartChat(Call call, api::ChatRequest request, bool chat) {
  if (call.key != nullptr && !call.key->MayUse(request.model)) {
    return Answer(call, {ErrorKind::kInvalidArgument,
                         fmt::format("this key may not use the model '{}'", request.model), "model",
                         api::kModelNotAllowed});
  }
  request.tier = TierOf(call, request);
  call.record.tenant = call.key != nullptr ? call.key->tenant : std::string(kDefaultTenant);
  if (call.key != nullptr) call.record.key = call.key->name;
  call.record.model = request.model;
  call.record.batch = request.tier == api::Tier::kBatch;
  call.record.stream = request.stream;
  const auto working = Working();
  if (!working) return Answer(call, working.error());
  if (call.ledger == nullptr) return StartReserved(std::move(call), std::move(request), chat, {});
  const std::string& tenant = call.record.tenant;
  // An adapter costs what its model does, unless it has a price of its own.
  std::string priced = request.model;
  if (!call.access->prices.contains(priced)) {
    if (std::string base = (*working)->AdapterBase(priced); !base.empty()) priced = std::move(base);
  }
  const auto [prompt, answer] = EstimateTokens(request);
  QuotaRequest share{
      tenant, request.model, call.access->LimitsOf(tenant), call.access->PriceOf(priced),
      prompt, answer};
  if (auto held = call.ledger->TryReserve(share)) {
    return StartReserved(std::move(call), std::move(request), chat, *std::move(held));
  }
  // A task must be copyable; a call is not.
  auto waiting =
      std::make_shared<std::pair<Call, api::ChatRequest>>(std::move(call), std::move(request));
  const bool posted = leases_.Post([this, waiting, share, chat] {
    auto held = waiting->first.ledger->Reserve(share);
    StartReserved(std::move(waiting->first), std::move(waiting->second), chat, std::move(held));
  });
  if (!posted) {
    Answer(waiting->first,
           {ErrorKind::kUnavailable, "too many requests wait for what their tenant has left; retry",
            "", api::kOverloaded});
  }
}

void Gateway::StartReserved(Call call, api::ChatRequest request, bool chat,
                            QuotaLedger::Held held) {
  if (!held) return Answer(call, held.error().error, held.error().retry_after);
  auto upstream = Working();
  if (!upstream) return Answer(call, upstream.error());
  ChatContext context;
  context.reservation = *std::move(held);
  request.id = call.record.id;
  request.wire_body = std::move(call.request.body);
  context.head = {(chat ? "chatcmpl-" : "cmpl-") + NewId(), request.model,
                  static_cast<std::int64_t>(std::time(nullptr)), chat};
  context.record = std::move(call.record);
  context.received = call.request.received;
  context.include_usage = request.include_usage;
  context.embeddings = request.embeddings.has_value();
  context.choices = request.n;
  context.writer = std::move(call.writer);
  context.metrics = metrics_;
  context.log = options_.access_log;
  context.clock = clock_;
  std::make_shared<ChatExchange>(std::move(context))->Start(**upstream, std::move(request));
}

void Gateway::Models(Call call) {
  auto upstream = Working();
  if (!upstream) return Answer(call, upstream.error());
  std::string body = R"({"object":"list","data":[)";
  const char* comma = "";
  for (const ModelInfo& model : (*upstream)->Models()) {
    body.append(comma);
    AppendModel(body, model);
    comma = ",";
  }
  body.append("]}");
  Answer(call, 200, std::move(body));
}

void Gateway::Model(Call call) {
  auto upstream = Working();
  if (!upstream) return Answer(call, upstream.error());
  const std::string_view name = call.request.path().substr(kModelPath.size());
  for (const ModelInfo& model : (*upstream)->Models()) {
    if (model.id != name) continue;
    std::string body;
    AppendModel(body, model);
    return Answer(call, 200, std::move(body));
  }
  Answer(call, {ErrorKind::kNotFound,
                fmt::format("the model '{}' does not exist here", api::ReplaceIllFormed(name)),
                "model", api::kModelNotFound});
}

void Gateway::Tokenize(Call call) {
  auto request = api::ReadTokenizeRequest(call.request.body);
  if (!request) return Answer(call, request.error());
  const api::ChatRequest& input = request->input;
  if (!input.unsupported.empty()) return Answer(call, input.unsupported.front());
  auto upstream = Working();
  if (!upstream) return Answer(call, upstream.error());
  const auto tokens = (*upstream)->Tokenize(input, request->add_special_tokens);
  if (!tokens) return Answer(call, tokens.error());
  int max_model_len = 0;
  for (const ModelInfo& model : (*upstream)->Models()) {
    if (model.id == input.model) max_model_len = model.max_model_len;
  }
  std::string body =
      fmt::format(R"({{"count":{},"max_model_len":{},"tokens":[)", tokens->size(), max_model_len);
  for (std::size_t i = 0; i < tokens->size(); ++i) {
    if (i > 0) body.push_back(',');
    body.append(std::to_string(ToInt((*tokens)[i])));
  }
  body.append("]}");
  Answer(call, 200, std::move(body));
}

void Gateway::Detokenize(Call call) {
  auto request = api::ReadDetokenizeRequest(call.request.body);
  if (!request) return Answer(call, request.error());
  auto upstream = Working();
  if (!upstream) return Answer(call, upstream.error());
  const auto text = (*upstream)->Detokenize(request->model, request->tokens);
  if (!text) return Answer(call, text.error());
  std::string body = R"({"prompt":)";
  api::AppendJsonString(body, *text);
  body.push_back('}');
  Answer(call, 200, std::move(body));
}

void Gateway::Feedback(Call call) {
  const auto feedback = api::ReadFeedback(call.request.body);
  if (!feedback) return Answer(call, feedback.error());
  auto upstream = Working();
  if (!upstream) return Answer(call, upstream.error());
  const bool counted = (*upstream)->Feedback(feedback->request_id, feedback->label);
  Answer(call, 200, counted ? R"({"counted":true})" : R"({"counted":false})");
}

void Gateway::LoadAdapter(Call call) {
  if (const Status may = CheckOperator(call); !may) return Answer(call, may.error());
  auto request = api::ReadLoadAdapter(call.request.body);
  if (!request) return Answer(call, request.error());
  auto upstream = Working();
  if (!upstream) return Answer(call, upstream.error());
  std::string done = fmt::format("Success: LoRA adapter '{}' added successfully.", request->name);
  (*upstream)->LoadAdapter(std::move(*request),
                           [books = books_, call = std::make_shared<const Call>(std::move(call)),
                            done = std::move(done)](const Status& status) {
                             if (!status) return books.Answer(*call, status.error(), Nanos{});
                             books.Answer(*call, 200, done, kPlainText);
                           });
}

void Gateway::UnloadAdapter(Call call) {
  if (const Status may = CheckOperator(call); !may) return Answer(call, may.error());
  const auto name = api::ReadUnloadAdapter(call.request.body);
  if (!name) return Answer(call, name.error());
  auto upstream = Working();
  if (!upstream) return Answer(call, upstream.error());
  if (const Status gone = (*upstream)->UnloadAdapter(*name); !gone) {
    return Answer(call, gone.error());
  }
  Answer(call, 200, fmt::format("Success: LoRA adapter '{}' removed successfully.", *name),
         kPlainText);
}

void Gateway::Health(Call call) { Answer(call, 200, R"({"status":"ok"})"); }

void Gateway::Ready(Call call) {
  auto upstream = Working();
  if (!upstream) return Answer(call, upstream.error());
  Answer(call, 200, R"({"status":"ready"})");
}

void Gateway::MetricsText(Call call) {
  // Counted first, so that a scrape sees itself.
  Finish(call, 200);
  call.writer->Send(200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
                    metrics_->Text());
}

void Gateway::Version(Call call) {
  std::string body = R"({"version":)";
  api::AppendJsonString(body, options_.version);
  body.push_back('}');
  Answer(call, 200, std::move(body));
}

}  // namespace tare::gateway
