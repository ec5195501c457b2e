// One accepted request while the step thread works on it: its choices, what was sampled for them,
// and what has been told to the sink.
//
// Thread safety: the step thread's, except PickAll, which may run for different choices at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "engine/answer_text.h"
#include "engine/generate.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "model/text.h"

namespace tare::engine {

class ActiveRequest {
 public:
  // `text` may be null. `seed` is the request's own or one drawn for it.
  ActiveRequest(std::uint64_t id, GenerateRequest request, std::shared_ptr<GenerateSink> sink,
                const model::Text* text, std::uint64_t seed, Nanos submitted);

  std::uint64_t id() const { return id_; }
  const GenerateRequest& request() const { return request_; }
  int choices() const { return static_cast<int>(choices_.size()); }
  bool ended() const { return open_ == 0; }
  bool ended(int choice) const { return Of(choice).ended; }

  void SetSequence(int choice, SequenceId sequence) { Of(choice).sequence = sequence; }
  SequenceId sequence(int choice) const { return Of(choice).sequence; }
  // The request's first computation starts.
  void NoteComputing(Nanos now, int cached_tokens);

  // Samples the next tokens of a choice from logits [1 + drafts, vocab]: one, and one more for each
  // draft that was what was sampled. False when the logits are not numbers.
  bool PickAll(int choice, std::span<float> logits, std::span<const TokenId> drafts);
  // What the picked tokens mean for the scheduler.
  std::span<const SampledToken> Picked(int choice) const { return Of(choice).sampled; }
  // Hands the picked tokens on; `reason` when the choice ended with the last, else kNone.
  void Deliver(int choice, FinishReason reason, Nanos now);

  // Ends every open choice and tells the sink: the terminal call for a cancelled request.
  void FinishCancelled(Nanos now);
  // The terminal calls.
  void FinishDone(Nanos now);
  void FinishError(Error error);

 private:
  struct Choice {
    SequenceId sequence{};
    AnswerText text;
    std::optional<TokenHistory> history;
    std::uint64_t seed = 0;
    int generated = 0;
    // Of the step: what was sampled, the text it amounts to, and the drafts there were.
    std::vector<SampledToken> sampled;
    AnswerText::Piece piece;
    int drafts = 0;
    std::vector<GeneratedToken> unsent;  // tokens whose text is still incomplete
    bool ended = false;
  };
  Choice& Of(int choice) { return choices_[static_cast<std::size_t>(choice)]; }
  const Choice& Of(int choice) const { return choices_[static_cast<std::size_t>(choice)]; }
  bool IsEnd(TokenId token) const;
  // Samples one token. False when the logits are not numbers.
  bool Pick(Choice& c, std::span<float> logits);

  std::uint64_t id_;
  GenerateRequest request_;
  std::shared_ptr<GenerateSink> sink_;
  bool has_text_;
  std::vector<TokenId> end_tokens_;  // ascending
  std::vector<Choice> choices_;
  int open_;
  Nanos submitted_;
  GenerateUsage usage_;
};

}  // namespace tare::engine
