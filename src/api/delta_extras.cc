#include "api/delta_extras.h"

#include <cstdint>
#include <utility>

#include "api/json_text.h"

namespace tare::api {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxToolCalls = 1024;

// Strings grow, objects merge, everything else is replaced.
void Merge(json& target, const json& piece) {
  if (target.is_string() && piece.is_string()) {
    target.get_ref<std::string&>() += piece.get_ref<const std::string&>();
  } else if (target.is_object() && piece.is_object()) {
    for (const auto& [key, value] : piece.items()) {
      // Names and ids come whole, and some servers repeat them.
      if (target.contains(key) && key != "id" && key != "type" && key != "name") {
        Merge(target[key], value);
      } else {
        target[key] = value;
      }
    }
  } else if (!piece.is_null()) {
    target = piece;
  }
}

void MergeToolCalls(json& calls, const json& pieces) {
  if (!calls.is_array()) calls = json::array();
  for (const json& piece : pieces) {
    if (!piece.is_object()) continue;
    std::size_t index = calls.size();
    if (const auto at = piece.find("index"); at != piece.end() && at->is_number_unsigned()) {
      index = at->get<std::size_t>();
    }
    if (index >= kMaxToolCalls) continue;
    while (calls.size() <= index) calls.push_back(json::object());
    json rest = piece;
    rest.erase("index");
    Merge(calls[index], rest);
  }
}

}  // namespace

void DeltaExtras::Add(std::string_view members) {
  const json parsed = json::parse("{" + std::string(members) + "}", nullptr, false);
  if (!parsed.is_object()) return;
  for (const auto& [key, value] : parsed.items()) {
    if (key == "tool_calls" && value.is_array()) {
      MergeToolCalls(members_[key], value);
    } else if (members_.contains(key)) {
      Merge(members_[key], value);
    } else {
      members_[key] = value;
    }
  }
}

void DeltaExtras::Append(std::string& out) const {
  for (const auto& [key, value] : members_.items()) {
    if (key == "refusal") continue;
    out.push_back(',');
    AppendJsonString(out, key);
    out.push_back(':');
    out.append(value.dump(-1, ' ', false, json::error_handler_t::replace));
  }
}

}  // namespace tare::api
