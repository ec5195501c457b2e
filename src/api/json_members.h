// Members of a JSON object as they are written, to be passed on byte for byte.
//
// Thread safety: all functions may be called from any thread; views are into the given text.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace tare::api {

inline constexpr std::string_view kJsonBlanks = " \t\r\n";

struct JsonMember {
  std::string_view key;   // as written, without the quotes
  std::string_view text;  // the whole member, key and value
};

// The members of an object as they are written. The text is JSON that was parsed before; anything
// unexpected all the same, and a key with an escape, gives nothing.
std::optional<std::vector<JsonMember>> TopLevelMembers(std::string_view json);

// The value of a member, without blanks around it.
std::string_view ValueOf(std::string_view member);

}  // namespace tare::api
