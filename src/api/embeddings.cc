#include "api/embeddings.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>

#include "api/json_members.h"
#include "api/json_text.h"

namespace tare::api {
namespace {

// RFC 4648, with padding.
void AppendBase64(std::string& out, std::span<const float> vector) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::uint32_t bits = 0;
  int bytes = 0;
  const auto flush = [&] {
    const int digits = bytes + 1;
    bits <<= 8 * (3 - bytes);
    for (int i = 0; i < 4; ++i)
      out.push_back(i < digits ? kDigits[bits >> (18 - 6 * i) & 63] : '=');
    bits = 0;
    bytes = 0;
  };
  out.reserve(out.size() + vector.size() * 16 / 3 + 4);
  for (const float value : vector) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) {
      bits = bits << 8 | (word >> shift & 0xff);
      if (++bytes == 3) flush();
    }
  }
  if (bytes > 0) flush();
}

}  // namespace

void AppendEmbedding(std::string& out, std::size_t index, std::span<const float> vector,
                     bool base64) {
  fmt::format_to(std::back_inserter(out), R"({{"object":"embedding","index":{},"embedding":)",
                 index);
  if (base64) {
    out.push_back('"');
    AppendBase64(out, vector);
    out.push_back('"');
  } else {
    const char* comma = "[";
    for (const float value : vector) {
      out.append(comma);
      AppendJsonNumber(out, value);
      comma = ",";
    }
    out.push_back(']');
  }
  out.push_back('}');
}

std::string WriteEmbeddings(const AnswerHead& head, std::string_view data, const Usage& usage) {
  std::string out = R"({"object":"list","data":[)";
  out.reserve(data.size() + 256);
  out.append(data).append(R"(],"model":)");
  AppendJsonString(out, head.model);
  fmt::format_to(std::back_inserter(out), R"(,"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                 usage.prompt_tokens, usage.prompt_tokens);
  return out;
}

Result<EmbeddingsAnswer> ReadEmbeddingsAnswer(std::string_view body) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (const auto error = parser.parse(body.data(), body.size()).get(root)) {
    return Fail(ErrorKind::kCorrupt, "the server sent an answer that is not JSON ({})",
                simdjson::error_message(error));
  }
  simdjson::dom::array data;
  if (root["data"].get(data) || data.size() == 0) {
    return Fail(ErrorKind::kCorrupt, "the server sent an answer without embeddings");
  }
  EmbeddingsAnswer answer;
  // The parser only checks: its numbers, written again, could have other digits.
  const auto members = TopLevelMembers(body);
  std::string_view text;
  if (members) {
    const auto named = std::find_if(members->begin(), members->end(),
                                    [](const JsonMember& member) { return member.key == "data"; });
    if (named != members->end()) text = ValueOf(named->text);
  }
  if (text.size() < 2 || text.front() != '[') {
    return Fail(ErrorKind::kCorrupt,
                "the server sent an answer whose data is not where it belongs");
  }
  answer.data.assign(text.substr(1, text.size() - 2));
  std::int64_t tokens = 0;
  if (!root["usage"]["prompt_tokens"].get(tokens)) {
    answer.usage.prompt_tokens = static_cast<int>(std::clamp<std::int64_t>(tokens, 0, 1 << 30));
  }
  return answer;
}

}  // namespace tare::api
