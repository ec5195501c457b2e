#include "gateway/local_upstream.h"

#include <atomic>
#include <chrono>
#include <ctime>
#include <optional>
#include <utility>

#include "api/tool_call_parser.h"
#include "api/wire_error.h"
#include "gateway/submission.h"
#include "gateway/task_queue.h"
#include "model/text.h"

namespace tare::gateway {

namespace {

// Tokenizing runs at some MB/s: 8 KiB take about a millisecond, what an I/O thread may be held for.
constexpr std::size_t kInlinePromptBytes = 8 * 1024;
constexpr std::size_t kMaxLargePrompts = 256;  // waiting to be tokenized
constexpr std::size_t kMaxAdapterLoads = 64;   // waiting to be read

api::FinishReason ToWire(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kNone:
      return api::FinishReason::kNone;
    case engine::FinishReason::kStop:
      return api::FinishReason::kStop;
    case engine::FinishReason::kLength:
      return api::FinishReason::kLength;
    case engine::FinishReason::kCancelled:
      return api::FinishReason::kCancelled;
  }
  return api::FinishReason::kNone;
}

// Turns the engine's chunks into the wire's.
class EngineSink final : public engine::GenerateSink {
 public:
  EngineSink(std::shared_ptr<const model::Text> text, const api::ChatRequest& request,
             std::shared_ptr<ChatSink> sink, std::shared_ptr<std::atomic<int>> alive)
      : text_(std::move(text)),
        logprobs_(request.logprobs.has_value()),
        sink_(std::move(sink)),
        alive_(std::move(alive)) {
    alive_->fetch_add(1);
    if (!request.tools_json.empty()) tool_calls_.emplace(request.id);
  }
  EngineSink(const EngineSink&) = delete;
  EngineSink& operator=(const EngineSink&) = delete;
  ~EngineSink() override { alive_->fetch_sub(1); }

  void OnTokens(engine::GenerateChunk chunk) override {
    api::ChatChunk out;
    out.index = chunk.choice;
    out.text = std::move(chunk.text);
    out.tokens = static_cast<int>(chunk.tokens.size());
    out.finish = ToWire(chunk.finish);
    if (logprobs_) {
      for (const engine::GeneratedToken& token : chunk.tokens) {
        api::TokenLogprob& entry = out.logprobs.emplace_back();
        entry.token = Name(token.id);
        entry.logprob = token.logprob;
        for (const auto& [id, logprob] : token.top) entry.top.emplace_back(Name(id), logprob);
      }
    }
    if (tool_calls_) tool_calls_->Feed(out);
    sink_->OnChunk(std::move(out));
  }
  void OnDone(const engine::GenerateUsage& usage) override {
    sink_->OnDone({usage.prompt_tokens, usage.generated_tokens, usage.cached_tokens});
  }
  void OnError(Error error) override { sink_->OnError(std::move(error)); }

 private:
  std::string Name(TokenId id) const { return std::string(text_->tokenizer().TokenBytes(id)); }

  const std::shared_ptr<const model::Text> text_;
  const bool logprobs_;
  const std::shared_ptr<ChatSink> sink_;
  const std::shared_ptr<std::atomic<int>> alive_;  // sinks the engine has not let go of
  std::optional<api::ToolCallParser> tool_calls_;  // where the request has tools
};

using EngineDoor = Door<engine::Engine, engine::RequestHandle>;
using EngineSubmission = Submission<engine::Engine, engine::RequestHandle>;
using EngineCall = SubmittedCall<engine::Engine, engine::RequestHandle>;
using AdapterPointer = std::shared_ptr<const model::LoraAdapter>;

engine::GenerateRequest ToEngine(const api::ChatRequest& request, std::vector<TokenId> prompt,
                                 AdapterPointer adapter) {
  engine::GenerateRequest out;
  out.prompt = std::move(prompt);
  out.max_new_tokens = request.max_tokens;
  out.min_new_tokens = request.sampling.min_tokens;
  out.ignore_eos = request.sampling.ignore_eos;
  out.stop = request.stop;
  out.stop_tokens = request.stop_tokens;
  out.sampling.temperature = request.sampling.temperature;
  out.sampling.top_p = request.sampling.top_p;
  out.sampling.top_k = request.sampling.top_k;
  out.sampling.min_p = request.sampling.min_p;
  out.sampling.frequency_penalty = request.sampling.frequency_penalty;
  out.sampling.presence_penalty = request.sampling.presence_penalty;
  out.sampling.repetition_penalty = request.sampling.repetition_penalty;
  for (const auto& [id, bias] : request.sampling.logit_bias) {
    out.sampling.logit_bias.emplace_back(TokenId(id), bias);
  }
  out.seed = request.sampling.seed;
  out.logprobs = request.logprobs;
  out.n = request.n;
  out.tier = request.tier == api::Tier::kBatch ? engine::Tier::kBatch : engine::Tier::kInteractive;
  out.cache_salt = request.cache_salt;
  out.adapter = std::move(adapter);
  return out;
}

const char* PromptParam(const api::ChatRequest& request) {
  return request.messages_json.empty() ? "prompt" : "messages";
}

}  // namespace

struct LocalUpstream::Impl {
  LocalUpstreamOptions options;
  std::shared_ptr<engine::Engine> engine;
  std::shared_ptr<EngineDoor> door;
  std::atomic<int> tokenizing{0};  // large prompts posted and not submitted yet
  // Requests the engine holds. Its own figures are those of the last step.
  std::shared_ptr<std::atomic<int>> alive = std::make_shared<std::atomic<int>>(0);
  std::int64_t created = static_cast<std::int64_t>(std::time(nullptr));
  TaskQueue large_prompts{kMaxLargePrompts};  // last, both: their tasks use the others
  TaskQueue adapter_loads{kMaxAdapterLoads};

  // The name of an adapter within `model`: after "NAME:" or all of it.
  std::string AdapterName(const std::string& model) const {
    const bool prefixed = model.size() > options.name.size() + 1 &&
                          model.starts_with(options.name) && model[options.name.size()] == ':';
    return prefixed ? model.substr(options.name.size() + 1) : model;
  }

  AdapterPointer FindAdapter(const std::string& model) const {
    if (options.adapters == nullptr) return nullptr;
    // Under its whole name first: an adapter's may have a colon of its own.
    if (AdapterPointer whole = options.adapters->Find(model)) return whole;
    return options.adapters->Find(AdapterName(model));
  }

  // The adapter `model` names, null for the model alone.
  Result<AdapterPointer> Resolve(const std::string& model) const {
    if (model == options.name) return nullptr;
    if (AdapterPointer adapter = FindAdapter(model)) return adapter;
    return tl::unexpected(
        Error{ErrorKind::kNotFound,
              fmt::format("the model '{}' does not exist here; this server has '{}'", model,
                          options.name),
              "model", api::kModelNotFound});
  }

  Result<std::vector<TokenId>> Encode(const api::ChatRequest& request, bool add_special) const {
    const model::Text& text = *engine->text();
    if (!request.messages_json.empty()) {
      model::ChatInput input;
      input.messages_json = request.messages_json;
      input.tools_json = request.tools_json;
      input.extra_json = request.template_kwargs_json;
      input.now = std::chrono::system_clock::now();
      auto tokens = text.EncodeChat(input);
      if (!tokens && tokens.error().param.empty()) tokens.error().param = "messages";
      if (!tokens || request.answer_prefix.empty()) return tokens;
      // Right after where the answer begins: as if the model had written it.
      TARE_TRY(const std::vector<TokenId> prefix,
               text.tokenizer().Encode(request.answer_prefix, {false, {}}));
      tokens->insert(tokens->end(), prefix.begin(), prefix.end());
      return tokens;
    }
    if (!request.prompt_tokens.empty()) return request.prompt_tokens;
    auto tokens = add_special ? text.EncodePrompt(request.prompt)
                              : text.tokenizer().Encode(request.prompt, {false, {}});
    if (!tokens && tokens.error().param.empty()) tokens.error().param = "prompt";
    return tokens;
  }

  Status CheckLength(const api::ChatRequest& request, std::size_t prompt_tokens) const {
    const auto limit = static_cast<std::size_t>(engine->max_model_len());
    const auto answer = static_cast<std::size_t>(request.max_tokens.value_or(1));
    if (prompt_tokens < limit && (options.endless_context || prompt_tokens + answer <= limit)) {
      return {};
    }
    return tl::unexpected(Error{
        ErrorKind::kInvalidArgument,
        fmt::format("this model's context length is {} tokens, but the {} has {} and the answer "
                    "was asked to have {}{}: shorten one of them",
                    limit, PromptParam(request), prompt_tokens,
                    request.max_tokens ? "" : "at least ", answer),
        PromptParam(request), api::kContextLengthExceeded});
  }

  Status Start(const api::ChatRequest& request, AdapterPointer adapter,
               EngineSubmission& submission, std::shared_ptr<ChatSink> sink) const {
    TARE_TRY(std::vector<TokenId> prompt, Encode(request, true));
    TARE_RETURN_IF_ERROR(CheckLength(request, prompt.size()));
    return submission.Submit(
        ToEngine(request, std::move(prompt), std::move(adapter)),
        std::make_shared<EngineSink>(engine->text(), request, std::move(sink), alive));
  }
};

LocalUpstream::LocalUpstream(LocalUpstreamOptions options, std::shared_ptr<engine::Engine> engine)
    : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
  impl_->engine = std::move(engine);
  impl_->door = std::make_shared<EngineDoor>(impl_->engine.get());
}
LocalUpstream::~LocalUpstream() { impl_->door->Close(); }

std::vector<ModelInfo> LocalUpstream::Models() const {
  const std::string& base = impl_->options.name;
  const int length = impl_->engine->max_model_len();
  std::vector<ModelInfo> models = {{base, impl_->created, length, ""}};
  if (impl_->options.adapters == nullptr) return models;
  for (const engine::AdapterInfo& adapter : impl_->options.adapters->List()) {
    models.push_back({adapter.name, adapter.loaded_at, length, base});
  }
  return models;
}

bool LocalUpstream::TakesAdapters() const { return impl_->options.adapters != nullptr; }

void LocalUpstream::LoadAdapter(api::LoadAdapterRequest request, std::function<void(Status)> done) {
  const LocalUpstreamOptions& options = impl_->options;
  if (options.adapters == nullptr) return Upstream::LoadAdapter(std::move(request), done);
  if (request.name == options.name) {
    return done(
        FailParam("lora_name", "'{}' is the model's own name: choose another", request.name));
  }
  if (!request.base.empty() && request.base != options.name) {
    return done(FailParam("base_model_name", "there is no model '{}' here; this server has '{}'",
                          request.base, options.name));
  }
  auto task = [store = options.adapters, request, done] {
    done(store->Load(request.name, request.folder, request.replace));
  };
  if (!impl_->adapter_loads.Post(std::move(task))) {
    done(Fail(ErrorKind::kUnavailable, "{} adapters wait to be read already; retry later",
              kMaxAdapterLoads));
  }
}

Status LocalUpstream::UnloadAdapter(const std::string& name) {
  if (impl_->options.adapters == nullptr) return Upstream::UnloadAdapter(name);
  engine::AdapterStore& adapters = *impl_->options.adapters;
  return adapters.Unload(adapters.Find(name) != nullptr ? name : impl_->AdapterName(name));
}

std::string LocalUpstream::AdapterBase(const std::string& model) const {
  return model != impl_->options.name && impl_->FindAdapter(model) ? impl_->options.name : "";
}

bool LocalUpstream::Idle() const {
  return impl_->tokenizing.load() == 0 && impl_->alive->load() == 0;
}

bool LocalUpstream::Ready() const { return !impl_->engine->Stats().draining; }

Result<std::unique_ptr<ChatCall>> LocalUpstream::Chat(api::ChatRequest request,
                                                      std::shared_ptr<ChatSink> sink) {
  if (request.embeddings) {
    TARE_RETURN_IF_ERROR(impl_->Resolve(request.model));
    return tl::unexpected(
        Error{ErrorKind::kInvalidArgument,
              fmt::format("the model '{}' writes text and makes no embeddings", request.model),
              "model", ""});
  }
  TARE_TRY(AdapterPointer adapter, impl_->Resolve(request.model));
  if (!request.unsupported.empty()) return tl::unexpected(request.unsupported.front());
  auto submission = std::make_shared<EngineSubmission>(impl_->door);
  const std::size_t bytes = request.messages_json.size() + request.tools_json.size() +
                            request.prompt.size() + request.answer_prefix.size();
  if (bytes <= kInlinePromptBytes) {
    TARE_RETURN_IF_ERROR(impl_->Start(request, std::move(adapter), *submission, std::move(sink)));
  } else {
    auto task = [impl = impl_.get(), request = std::move(request), submission,
                 adapter = std::move(adapter), sink = std::move(sink)]() mutable {
      Status status = impl->Start(request, std::move(adapter), *submission, sink);
      impl->tokenizing.fetch_sub(1);
      if (!status) sink->OnError(std::move(status).error());
    };
    impl_->tokenizing.fetch_add(1);
    if (!impl_->large_prompts.Post(std::move(task))) {
      impl_->tokenizing.fetch_sub(1);
      return Fail(ErrorKind::kUnavailable, "{} large prompts wait already; retry later",
                  kMaxLargePrompts);
    }
  }
  return std::make_unique<EngineCall>(std::move(submission));
}

Result<std::vector<TokenId>> LocalUpstream::Tokenize(const api::ChatRequest& request,
                                                     bool add_special) const {
  TARE_RETURN_IF_ERROR(impl_->Resolve(request.model));
  return impl_->Encode(request, add_special);
}

Result<std::string> LocalUpstream::Detokenize(const std::string& model,
                                              std::span<const TokenId> tokens) const {
  if (!model.empty()) TARE_RETURN_IF_ERROR(impl_->Resolve(model));
  return impl_->engine->text()->tokenizer().Decode(tokens, /*skip_special=*/false);
}

}  // namespace tare::gateway
