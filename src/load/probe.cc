#include "load/probe.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "load/chunk.h"
#include "load/random.h"
#include "load/words.h"
#include "net/http_client.h"

namespace tare::load {
namespace {

using nlohmann::json;

// Words of the two prompts whose counted lengths give the template's share and the slope. Their
// difference is long enough that one odd word moves the slope by 1 %.
constexpr int kShortProbe = 16;
constexpr int kLongProbe = 116;

net::ClientRequest MakeRequest(const LoadOptions& options, const net::Url& url,
                               const net::HttpHeaders& headers, std::string body) {
  net::ClientRequest request;
  request.method = body.empty() ? "GET" : "POST";
  request.url = url;
  request.headers = headers;
  request.body = std::move(body);
  request.connect_timeout = options.connect_timeout;
  request.total_timeout = options.request_timeout;
  return request;
}

Result<net::ClientResponse> Fetch(const LoadOptions& options, const net::Url& url,
                                  const net::HttpHeaders& headers, std::string body = {}) {
  return net::FetchBlocking(MakeRequest(options, url, headers, std::move(body)), 64 << 20,
                            options.verify_tls);
}

std::string Shorten(const std::string& text) { return text.substr(0, 300); }

Result<std::string> FirstModel(const LoadOptions& options, const Target& target) {
  const net::Url url = target.base.WithPath("/v1/models");
  TARE_TRY(const net::ClientResponse response, Fetch(options, url, target.shape.headers));
  if (response.head.status != 200) {
    return Fail(ErrorKind::kUnavailable, "{}{} answers HTTP {}: {}; name the model with --model",
                url.Origin(), url.target, response.head.status, Shorten(response.body));
  }
  const json document = json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  if (document.is_object() && document.contains("data") && document["data"].is_array()) {
    for (const json& model : document["data"]) {
      if (model.is_object() && model.contains("id") && model["id"].is_string()) {
        return model["id"].get<std::string>();
      }
    }
  }
  return Fail(ErrorKind::kNotFound, "{} lists no model at /v1/models; name it with --model",
              url.Origin());
}

std::string HeadJson(const LoadOptions& options, const Target& target, bool stream) {
  std::string head =
      "{\"model\":" + json(target.model).dump(-1, ' ', false, json::error_handler_t::replace);
  head += fmt::format(",\"temperature\":{}", json(options.temperature).dump());
  if (stream) head += ",\"stream\":true,\"stream_options\":{\"include_usage\":true}";
  return head;
}

// Sends a prompt of `words` words that asks for one token. The counted prompt, or nothing when the
// server does not count.
Result<std::optional<int>> PromptTokens(const LoadOptions& options, Target& target,
                                        const std::vector<std::string_view>& words, int count) {
  Prompt prompt;
  prompt.content_json =
      "\"" + MakeWords(words, StreamSeed(options.workload.seed, ~std::uint64_t{7}), count) + "\"";
  prompt.output_tokens = 1;
  RequestShape shape = target.shape;
  shape.head_json = HeadJson(options, target, /*stream=*/false);
  TARE_TRY(net::ClientResponse response,
           Fetch(options, shape.url, shape.headers, MakeBody(shape, prompt)));
  if (response.head.status >= 400 && response.head.status < 500 && shape.exact_lengths) {
    // Not every server takes the fields that fix an answer's length.
    shape.exact_lengths = false;
    TARE_TRY(net::ClientResponse plain,
             Fetch(options, shape.url, shape.headers, MakeBody(shape, prompt)));
    if (plain.head.status == 200) {
      LogWarn("{} refuses ignore_eos and min_tokens: answers may be shorter than asked",
              target.base.Origin());
      target.shape.exact_lengths = false;
      response = std::move(plain);
    }
  }
  if (response.head.status != 200) {
    return Fail(response.head.status == 401 || response.head.status == 403
                    ? ErrorKind::kInvalidArgument
                    : ErrorKind::kUnavailable,
                "{}{} answers HTTP {} to a first request: {}", shape.url.Origin(), shape.url.target,
                response.head.status, Shorten(response.body));
  }
  if (const std::string* server = net::FindHeader(response.head.headers, "server")) {
    target.server = *server;
  }
  ChunkReader reader;
  const ChunkFacts facts = reader.ReadWhole(response.body);
  if (!facts.well_formed) {
    return Fail(ErrorKind::kUnsupported,
                "{}{} does not answer in JSON; is it an OpenAI-compatible server?",
                shape.url.Origin(), shape.url.target);
  }
  if (!facts.error.empty()) {
    return Fail(ErrorKind::kUnavailable, "{} reports: {}", target.base.Origin(), facts.error);
  }
  if (!facts.has_usage || facts.prompt_tokens <= 0) return std::optional<int>();
  return std::optional<int>(facts.prompt_tokens);
}

// vLLM, llama-server and Tare have a /tokenize; they differ in the names of the text.
Result<std::size_t> AskTokenize(const LoadOptions& options, const Target& target,
                                const std::string& text) {
  const json body = {{"model", target.model}, {"prompt", text}, {"content", text}};
  TARE_TRY(const net::ClientResponse response,
           Fetch(options, target.base.WithPath("/tokenize"), target.shape.headers, body.dump()));
  if (response.head.status == 200) {
    const json document = json::parse(response.body, nullptr, /*allow_exceptions=*/false);
    if (document.is_object()) {
      if (const auto it = document.find("count");
          it != document.end() && it->is_number_unsigned()) {
        return it->get<std::size_t>();
      }
      if (const auto it = document.find("tokens"); it != document.end() && it->is_array()) {
        return it->size();
      }
    }
  }
  return Fail(ErrorKind::kUnsupported, "no /tokenize");
}

Status Calibrate(const LoadOptions& options, Target& target) {
  TokenCalibration& calibration = target.calibration;
  calibration.words.assign(CommonWords().begin(), CommonWords().end());
  if (options.workload.count_tokens) {
    Result<std::vector<std::string_view>> words = SingleTokenWords(options.workload.count_tokens);
    if (words) {
      calibration.words = *std::move(words);
      calibration.how = "tokenizer";
    }
  } else {
    Result<std::vector<std::string_view>> words = SingleTokenWords(
        [&](const std::string& text) { return AskTokenize(options, target, text); });
    if (words) {
      calibration.words = *std::move(words);
      calibration.how = "tokenize endpoint";
    }
  }
  TARE_TRY(const std::optional<int> short_count,
           PromptTokens(options, target, calibration.words, kShortProbe));
  TARE_TRY(const std::optional<int> long_count,
           PromptTokens(options, target, calibration.words, kLongProbe));
  if (!short_count || !long_count || *long_count <= *short_count) {
    LogWarn("{} does not count prompt tokens: prompt lengths are an estimate (1.3 tokens a word)",
            target.base.Origin());
    if (calibration.how == "assumed") calibration.tokens_per_word = 1.3;
    return {};
  }
  const double slope = static_cast<double>(*long_count - *short_count) / (kLongProbe - kShortProbe);
  if (calibration.how == "assumed") calibration.how = "usage";
  // Words known as single tokens make the slope 1; what differs then is the template's doing.
  calibration.tokens_per_word = calibration.how == "usage" ? slope : 1;
  calibration.overhead = std::max(
      0, static_cast<int>(std::lround(*short_count - calibration.tokens_per_word * kShortProbe)));
  return {};
}

}  // namespace

Result<net::Url> ParseTargetUrl(const std::string& text) {
  TARE_TRY(net::Url url, net::ParseUrl(text));
  for (const std::string_view suffix : {"/", "/chat/completions", "/completions", "/v1", "/"}) {
    if (url.target.size() >= suffix.size() &&
        url.target.compare(url.target.size() - suffix.size(), suffix.size(), suffix) == 0) {
      url.target.resize(url.target.size() - suffix.size());
    }
  }
  if (url.target.empty()) url.target = "/";
  return url;
}

Result<Target> ProbeTarget(const LoadOptions& options) {
  Target target;
  TARE_TRY(target.base, ParseTargetUrl(options.url));
  RequestShape& shape = target.shape;
  shape.chat = options.api == Api::kChat;
  shape.stream = options.stream;
  shape.url = target.base.WithPath(shape.chat ? "/v1/chat/completions" : "/v1/completions");
  shape.request_timeout = options.request_timeout;
  shape.connect_timeout = options.connect_timeout;
  shape.headers = {{"Content-Type", "application/json"}, {"User-Agent", "tare-load"}};
  if (!options.api_key.empty()) {
    shape.headers.push_back({"Authorization", "Bearer " + options.api_key});
  }
  target.model = options.model;
  if (target.model.empty()) {
    TARE_TRY(target.model, FirstModel(options, target));
  }
  TARE_RETURN_IF_ERROR(Calibrate(options, target));
  shape.head_json = HeadJson(options, target, options.stream);
  return target;
}

}  // namespace tare::load
