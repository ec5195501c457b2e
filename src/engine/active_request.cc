#include "engine/active_request.h"

#include <algorithm>

namespace tare::engine {

ActiveRequest::ActiveRequest(std::uint64_t id, GenerateRequest request,
                             std::shared_ptr<GenerateSink> sink, const model::Text* text,
                             std::uint64_t seed, Nanos submitted)
    : id_(id),
      request_(std::move(request)),
      sink_(std::move(sink)),
      has_text_(text != nullptr),
      open_(request_.n),
      submitted_(submitted) {
  usage_.prompt_tokens = static_cast<int>(request_.prompt.size());
  end_tokens_ = request_.stop_tokens;
  if (text != nullptr && !request_.ignore_eos) {
    end_tokens_.insert(end_tokens_.end(), text->end_ids().begin(), text->end_ids().end());
  }
  std::sort(end_tokens_.begin(), end_tokens_.end());
  choices_.reserve(static_cast<std::size_t>(request_.n));
  for (int i = 0; i < request_.n; ++i) {
    Choice choice{.text = AnswerText(text, request_.stop)};
    choice.seed = ChoiceSeed(seed, i);
    if (HasPenalties(request_.sampling)) {
      choice.history.emplace();
      choice.history->AddPrompt(request_.prompt);
    }
    choices_.push_back(std::move(choice));
  }
}

bool ActiveRequest::IsEnd(TokenId token) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), token);
}

void ActiveRequest::NoteComputing(Nanos now, int cached_tokens) {
  if (usage_.queued != Nanos{}) return;
  usage_.queued = std::max(now - submitted_, Nanos{1});
  usage_.cached_tokens = cached_tokens;
}

bool ActiveRequest::Pick(int choice, std::span<float> logits) {
  Choice& c = Of(choice);
  SampleRequest sample;
  sample.options = &request_.sampling;
  sample.history = c.history ? &*c.history : nullptr;
  if (c.generated < request_.min_new_tokens) sample.forbidden = end_tokens_;
  sample.seed = c.seed;
  sample.position = static_cast<std::uint64_t>(c.generated);
  sample.logprobs = request_.logprobs;
  std::optional<GeneratedToken> token = Sample(logits, sample);
  if (!token) return false;
  c.picked = *std::move(token);
  c.picked_end = IsEnd(c.picked.id);
  c.piece = {};
  if (!c.picked_end) {
    c.piece = c.text.Push(c.picked.id, c.generated + 1 >= request_.min_new_tokens);
  }
  return true;
}

SampledToken ActiveRequest::Picked(int choice) const {
  const Choice& c = Of(choice);
  return {c.picked.id, c.picked_end || c.piece.stopped};
}

void ActiveRequest::Deliver(int choice, FinishReason reason, Nanos now) {
  Choice& c = Of(choice);
  if (usage_.first_token == Nanos{}) usage_.first_token = now - submitted_;
  ++c.generated;
  ++usage_.generated_tokens;
  if (!c.picked_end) {
    if (c.history) c.history->AddGenerated(c.picked.id);
    c.unsent.push_back(std::move(c.picked));
  }
  GenerateChunk chunk;
  chunk.choice = choice;
  chunk.text = std::move(c.piece.text);
  chunk.finish = reason;
  if (reason != FinishReason::kNone) {
    c.ended = true;
    --open_;
    if (!c.piece.stopped) chunk.text += c.text.Finish();
  } else if (has_text_ && chunk.text.empty() && !request_.logprobs) {
    return;  // nothing to show yet
  }
  chunk.tokens = std::exchange(c.unsent, {});
  sink_->OnTokens(std::move(chunk));
}

void ActiveRequest::FinishCancelled(Nanos now) {
  for (int i = 0; i < choices(); ++i) {
    Choice& c = Of(i);
    if (c.ended) continue;
    c.ended = true;
    --open_;
    GenerateChunk chunk;
    chunk.choice = i;
    chunk.text = c.text.Finish();
    chunk.tokens = std::exchange(c.unsent, {});
    chunk.finish = FinishReason::kCancelled;
    sink_->OnTokens(std::move(chunk));
  }
  FinishDone(now);
}

void ActiveRequest::FinishDone(Nanos now) {
  usage_.total = now - submitted_;
  sink_->OnDone(usage_);
}

void ActiveRequest::FinishError(Error error) {
  open_ = 0;
  for (Choice& c : choices_) c.ended = true;
  sink_->OnError(std::move(error));
}

}  // namespace tare::engine
