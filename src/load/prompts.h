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
  // Sessions: how many turns session `index` has, and what the user says at `turn` (0 is Make).
  // Messages that stand before the first turn (a system prompt), as JSON objects with commas
  // between, are the opening.
  virtual int Turns(std::uint64_t /*index*/) const { return 1; }
  virtual Prompt MakeTurn(std::uint64_t index, int /*turn*/) const { return Make(index); }
  virtual std::string Opening(std::uint64_t /*index*/) const { return {}; }
  // What the record says about it.
  virtual nlohmann::json Describe() const = 0;
};

std::unique_ptr<PromptSource> MakeSyntheticPrompts(const WorkloadSpec& spec,
                                                   TokenCalibration calibration);

// Requests in a file, by its content:
//
// CSV with a header line that names a column "prompt" (or text, question, instruction) and, if
// known, "output_tokens" (RFC 4180: fields in double quotes may hold commas and line breaks).
// JSONL, one request a line, or one JSON array of them, in any of these shapes (more keys are
// allowed):
//   {"prompt": "…", "output_tokens": 100}
//   {"messages": [{"role": "user", "content": "…"}], "max_tokens": 100}
//   {"conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]}
// With `spec.turns` above 1 the user's messages of a conversation are the turns of a session; the
// recorded answers are left out, the server's own take their place.
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
