// What each request asks: prompts of a wanted token length, or the lines of a data set.
//
// Request `index` of a seed is always the same prompt, whoever makes it and in which order: the
// client threads need no lock and a run can be repeated. Synthetic prompts differ from their first
// word, so that a prefix cache finds nothing, except for the declared shared share.
//
// Thread safety: immutable once made.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "load/runner.h"

namespace tare::load {

struct Prompt {
  std::string content_json;   // the user's text as a JSON string, quotes included; or
  std::string messages_json;  // a whole "messages" array when the data set holds one
  int input_tokens = 0;       // wanted; 0 when the data set does not say
  int output_tokens = 0;      // wanted; 0: up to the model
};

// How many tokens the target makes of words: measured once before a run.
struct TokenCalibration {
  int overhead = 0;                     // tokens the chat template adds around the user's text
  double tokens_per_word = 1;           // of the words below
  std::string how = "assumed";          // "tokenizer", "tokenize endpoint", "usage", "assumed"
  std::vector<std::string_view> words;  // from CommonWords()
};

class PromptSource {
 public:
  virtual ~PromptSource() = default;
  virtual Prompt Make(std::uint64_t index) const = 0;
  // What the record says about it.
  virtual nlohmann::json Describe() const = 0;
};

std::unique_ptr<PromptSource> MakeSyntheticPrompts(const WorkloadSpec& spec,
                                                   TokenCalibration calibration);

// JSONL, one request a line, in any of these shapes (more keys are allowed):
//   {"prompt": "…", "output_tokens": 100}
//   {"messages": [{"role": "user", "content": "…"}], "max_tokens": 100}
//   {"conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]}
// The requests are drawn at random, by the seed. `spec.output_tokens` applies to lines without a
// length of their own.
Result<std::unique_ptr<PromptSource>> LoadDataset(const WorkloadSpec& spec);

// The words that `count` sees as one token each wherever they stand, out of CommonWords(). Fails
// when fewer than 32 remain.
Result<std::vector<std::string_view>> SingleTokenWords(
    const std::function<Result<std::size_t>(const std::string&)>& count);

// `n` words of `words` drawn by `seed`, joined by blanks.
std::string MakeWords(const std::vector<std::string_view>& words, std::uint64_t seed, int n);

}  // namespace tare::load
