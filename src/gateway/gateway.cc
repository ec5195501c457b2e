#include "gateway/gateway.h"

#include <fmt/format.h>

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

const Clock* OrSteady(const Clock* clock) {
  static const SteadyClock steady;
  return clock != nullptr ? clock : &steady;
}

// Tells this process's answers from those of others in one log.
std::string RandomPrefix() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

bool IsPlainId(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestId &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c <= '~'; });
}

void AppendModel(std::string& out, const ModelInfo& model) {
  out.append(R"({"id":)");
  api::AppendJsonString(out, model.id);
  out.append(fmt::format(R"(,"object":"model","created":{},"owned_by":"tare")", model.created));
  if (model.max_model_len > 0) {
    out.append(fmt::format(R"(,"max_model_len":{})", model.max_model_len));
  }
  out.push_back('}');
}

}  // namespace

struct Gateway::Call {
  net::HttpRequest request;
  std::shared_ptr<net::ResponseWriter> writer;
  std::string id;
  std::string_view endpoint;  // the route's path
};

struct Gateway::Route {
  std::string_view path;  // a trailing '/' matches everything below
  std::string_view method;
  void (Gateway::*handler)(Call);
  bool needs_key;
};

const Gateway::Route* Gateway::FindRoute(std::string_view path) {
  static constexpr std::array<Route, 10> kRoutes = {{
      {"/v1/chat/completions", "POST", &Gateway::Chat, true},
      {"/v1/completions", "POST", &Gateway::Completion, true},
      {"/v1/models", "GET", &Gateway::Models, true},
      {kModelPath, "GET", &Gateway::Model, true},
      {"/tokenize", "POST", &Gateway::Tokenize, true},
      {"/detokenize", "POST", &Gateway::Detokenize, true},
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
      id_prefix_(RandomPrefix()) {}
Gateway::~Gateway() = default;

void Gateway::SetUpstream(std::shared_ptr<Upstream> upstream) {
  std::lock_guard lock(mutex_);
  upstream_.swap(upstream);  // the old one is released outside the lock by the parameter's end
}

void Gateway::BeginDrain() { draining_.store(true); }

std::string Gateway::NewId() { return fmt::format("{}{:06x}", id_prefix_, next_id_.fetch_add(1)); }

bool Gateway::Allowed(const net::HttpRequest& request) const {
  if (!options_.keys) return true;
  constexpr std::string_view kScheme = "Bearer ";
  const std::string* header = request.Header("Authorization");
  if (header == nullptr || header->size() < kScheme.size()) return false;
  const std::string_view value(*header);
  return net::EqualsIgnoreCase(value.substr(0, kScheme.size()), kScheme) &&
         options_.keys->Accepts(value.substr(kScheme.size()));
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
  Call call{std::move(request), std::move(writer), "", "other"};
  const std::string* given = call.request.Header("X-Request-Id");
  call.id = given != nullptr && IsPlainId(*given) ? *given : NewId();
  const Route* route = FindRoute(call.request.path());
  if (route == nullptr) {
    Answer(call, {ErrorKind::kNotFound,
                  fmt::format("there is no {} here", api::ReplaceIllFormed(call.request.path())),
                  "", ""});
    return;
  }
  call.endpoint = route->path;
  const bool head = call.request.method == "HEAD" && route->method == "GET";
  if (call.request.method != route->method && !head) {
    const std::string message = fmt::format("{} takes {} only", route->path, route->method);
    metrics_->CountRequest(call.endpoint, 405, clock_->Now() - call.request.received);
    call.writer->Send(405,
                      {{"Content-Type", "application/json"}, {"Allow", std::string(route->method)}},
                      api::ErrorBody(405, message));
    return;
  }
  if (route->needs_key && !Allowed(call.request)) {
    Answer(call, {ErrorKind::kInvalidArgument,
                  "this server needs a key it knows: send 'Authorization: Bearer KEY'", "",
                  api::kInvalidApiKey});
    return;
  }
  (this->*route->handler)(std::move(call));
}

void Gateway::Answer(const Call& call, int status, std::string body, const char* content_type) {
  metrics_->CountRequest(call.endpoint, status, clock_->Now() - call.request.received);
  call.writer->Send(status, {{"Content-Type", content_type}, {"X-Request-Id", call.id}},
                    std::move(body));
}

void Gateway::Answer(const Call& call, const Error& error) {
  metrics_->CountRequest(call.endpoint, api::HttpStatus(error),
                         clock_->Now() - call.request.received);
  SendError(*call.writer, error, call.id);
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

void Gateway::StartChat(Call call, api::ChatRequest request, bool chat) {
  auto upstream = Working();
  if (!upstream) return Answer(call, upstream.error());
  request.id = call.id;
  request.wire_body = std::move(call.request.body);
  ChatContext context;
  context.endpoint = call.endpoint;
  context.head = {(chat ? "chatcmpl-" : "cmpl-") + NewId(), request.model,
                  static_cast<std::int64_t>(std::time(nullptr)), chat};
  context.request_id = call.id;
  context.received = call.request.received;
  context.stream = request.stream;
  context.include_usage = request.include_usage;
  context.choices = request.n;
  context.writer = std::move(call.writer);
  context.metrics = metrics_;
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
  auto upstream = Working();
  if (!upstream) return Answer(call, upstream.error());
  const auto tokens = (*upstream)->Tokenize(request->input, request->add_special_tokens);
  if (!tokens) return Answer(call, tokens.error());
  int max_model_len = 0;
  for (const ModelInfo& model : (*upstream)->Models()) {
    if (model.id == request->input.model) max_model_len = model.max_model_len;
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

void Gateway::Health(Call call) { Answer(call, 200, R"({"status":"ok"})"); }

void Gateway::Ready(Call call) {
  auto upstream = Working();
  if (!upstream) return Answer(call, upstream.error());
  Answer(call, 200, R"({"status":"ready"})");
}

void Gateway::MetricsText(Call call) {
  // Counted first, so that a scrape sees itself.
  metrics_->CountRequest(call.endpoint, 200, clock_->Now() - call.request.received);
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
