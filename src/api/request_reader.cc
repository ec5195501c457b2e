#include "api/request_reader.h"

#include <simdjson.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "api/messages.h"

namespace tare::api {

namespace {

namespace dom = simdjson::dom;

constexpr std::size_t kMaxStopStrings = 16;
constexpr std::size_t kMaxStopBytes = 1024;
constexpr int kMaxChoices = 128;
constexpr int kMaxTopLogprobs = 20;
constexpr std::size_t kMaxInputs =
    2048;  // of an embeddings request, as the OpenAI reference has it
constexpr int kMaxDimensions = 1 << 20;
constexpr int kDefaultCompletionTokens = 16;  // the OpenAI reference's default
// Parsers above this size are not kept for the thread's next request.
constexpr std::size_t kKeptParserBytes = 256 * 1024;

// The body as a JSON object. The parser owns what the elements refer to.
class Document {
 public:
  Result<dom::object> Parse(std::string_view body) {
    thread_local dom::parser kept;
    dom::parser& parser = body.size() <= kKeptParserBytes ? kept : own_;
    if (parser.capacity() < body.size() || parser.max_depth() != kMaxJsonDepth) {
      if (auto error = parser.allocate(std::max<std::size_t>(body.size(), 4096), kMaxJsonDepth)) {
        return Fail(ErrorKind::kResourceExhausted, "cannot read the request body: {}",
                    simdjson::error_message(error));
      }
    }
    dom::element root;
    if (auto error = parser.parse(body.data(), body.size()).get(root)) {
      if (error == simdjson::DEPTH_ERROR) {
        return Fail(ErrorKind::kInvalidArgument, "the request body nests deeper than {} levels",
                    kMaxJsonDepth);
      }
      return Fail(ErrorKind::kInvalidArgument, "the request body is not valid JSON: {}",
                  simdjson::error_message(error));
    }
    dom::object object;
    if (root.get(object)) {
      return Fail(ErrorKind::kInvalidArgument, "the request body must be a JSON object");
    }
    return object;
  }

 private:
  dom::parser own_;
};

Status ReadString(dom::element value, const char* name, std::string& out) {
  std::string_view text;
  if (value.get(text)) return FailParam(name, "{} must be a string", name);
  out.assign(text);
  return {};
}

Status ReadBool(dom::element value, const char* name, bool& out) {
  if (value.get(out)) return FailParam(name, "{} must be true or false", name);
  return {};
}

Result<std::int64_t> ReadInt(dom::element value, const std::string& name, std::int64_t low,
                             std::int64_t high) {
  std::int64_t number = 0;
  if (value.get(number)) return FailParam(name, "{} must be an integer", name);
  if (number < low || number > high) {
    return FailParam(name, "{} is {}; it must be from {} to {}", name, number, low, high);
  }
  return number;
}

Status ReadFloat(dom::element value, const char* name, double low, double high, float& out) {
  double number = 0;
  if (value.get(number)) return FailParam(name, "{} must be a number", name);
  if (!(number >= low && number <= high)) {
    return FailParam(name, "{} is {}; it must be from {} to {}", name, number, low, high);
  }
  out = static_cast<float>(number);
  return {};
}

Status ReadTokens(dom::element value, const std::string& name, std::vector<TokenId>& out) {
  dom::array array;
  if (value.get(array)) return FailParam(name, "{} must be an array of token ids", name);
  out.reserve(array.size());
  for (const dom::element element : array) {
    TARE_TRY(const std::int64_t id,
             ReadInt(element, name, 0, std::numeric_limits<std::int32_t>::max()));
    out.push_back(TokenId(static_cast<std::int32_t>(id)));
  }
  return {};
}

// A text that must be there and not be empty.
Status ReadNeeded(const dom::object& object, const char* name, std::string& out) {
  dom::element value;
  if (object[name].get(value) || value.is_null()) return FailParam(name, "{} is missing", name);
  TARE_RETURN_IF_ERROR(ReadString(value, name, out));
  if (out.empty()) return FailParam(name, "{} is empty", name);
  return {};
}

Status ReadStop(dom::element value, std::vector<std::string>& out) {
  const auto add = [&](dom::element element) -> Status {
    std::string_view text;
    if (element.get(text)) return FailParam("stop", "stop must be a string or an array of strings");
    if (text.empty()) return FailParam("stop", "stop must not hold an empty string");
    if (text.size() > kMaxStopBytes) {
      return FailParam("stop", "a stop string has {} bytes, the limit is {}", text.size(),
                       kMaxStopBytes);
    }
    out.emplace_back(text);
    return {};
  };
  dom::array array;
  if (value.get(array)) return add(value);
  if (array.size() > kMaxStopStrings) {
    return FailParam("stop", "stop holds {} strings, the limit is {}", array.size(),
                     kMaxStopStrings);
  }
  for (const dom::element element : array) TARE_RETURN_IF_ERROR(add(element));
  return {};
}

Status ReadLogitBias(dom::element value, std::map<std::int32_t, float>& out) {
  dom::object object;
  if (value.get(object)) return FailParam("logit_bias", "logit_bias must be an object");
  for (const auto [key, bias] : object) {
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
      return FailParam("logit_bias", "logit_bias has the key '{}', which is not a token id", key);
    }
    float number = 0;
    TARE_RETURN_IF_ERROR(ReadFloat(bias, "logit_bias", -100, 100, number));
    out[id] = number;
  }
  return {};
}

// What the two endpoints' readers collect before the parts are put together.
struct Draft {
  ChatRequest request;
  bool has_stream_options = false;
  bool has_prompt = false;
  bool has_messages = false;
  std::optional<bool> logprobs;
  std::optional<int> top_logprobs;
  std::optional<int> max_completion_tokens;
  bool tools_off = false;
  bool continues = false;
  std::optional<bool> generation_prompt;
};

// A feature that changes the answer must not be ignored by those who do not have it.
template <typename... Args>
void NotEverywhere(Draft& draft, const char* param, fmt::format_string<Args...> format,
                   Args&&... args) {
  draft.request.unsupported.push_back(
      {ErrorKind::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...), param, ""});
}

Status ReadResponseFormat(dom::element value, Draft& draft) {
  std::string_view type;
  if (value["type"].get(type)) {
    return FailParam("response_format", "response_format must be an object with a string 'type'");
  }
  if (type != "text") {
    NotEverywhere(draft, "response_format.type",
                  "response_format.type is '{}'; this model's server answers in 'text' only", type);
  }
  return {};
}

Status ReadModalities(dom::element value, Draft& draft) {
  dom::array array;
  if (value.get(array)) return FailParam("modalities", "modalities must be an array");
  for (const dom::element element : array) {
    std::string_view modality;
    if (element.get(modality)) return FailParam("modalities", "modalities must hold strings");
    if (modality != "text") NotEverywhere(draft, "modalities", "modalities may hold 'text' only");
  }
  return {};
}

Status ReadStreamOptions(dom::element value, Draft& draft) {
  dom::object options;
  if (value.get(options)) return FailParam("stream_options", "stream_options must be an object");
  draft.has_stream_options = true;
  dom::element usage;
  if (options["include_usage"].get(usage) || usage.is_null()) return {};
  return ReadBool(usage, "stream_options.include_usage", draft.request.include_usage);
}

Status ReadToolChoice(dom::element value, Draft& draft) {
  std::string_view choice;
  if (!value.get(choice) && (choice == "auto" || choice == "none")) {
    draft.tools_off = choice == "none";
    return {};
  }
  if (!value.is_string() && !value.is_object()) {
    return FailParam("tool_choice", "tool_choice must be a string or an object");
  }
  NotEverywhere(draft, "tool_choice",
                "tool_choice may be 'auto' or 'none' here; forcing a call is not supported");
  return {};
}

// The options both endpoints share. False: the key is not one of them.
Result<bool> ReadShared(std::string_view key, dom::element value, Draft& draft) {
  ChatRequest& request = draft.request;
  SamplingOptions& sampling = request.sampling;
  constexpr std::int64_t kIntMax = std::numeric_limits<std::int32_t>::max();
  Status status;
  if (key == "model") {
    status = ReadString(value, "model", request.model);
  } else if (key == "temperature") {
    status = ReadFloat(value, "temperature", 0, 2, sampling.temperature);
  } else if (key == "top_p") {
    status = ReadFloat(value, "top_p", 0, 1, sampling.top_p);
  } else if (key == "min_p") {
    status = ReadFloat(value, "min_p", 0, 1, sampling.min_p);
  } else if (key == "frequency_penalty") {
    status = ReadFloat(value, "frequency_penalty", -2, 2, sampling.frequency_penalty);
  } else if (key == "presence_penalty") {
    status = ReadFloat(value, "presence_penalty", -2, 2, sampling.presence_penalty);
  } else if (key == "repetition_penalty") {
    status = ReadFloat(value, "repetition_penalty", 0.01, 100, sampling.repetition_penalty);
  } else if (key == "top_k") {
    TARE_TRY(const std::int64_t top_k, ReadInt(value, "top_k", -1, kIntMax));
    sampling.top_k = static_cast<int>(std::max<std::int64_t>(top_k, 0));
  } else if (key == "max_tokens") {
    TARE_TRY(const std::int64_t tokens, ReadInt(value, "max_tokens", 1, kIntMax));
    request.max_tokens = static_cast<int>(tokens);
  } else if (key == "max_completion_tokens") {
    TARE_TRY(const std::int64_t tokens, ReadInt(value, "max_completion_tokens", 1, kIntMax));
    draft.max_completion_tokens = static_cast<int>(tokens);
  } else if (key == "min_tokens") {
    TARE_TRY(const std::int64_t tokens, ReadInt(value, "min_tokens", 0, kIntMax));
    sampling.min_tokens = static_cast<int>(tokens);
  } else if (key == "ignore_eos") {
    status = ReadBool(value, "ignore_eos", sampling.ignore_eos);
  } else if (key == "seed") {
    TARE_TRY(const std::int64_t seed,
             ReadInt(value, "seed", std::numeric_limits<std::int64_t>::min(),
                     std::numeric_limits<std::int64_t>::max()));
    sampling.seed = static_cast<std::uint64_t>(seed);
  } else if (key == "logit_bias") {
    status = ReadLogitBias(value, sampling.logit_bias);
  } else if (key == "n") {
    TARE_TRY(const std::int64_t n, ReadInt(value, "n", 1, kMaxChoices));
    request.n = static_cast<int>(n);
  } else if (key == "stream") {
    status = ReadBool(value, "stream", request.stream);
  } else if (key == "stream_options") {
    status = ReadStreamOptions(value, draft);
  } else if (key == "stop") {
    status = ReadStop(value, request.stop);
  } else if (key == "stop_token_ids") {
    status = ReadTokens(value, "stop_token_ids", request.stop_tokens);
  } else if (key == "user") {
    status = ReadString(value, "user", request.user);
  } else if (key == "cache_salt") {
    status = ReadString(value, "cache_salt", request.cache_salt);
  } else if (key == "service_tier") {
    std::string tier;
    status = ReadString(value, "service_tier", tier);
    if (tier == "flex" || tier == "batch") request.tier = Tier::kBatch;
  } else if (key == "response_format") {
    status = ReadResponseFormat(value, draft);
  } else {
    return false;
  }
  if (!status) return tl::unexpected(std::move(status).error());
  return true;
}

Status ReadChatField(std::string_view key, dom::element value, Draft& draft) {
  ChatRequest& request = draft.request;
  if (key == "messages") {
    draft.has_messages = true;
    TARE_TRY(request.messages_json, NormalizeMessages(value, request.unsupported));
  } else if (key == "tools") {
    TARE_TRY(request.tools_json, NormalizeTools(value));
  } else if (key == "tool_choice") {
    return ReadToolChoice(value, draft);
  } else if (key == "functions" || key == "function_call") {
    NotEverywhere(draft, key == "functions" ? "functions" : "function_call",
                  "{} is not supported; use tools", key);
  } else if (key == "modalities") {
    return ReadModalities(value, draft);
  } else if (key == "audio") {
    NotEverywhere(draft, "audio", "audio is not supported by this model");
  } else if (key == "continue_final_message") {
    return ReadBool(value, "continue_final_message", draft.continues);
  } else if (key == "add_generation_prompt") {
    bool wanted = true;
    TARE_RETURN_IF_ERROR(ReadBool(value, "add_generation_prompt", wanted));
    draft.generation_prompt = wanted;
  } else if (key == "chat_template_kwargs") {
    if (!value.is_object()) {
      return FailParam("chat_template_kwargs", "chat_template_kwargs must be an object");
    }
    request.template_kwargs_json = simdjson::minify(value);
  } else if (key == "logprobs") {
    bool wanted = false;
    TARE_RETURN_IF_ERROR(ReadBool(value, "logprobs", wanted));
    draft.logprobs = wanted;
  } else if (key == "top_logprobs") {
    TARE_TRY(const std::int64_t top, ReadInt(value, "top_logprobs", 0, kMaxTopLogprobs));
    draft.top_logprobs = static_cast<int>(top);
  }
  return {};
}

// A string, an array of token ids, or an array of one of these.
Status ReadPrompt(dom::element value, Draft& draft) {
  draft.has_prompt = true;
  std::string_view text;
  if (!value.get(text)) {
    draft.request.prompt.assign(text);
    return {};
  }
  dom::array array;
  if (value.get(array) || array.size() == 0) {
    return FailParam("prompt", "prompt must be a string or a non-empty array of token ids");
  }
  const dom::element first = *array.begin();
  if (first.is_int64()) return ReadTokens(value, "prompt", draft.request.prompt_tokens);
  if (array.size() > 1) {
    NotEverywhere(draft, "prompt", "prompt holds {} prompts; send one request for each",
                  array.size());
    return {};
  }
  if (!first.get(text)) {
    draft.request.prompt.assign(text);
    return {};
  }
  TARE_RETURN_IF_ERROR(ReadTokens(first, "prompt", draft.request.prompt_tokens));
  if (draft.request.prompt_tokens.empty()) {
    return FailParam("prompt", "prompt must hold at least one token id");
  }
  return {};
}

Status ReadCompletionField(std::string_view key, dom::element value, Draft& draft) {
  if (key == "prompt") return ReadPrompt(value, draft);
  if (key == "logprobs") {
    TARE_TRY(const std::int64_t top, ReadInt(value, "logprobs", 0, kMaxTopLogprobs));
    draft.request.logprobs = static_cast<int>(top);
  } else if (key == "echo") {
    bool echo = false;
    TARE_RETURN_IF_ERROR(ReadBool(value, "echo", echo));
    if (echo) {
      NotEverywhere(draft, "echo", "echo is not supported; the prompt is known to the caller");
    }
  } else if (key == "suffix") {
    NotEverywhere(draft, "suffix", "suffix is not supported by this model");
  } else if (key == "best_of") {
    TARE_TRY(const std::int64_t best, ReadInt(value, "best_of", 0, kMaxChoices));
    if (best > 1) {
      NotEverywhere(draft, "best_of", "best_of must be 1; n asks for several answers");
    }
  }
  return {};
}

// A string, an array of strings, an array of token ids, or an array of such arrays.
Status ReadInput(dom::element value, EmbeddingsInput& out) {
  std::string_view text;
  if (!value.get(text)) {
    out.texts.emplace_back(text);
    return {};
  }
  dom::array array;
  if (value.get(array) || array.size() == 0) {
    return FailParam("input",
                     "input must be a string, an array of strings, an array of token ids or an "
                     "array of such arrays, and not empty");
  }
  const dom::element first = *array.begin();
  if (first.is_int64()) return ReadTokens(value, "input", out.tokens.emplace_back());
  if (array.size() > kMaxInputs) {
    return FailParam("input", "input holds {} texts, the limit is {}", array.size(), kMaxInputs);
  }
  const bool texts = first.is_string();
  for (const dom::element element : array) {
    if (!texts) {
      TARE_RETURN_IF_ERROR(ReadTokens(element, "input", out.tokens.emplace_back()));
    } else if (element.get(text)) {
      return FailParam("input", "input holds strings and something else");
    } else {
      out.texts.emplace_back(text);
    }
  }
  return {};
}

Status ReadEmbeddingsField(std::string_view key, dom::element value, Draft& draft) {
  EmbeddingsInput& embeddings = *draft.request.embeddings;
  if (key == "model" || key == "user" || key == "service_tier") {
    TARE_RETURN_IF_ERROR(ReadShared(key, value, draft));
  } else if (key == "input") {
    if (embeddings.size() != 0) return FailParam("input", "input is there twice");
    return ReadInput(value, embeddings);
  } else if (key == "dimensions") {
    TARE_TRY(const std::int64_t dimensions, ReadInt(value, "dimensions", 1, kMaxDimensions));
    embeddings.dimensions = static_cast<int>(dimensions);
  } else if (key == "truncate_prompt_tokens") {
    TARE_TRY(const std::int64_t most, ReadInt(value, "truncate_prompt_tokens", -1,
                                              std::numeric_limits<std::int32_t>::max()));
    if (most == 0) {
      return FailParam("truncate_prompt_tokens",
                       "truncate_prompt_tokens must be at least 1, or -1");
    }
    embeddings.truncate = static_cast<int>(most);
  } else if (key == "encoding_format") {
    std::string format;
    TARE_RETURN_IF_ERROR(ReadString(value, "encoding_format", format));
    embeddings.base64 = format == "base64";
    if (format != "float" && format != "base64") {
      NotEverywhere(draft, "encoding_format", "encoding_format may be 'float' or 'base64' here");
    }
  }
  return {};
}

using FieldReader = Status (*)(std::string_view, dom::element, Draft&);

Result<Draft> ReadFields(std::string_view body, FieldReader read_field) {
  Document document;
  TARE_TRY(const dom::object object, document.Parse(body));
  Draft draft;
  for (const auto [key, value] : object) {
    if (value.is_null()) continue;
    TARE_TRY(const bool shared, ReadShared(key, value, draft));
    if (!shared) TARE_RETURN_IF_ERROR(read_field(key, value, draft));
  }
  return draft;
}

// The rules that join several fields.
Status Settle(Draft& draft) {
  ChatRequest& request = draft.request;
  if (request.model.empty()) return FailParam("model", "model is missing: name the model to ask");
  if (draft.has_stream_options && !request.stream) {
    return FailParam("stream_options", "stream_options is only allowed with stream: true");
  }
  if (draft.max_completion_tokens) request.max_tokens = draft.max_completion_tokens;
  if (request.max_tokens && request.sampling.min_tokens > *request.max_tokens) {
    return FailParam("min_tokens", "min_tokens is {}, more than max_tokens, which is {}",
                     request.sampling.min_tokens, *request.max_tokens);
  }
  if (draft.top_logprobs.value_or(0) > 0 && !draft.logprobs.value_or(false)) {
    return FailParam("top_logprobs", "top_logprobs is only allowed with logprobs: true");
  }
  if (draft.logprobs.value_or(false)) request.logprobs = draft.top_logprobs.value_or(0);
  if (draft.tools_off) request.tools_json.clear();
  return {};
}

// Of chats: how continue_final_message and add_generation_prompt go together.
Status SettleContinuation(Draft& draft) {
  if (draft.generation_prompt && *draft.generation_prompt == draft.continues) {
    if (draft.continues) {
      return FailParam("add_generation_prompt",
                       "add_generation_prompt begins a new message; leave it out, or send false, "
                       "with continue_final_message");
    }
    NotEverywhere(draft, "add_generation_prompt",
                  "add_generation_prompt may be false only with continue_final_message here");
  }
  if (draft.continues) {
    TARE_TRY(draft.request.answer_prefix, TakeAnswerPrefix(draft.request.messages_json));
  }
  return {};
}

}  // namespace

Result<ChatRequest> ReadChatRequest(std::string_view body) {
  TARE_TRY(Draft draft, ReadFields(body, ReadChatField));
  if (!draft.has_messages) return FailParam("messages", "messages is missing");
  TARE_RETURN_IF_ERROR(Settle(draft));
  TARE_RETURN_IF_ERROR(SettleContinuation(draft));
  return std::move(draft.request);
}

Result<ChatRequest> ReadCompletionRequest(std::string_view body) {
  TARE_TRY(Draft draft, ReadFields(body, ReadCompletionField));
  if (!draft.has_prompt) return FailParam("prompt", "prompt is missing");
  TARE_RETURN_IF_ERROR(Settle(draft));
  if (!draft.request.max_tokens) {
    draft.request.max_tokens =
        std::max(kDefaultCompletionTokens, draft.request.sampling.min_tokens);
  }
  return std::move(draft.request);
}

Result<ChatRequest> ReadEmbeddingsRequest(std::string_view body) {
  Document document;
  TARE_TRY(const dom::object object, document.Parse(body));
  Draft draft;
  draft.request.embeddings.emplace();
  draft.request.max_tokens = 0;  // nothing is written
  for (const auto [key, value] : object) {
    if (!value.is_null()) TARE_RETURN_IF_ERROR(ReadEmbeddingsField(key, value, draft));
  }
  if (draft.request.embeddings->size() == 0) return FailParam("input", "input is missing");
  TARE_RETURN_IF_ERROR(Settle(draft));
  return std::move(draft.request);
}

Result<TokenizeRequest> ReadTokenizeRequest(std::string_view body) {
  TARE_TRY(Draft draft, ReadFields(body, [](std::string_view key, dom::element value, Draft& d) {
             return key == "prompt" ? ReadPrompt(value, d) : ReadChatField(key, value, d);
           }));
  if (draft.has_prompt == draft.has_messages) {
    return FailParam("prompt", "give either prompt or messages");
  }
  if (draft.has_messages) TARE_RETURN_IF_ERROR(SettleContinuation(draft));
  TokenizeRequest request{std::move(draft.request), true};
  Document document;
  TARE_TRY(const dom::object object, document.Parse(body));
  dom::element special;
  if (!object["add_special_tokens"].get(special) && !special.is_null()) {
    TARE_RETURN_IF_ERROR(ReadBool(special, "add_special_tokens", request.add_special_tokens));
  }
  return request;
}

Result<DetokenizeRequest> ReadDetokenizeRequest(std::string_view body) {
  Document document;
  TARE_TRY(const dom::object object, document.Parse(body));
  DetokenizeRequest request;
  dom::element value;
  if (!object["model"].get(value) && !value.is_null()) {
    TARE_RETURN_IF_ERROR(ReadString(value, "model", request.model));
  }
  if (object["tokens"].get(value)) return FailParam("tokens", "tokens is missing");
  TARE_RETURN_IF_ERROR(ReadTokens(value, "tokens", request.tokens));
  return request;
}

Result<FeedbackRequest> ReadFeedback(std::string_view body) {
  Document document;
  TARE_TRY(const dom::object object, document.Parse(body));
  FeedbackRequest feedback;
  dom::element value;
  if (object["id"].get(value)) return FailParam("id", "id is missing: the answer's X-Request-Id");
  TARE_RETURN_IF_ERROR(ReadString(value, "id", feedback.request_id));
  std::int64_t label = 0;
  if (object["label"].get(label) || label < -1 || label > 1) {
    return FailParam("label", "label must be 1 (good), 0 or -1 (bad)");
  }
  feedback.label = static_cast<int>(label);
  return feedback;
}

Result<LoadAdapterRequest> ReadLoadAdapter(std::string_view body) {
  Document document;
  TARE_TRY(const dom::object object, document.Parse(body));
  LoadAdapterRequest request;
  TARE_RETURN_IF_ERROR(ReadNeeded(object, "lora_name", request.name));
  TARE_RETURN_IF_ERROR(ReadNeeded(object, "lora_path", request.folder));
  dom::element value;
  if (!object["load_inplace"].get(value) && !value.is_null()) {
    TARE_RETURN_IF_ERROR(ReadBool(value, "load_inplace", request.replace));
  }
  if (!object["base_model_name"].get(value) && !value.is_null()) {
    TARE_RETURN_IF_ERROR(ReadString(value, "base_model_name", request.base));
  }
  return request;
}

Result<std::string> ReadUnloadAdapter(std::string_view body) {
  Document document;
  TARE_TRY(const dom::object object, document.Parse(body));
  std::string name;
  TARE_RETURN_IF_ERROR(ReadNeeded(object, "lora_name", name));
  return name;
}

}  // namespace tare::api
