// OpenAI requests as they come over the wire -> our values.
//
// Types are strict: a field of the wrong type, an impossible value or a feature this server does
// not have is refused with the parameter's name; null means absent; fields nobody here acts on are
// accepted and ignored, as OpenAI clients send many. Sizes are bounded by the server's body limit,
// nesting by kMaxJsonDepth.
//
// Thread safety: all functions may be called from any thread.
// Source: OpenAI API reference (CreateChatCompletionRequest, CreateCompletionRequest,
// CreateEmbeddingRequest); extensions
// (top_k, min_p, repetition_penalty, ignore_eos, min_tokens, stop_token_ids, cache_salt,
// chat_template_kwargs, truncate_prompt_tokens, /tokenize, /detokenize, adapters) as vLLM has them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/chat.h"
#include "base/result.h"

namespace tare::api {

// Chat templates are fed by a JSON reader that stops at 128.
inline constexpr std::size_t kMaxJsonDepth = 100;

// POST /v1/chat/completions.
Result<ChatRequest> ReadChatRequest(std::string_view body);

// POST /v1/completions. `prompt` or `prompt_tokens` is set, `messages_json` empty.
Result<ChatRequest> ReadCompletionRequest(std::string_view body);

// POST /v1/embeddings. `embeddings` is set.
Result<ChatRequest> ReadEmbeddingsRequest(std::string_view body);

// POST /tokenize: {"prompt"} or {"messages"[, "tools"]}, like the requests above.
struct TokenizeRequest {
  ChatRequest input;
  bool add_special_tokens = true;
};
Result<TokenizeRequest> ReadTokenizeRequest(std::string_view body);

// POST /detokenize: {"tokens":[...]}.
struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;
};
Result<DetokenizeRequest> ReadDetokenizeRequest(std::string_view body);

// POST /v1/feedback: {"id": the X-Request-Id of an answer, "label": 1, 0 or
// -1}.
struct FeedbackRequest {
  std::string request_id;
  int label = 0;
};
Result<FeedbackRequest> ReadFeedback(std::string_view body);

// POST /v1/load_lora_adapter: {"lora_name","lora_path"}, as vLLM has it, and its extensions.
struct LoadAdapterRequest {
  std::string name;
  std::string folder;    // on the server's machine
  bool replace = false;  // "load_inplace": a name that is taken gets the new adapter
  std::string base;      // "base_model_name"; may be empty where one model alone can be meant
};
Result<LoadAdapterRequest> ReadLoadAdapter(std::string_view body);

// POST /v1/unload_lora_adapter: {"lora_name"}. The name.
Result<std::string> ReadUnloadAdapter(std::string_view body);

}  // namespace tare::api
