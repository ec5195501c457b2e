// What a client asks and what it gets back, independent of the wire (OpenAI JSON) and of who
// answers (local engine, remote server). Field meanings follow the OpenAI API reference.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace tare::api {

struct SamplingOptions {
  float temperature = 1.0f;
  float top_p = 1.0f;
  int top_k = 0;       // 0: off (extension, as vLLM has it)
  float min_p = 0.0f;  // extension
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  float repetition_penalty = 1.0f;  // extension
  std::map<std::int32_t, float> logit_bias;
  std::optional<std::uint64_t> seed;
  bool ignore_eos = false;  // extension: load tests need exact lengths
  int min_tokens = 0;       // extension
};

enum class Tier { kInteractive, kBatch };

// What to make vectors of: texts, or texts as token ids.
struct EmbeddingsInput {
  std::vector<std::string> texts;
  std::vector<std::vector<TokenId>> tokens;  // instead of texts
  bool base64 = false;                       // how the vectors are written
  std::optional<int> dimensions;             // absent: the model's
  std::optional<int> truncate;  // extension: to so many tokens; -1: to what the model takes

  std::size_t size() const { return texts.size() + tokens.size(); }
  std::size_t text_bytes() const {
    std::size_t bytes = 0;
    for (const std::string& text : texts) bytes += text.size();
    return bytes;
  }
  std::size_t token_count() const {
    std::size_t count = 0;
    for (const auto& ids : tokens) count += ids.size();
    return count;
  }
};

// A chat, a plain completion (`messages_json` is empty), or with `embeddings` a request for
// vectors, which is answered by one chunk whose text is the entries of the wire's "data" array.
struct ChatRequest {
  std::string id;  // request id, ours
  std::string model;
  std::string adapter;        // of the target's model, once a router has found it
  std::string messages_json;  // the "messages" array as JSON text, for the chat template
  // What the answer begins with already: the last message, taken out of messages_json, where the
  // request says continue_final_message (extension, as vLLM has it). The answer is what follows.
  std::string answer_prefix;
  std::string tools_json;              // the "tools" array or empty
  std::string template_kwargs_json;    // extension: further variables of the chat template
  std::string prompt;                  // plain completion
  std::vector<TokenId> prompt_tokens;  // plain completion given as token ids
  std::optional<EmbeddingsInput> embeddings;
  std::optional<int> max_tokens;  // absent: up to the model's length
  std::vector<std::string> stop;
  std::vector<TokenId> stop_tokens;  // extension
  SamplingOptions sampling;
  std::optional<int> logprobs;  // top alternatives per token; absent: none
  int n = 1;
  bool stream = false;
  bool include_usage = false;  // stream_options.include_usage
  Tier tier = Tier::kInteractive;
  std::string user;
  std::string cache_salt;  // isolates the prefix cache between tenants
  // The client's own request, for upstreams that understand more of it than we do.
  std::string wire_body;
  // Parts of it that only such upstreams can fulfil; the local engine refuses with the first.
  std::vector<Error> unsupported;

  // What there is to read: bytes of text that is yet to be tokenized, and tokens given as such.
  struct InputSize {
    std::size_t bytes = 0, tokens = 0;
  };
  InputSize input_size() const {
    InputSize size{messages_json.size() + tools_json.size() + prompt.size() + answer_prefix.size(),
                   prompt_tokens.size()};
    if (embeddings) {
      size.bytes += embeddings->text_bytes();
      size.tokens += embeddings->token_count();
    }
    return size;
  }
};

struct TokenLogprob {
  std::string token;
  float logprob = 0.0f;
  std::vector<std::pair<std::string, float>> top;
};

struct Usage {
  int prompt_tokens = 0;
  int completion_tokens = 0;
  int cached_tokens = 0;  // of prompt_tokens
};

enum class FinishReason {
  kNone,
  kStop,
  kLength,
  kToolCalls,      // remote upstreams only
  kContentFilter,  // remote upstreams only
  kCancelled,
  kError,
};
// "stop", "length", ...: the wire's word; nullptr for kNone.
const char* ToString(FinishReason reason);

// A piece of one choice's answer. `tokens` counts the tokens the text stands for (0 when the
// text was held back before, for example for a stop string).
struct ChatChunk {
  int index = 0;
  std::string text;
  int tokens = 0;
  std::vector<TokenLogprob> logprobs;
  FinishReason finish = FinishReason::kNone;
  // Further members of the wire's delta, as JSON without the braces: tool calls, reasoning.
  std::string extra_json;
};

}  // namespace tare::api
