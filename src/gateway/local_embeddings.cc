#include "gateway/local_embeddings.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <utility>

#include "api/embeddings.h"
#include "api/wire_error.h"
#include "gateway/submission.h"
#include "gateway/task_queue.h"

namespace tare::gateway {

namespace {

// As of prompts (local_upstream.cc): what an I/O thread may be held for.
constexpr std::size_t kInlineBytes = 8 * 1024;
// Numbers the step thread writes itself: as JSON some 50 ns each, so about a millisecond.
constexpr std::size_t kInlineNumbers = 16 * 1024;
constexpr std::size_t kMaxLarge = 256;  // requests that wait for a thread

tl::unexpected<Error> Refuse(const char* param, std::string message, const char* code = "") {
  return tl::unexpected(Error{ErrorKind::kInvalidArgument, std::move(message), param, code});
}

using EmbedderDoor = Door<engine::Embedder, engine::Embedder::Handle>;
using EmbedderSubmission = Submission<engine::Embedder, engine::Embedder::Handle>;
using EmbedderCall = SubmittedCall<engine::Embedder, engine::Embedder::Handle>;

// What writing an answer needs to know.
struct AnswerForm {
  std::size_t dimension = 0;  // of the model
  std::size_t wanted = 0;     // of the answer
  bool normalise = false;
  bool base64 = false;
  int tokens = 0;
};

void Answer(ChatSink& sink, const AnswerForm& form, const std::vector<float>& vectors) {
  api::ChatChunk chunk;
  chunk.finish = api::FinishReason::kStop;
  const std::size_t count = vectors.size() / form.dimension;
  std::vector<float> shorter(form.wanted);
  for (std::size_t i = 0; i < count; ++i) {
    std::span<const float> vector(vectors.data() + i * form.dimension, form.dimension);
    if (form.wanted < form.dimension) {
      model::Shorten(vector, form.normalise, shorter);
      vector = shorter;
    }
    if (i > 0) chunk.text.push_back(',');
    api::AppendEmbedding(chunk.text, i, vector, form.base64);
  }
  sink.OnChunk(std::move(chunk));
  sink.OnDone({form.tokens, 0, 0});
}

}  // namespace

struct LocalEmbeddings::Impl {
  std::string name;
  std::shared_ptr<engine::Embedder> embedder;
  std::shared_ptr<EmbedderDoor> door;
  // Of large answers. What runs there and in the step thread may outlive this object.
  std::shared_ptr<TaskQueue> writers = std::make_shared<TaskQueue>(kMaxLarge);
  std::shared_ptr<std::atomic<int>> writing = std::make_shared<std::atomic<int>>(0);
  std::atomic<int> tokenizing{0};  // large requests posted and not submitted yet
  std::int64_t created = static_cast<std::int64_t>(std::time(nullptr));
  TaskQueue large_inputs{kMaxLarge};  // last: its tasks use the others

  Status CheckModel(const std::string& model) const {
    if (model == name) return {};
    return tl::unexpected(
        Error{ErrorKind::kNotFound,
              fmt::format("the model '{}' does not exist here; this server has '{}'", model, name),
              "model", api::kModelNotFound});
  }

  Result<std::vector<std::vector<TokenId>>> Inputs(const api::EmbeddingsInput& input) const {
    std::vector<std::vector<TokenId>> all = input.tokens;
    for (std::size_t i = 0; i < input.texts.size(); ++i) {
      if (input.texts[i].empty()) return Refuse("input", fmt::format("input {} is empty", i));
      auto tokens = embedder->Encode(input.texts[i]);
      if (!tokens) {
        tokens.error().param = "input";
        return tl::unexpected(std::move(tokens).error());
      }
      all.push_back(*std::move(tokens));
    }
    const int most = embedder->max_length();
    if (input.truncate && *input.truncate > most) {
      return Refuse("truncate_prompt_tokens",
                    fmt::format("truncate_prompt_tokens is {}, more than the {} this model takes",
                                *input.truncate, most));
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (input.truncate) embedder->Truncate(all[i], *input.truncate < 0 ? most : *input.truncate);
      if (std::cmp_less_equal(all[i].size(), most)) continue;
      return Refuse("input",
                    fmt::format("this model takes at most {} tokens, but input {} has {}: shorten "
                                "it, or ask for truncate_prompt_tokens: -1",
                                most, i, all[i].size()),
                    api::kContextLengthExceeded);
    }
    return all;
  }

  Result<AnswerForm> Form(const api::EmbeddingsInput& input) const {
    const model::SentenceConfig& sentence = embedder->encoder().sentence();
    AnswerForm form;
    form.dimension = form.wanted = static_cast<std::size_t>(embedder->dimension());
    form.normalise = sentence.normalise;
    form.base64 = input.base64;
    if (!input.dimensions) return form;
    const int wanted = *input.dimensions;
    if (wanted > embedder->dimension()) {
      return Refuse("dimensions", fmt::format("dimensions is {}; this model's vectors have {}",
                                              wanted, embedder->dimension()));
    }
    const auto& trained = sentence.dimensions;
    if (!trained.empty() && wanted != embedder->dimension() &&
        std::find(trained.begin(), trained.end(), wanted) == trained.end()) {
      return Refuse("dimensions", fmt::format("dimensions is {}; this model was trained for {}",
                                              wanted, fmt::join(trained, ", ")));
    }
    form.wanted = static_cast<std::size_t>(wanted);
    return form;
  }

  Status Start(const api::ChatRequest& request, EmbedderSubmission& submission,
               std::shared_ptr<ChatSink> sink) {
    TARE_TRY(AnswerForm form, Form(*request.embeddings));
    engine::EmbedRequest embed;
    TARE_TRY(embed.inputs, Inputs(*request.embeddings));
    embed.tier =
        request.tier == api::Tier::kBatch ? engine::Tier::kBatch : engine::Tier::kInteractive;
    for (const auto& input : embed.inputs) form.tokens += static_cast<int>(input.size());
    return submission.Submit(
        std::move(embed), [form, sink = std::move(sink), thread = writers,
                           count = writing](Result<std::vector<float>> vectors) {
          if (!vectors) return sink->OnError(std::move(vectors).error());
          auto shared = std::make_shared<std::vector<float>>(*std::move(vectors));
          count->fetch_add(1);
          const auto answer = [form, sink, shared, count] {
            Answer(*sink, form, *shared);
            count->fetch_sub(1);
          };
          if (shared->size() <= kInlineNumbers || !thread->Post(answer)) answer();
        });
  }
};

LocalEmbeddings::LocalEmbeddings(std::string name, std::shared_ptr<engine::Embedder> embedder)
    : impl_(std::make_unique<Impl>()) {
  impl_->name = std::move(name);
  impl_->embedder = std::move(embedder);
  impl_->door = std::make_shared<EmbedderDoor>(impl_->embedder.get());
}
LocalEmbeddings::~LocalEmbeddings() { impl_->door->Close(); }

std::vector<ModelInfo> LocalEmbeddings::Models() const {
  return {{impl_->name, impl_->created, impl_->embedder->max_length(), "", /*embeds=*/true}};
}

bool LocalEmbeddings::Ready() const { return !impl_->embedder->Stats().draining; }
bool LocalEmbeddings::Idle() const {
  return impl_->tokenizing.load() == 0 && impl_->embedder->Stats().waiting_requests == 0 &&
         impl_->writing->load() == 0;
}

Result<std::unique_ptr<ChatCall>> LocalEmbeddings::Chat(api::ChatRequest request,
                                                        std::shared_ptr<ChatSink> sink) {
  TARE_RETURN_IF_ERROR(impl_->CheckModel(request.model));
  if (!request.embeddings) {
    return Refuse("model", fmt::format("the model '{}' makes embeddings and writes no text: ask "
                                       "it at /v1/embeddings",
                                       request.model));
  }
  if (!request.unsupported.empty()) return tl::unexpected(request.unsupported.front());
  auto submission = std::make_shared<EmbedderSubmission>(impl_->door);
  if (request.embeddings->text_bytes() <= kInlineBytes) {
    TARE_RETURN_IF_ERROR(impl_->Start(request, *submission, std::move(sink)));
    return std::make_unique<EmbedderCall>(std::move(submission));
  }
  auto task = [impl = impl_.get(), request = std::move(request), submission,
               sink = std::move(sink)]() mutable {
    Status status = impl->Start(request, *submission, sink);
    impl->tokenizing.fetch_sub(1);
    if (!status) sink->OnError(std::move(status).error());
  };
  impl_->tokenizing.fetch_add(1);
  if (!impl_->large_inputs.Post(std::move(task))) {
    impl_->tokenizing.fetch_sub(1);
    return Fail(ErrorKind::kUnavailable, "{} large requests wait already; retry later", kMaxLarge);
  }
  return std::make_unique<EmbedderCall>(std::move(submission));
}

Result<std::vector<TokenId>> LocalEmbeddings::Tokenize(const api::ChatRequest& request,
                                                       bool add_special) const {
  TARE_RETURN_IF_ERROR(impl_->CheckModel(request.model));
  if (!request.messages_json.empty()) {
    return Refuse("messages", fmt::format("the model '{}' takes no chats", request.model));
  }
  if (!request.prompt_tokens.empty()) return request.prompt_tokens;
  return impl_->embedder->text()->tokenizer().Encode(request.prompt, {add_special, {}});
}

Result<std::string> LocalEmbeddings::Detokenize(const std::string& model,
                                                std::span<const TokenId> tokens) const {
  if (!model.empty()) TARE_RETURN_IF_ERROR(impl_->CheckModel(model));
  return impl_->embedder->text()->tokenizer().Decode(tokens, /*skip_special=*/false);
}

}  // namespace tare::gateway
