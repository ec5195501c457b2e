#include "api/json_members.h"

#include <algorithm>
#include <array>

namespace tare::api {

namespace {

// The place after a string that begins (with its quote) at `at`.
std::size_t SkipString(std::string_view json, std::size_t at) {
  while (true) {
    at = json.find('"', at + 1);
    if (at == std::string_view::npos) return at;
    std::size_t slashes = 0;
    while (json[at - 1 - slashes] == '\\') ++slashes;
    if (slashes % 2 == 0) return at + 1;
  }
}

// find_first_of looks each character up in the set by a search.
class CharacterSet {
 public:
  constexpr explicit CharacterSet(std::string_view characters) {
    for (const char c : characters) has_[static_cast<unsigned char>(c)] = true;
  }
  std::size_t Find(std::string_view text, std::size_t from) const {
    while (from < text.size() && !has_[static_cast<unsigned char>(text[from])]) ++from;
    return from < text.size() ? from : std::string_view::npos;
  }

 private:
  std::array<bool, 256> has_{};
};
constexpr CharacterSet kKeyOrEnd("\"}");
constexpr CharacterSet kStructure("\"{}[],");

}  // namespace

std::optional<std::vector<JsonMember>> TopLevelMembers(std::string_view json) {
  std::vector<JsonMember> members;
  std::size_t at = json.find('{');
  while (at != std::string_view::npos) {
    const std::size_t begin = kKeyOrEnd.Find(json, at + 1);
    if (begin == std::string_view::npos) return std::nullopt;
    if (json[begin] == '}') return members;
    std::size_t end = SkipString(json, begin);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view key = json.substr(begin + 1, end - begin - 2);
    if (key.find('\\') != std::string_view::npos) return std::nullopt;
    // The comma or brace that ends the value, outside of strings and brackets.
    for (int depth = 0; depth >= 0;) {
      end = kStructure.Find(json, end);
      if (end == std::string_view::npos) return std::nullopt;
      switch (json[end]) {
        case '"':
          end = SkipString(json, end);
          if (end == std::string_view::npos) return std::nullopt;
          continue;
        case '{':
        case '[':
          ++depth;
          break;
        case ',':
          if (depth == 0) depth = -1;
          break;
        default:
          --depth;
      }
      if (depth >= 0) ++end;
    }
    members.push_back({key, json.substr(begin, end - begin)});
    if (json[end] == '}') return members;
    at = end;
  }
  return std::nullopt;
}

std::string_view ValueOf(std::string_view member) {
  const std::size_t colon = member.find(':', SkipString(member, 0));
  member.remove_prefix(std::min(colon + 1, member.size()));
  const std::size_t begin = member.find_first_not_of(kJsonBlanks);
  if (begin == std::string_view::npos) return {};
  return member.substr(begin, member.find_last_not_of(kJsonBlanks) + 1 - begin);
}

}  // namespace tare::api
