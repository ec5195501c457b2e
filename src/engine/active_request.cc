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

bool ActiveRequest::PickAll(int choice, std::span<float> logits, std::span<const TokenId> drafts) {
  Choice& c = Of(choice);
  const std::size_t vocab = logits.size() / (1 + drafts.size());
  c.sampled.clear();
  c.piece = {};
  c.drafts = static_cast<int>(drafts.size());
  for (std::size_t row = 0; row <= drafts.size(); ++row) {
    if (!Pick(c, logits.subspan(row * vocab, vocab))) return false;
    const SampledToken& last = c.sampled.back();
    if (last.stop || (row < drafts.size() && last.token != drafts[row])) break;
  }
  return true;
}

bool ActiveRequest::Pick(Choice& c, std::span<float> logits) {
  SampleRequest sample;
  sample.options = &request_.sampling;
  sample.history = c.history ? &*c.history : nullptr;
  if (c.generated < request_.min_new_tokens) sample.forbidden = end_tokens_;
  sample.seed = c.seed;
  sample.position = static_cast<std::uint64_t>(c.generated);
  sample.logprobs = request_.logprobs;
  std::optional<GeneratedToken> token = Sample(logits, sample);
  if (!token) return false;
  const TokenId id = token->id;
  const bool end = IsEnd(id);
  ++c.generated;
  if (!end) {
    AnswerText::Piece piece = c.text.Push(id, c.generated >= request_.min_new_tokens);
    c.piece.text += piece.text;
    c.piece.stopped = piece.stopped;
    if (c.history) c.history->AddGenerated(id);
    c.unsent.push_back(*std::move(token));
  }
  c.sampled.push_back({id, end || c.piece.stopped});
  return true;
}

void ActiveRequest::Deliver(int choice, FinishReason reason, Nanos now) {
  Choice& c = Of(choice);
  if (usage_.first_token == Nanos{}) usage_.first_token = now - submitted_;
  const auto tokens = static_cast<int>(c.sampled.size());
  usage_.generated_tokens += tokens;
  usage_.drafted_tokens += c.drafts;
  usage_.accepted_drafts += tokens - 1;
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
