#include "api/messages.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "api/json_text.h"

namespace tare::api {

namespace {

namespace dom = simdjson::dom;

constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};

// "text" parts joined with newlines; templates of text models know strings only.
Result<std::string> JoinParts(dom::array parts, const std::string& where,
                              std::vector<Error>& unsupported) {
  std::string text;
  std::size_t index = 0;
  for (const dom::element part : parts) {
    const std::string here = fmt::format("{}[{}]", where, index);
    dom::object object;
    std::string_view type;
    if (part.get(object) || object["type"].get(type)) {
      return FailParam(here, "{} must be an object with a string 'type'", here);
    }
    const char* key = type == "refusal" ? "refusal" : "text";
    if (type != "text" && type != "input_text" && type != "refusal") {
      unsupported.push_back(
          {ErrorKind::kInvalidArgument,
           fmt::format("{}.type is '{}', but this model reads text only", here, type),
           here + ".type", ""});
      ++index;
      continue;
    }
    std::string_view piece;
    if (object[key].get(piece)) {
      return FailParam(fmt::format("{}.{}", here, key), "{}.{} must be a string", here, key);
    }
    if (!text.empty()) text.push_back('\n');
    text.append(piece);
    ++index;
  }
  return text;
}

Status AppendContent(std::string& out, dom::element content, const std::string& where,
                     std::vector<Error>& unsupported) {
  std::string_view text;
  dom::array parts;
  if (!content.get(text)) {
    AppendJsonString(out, text);
  } else if (!content.get(parts)) {
    TARE_TRY(const std::string joined, JoinParts(parts, where, unsupported));
    AppendJsonString(out, joined);
  } else if (content.is_null()) {
    out.append("null");
  } else {
    return FailParam(where, "{} must be a string, an array of content parts or null", where);
  }
  return {};
}

// OpenAI carries a call's arguments as a string of JSON; templates print objects.
Status AppendToolCalls(std::string& out, dom::element calls, const std::string& where) {
  dom::array array;
  if (calls.get(array)) return FailParam(where, "{} must be an array", where);
  out.push_back('[');
  std::size_t index = 0;
  for (const dom::element call : array) {
    const std::string here = fmt::format("{}[{}].function", where, index);
    dom::object object;
    dom::object function;
    std::string_view name;
    if (call.get(object) || object["function"].get(function) || function["name"].get(name)) {
      return FailParam(here, "{} must be an object with a string 'name'", here);
    }
    if (index++ > 0) out.push_back(',');
    out.append(R"({"type":"function")");
    std::string_view id;
    if (!object["id"].get(id)) {
      out.append(R"(,"id":)");
      AppendJsonString(out, id);
    }
    out.append(R"(,"function":{"name":)");
    AppendJsonString(out, name);
    out.append(R"(,"arguments":)");
    std::string_view text;
    dom::element arguments;
    dom::parser parser;
    dom::element parsed;
    if (function["arguments"].get(arguments)) {
      out.append("{}");
    } else if (!arguments.get(text) && !parser.parse(text.data(), text.size()).get(parsed) &&
               parsed.is_object()) {
      out.append(simdjson::minify(parsed));
    } else {
      out.append(simdjson::minify(arguments));
    }
    out.append("}}");
  }
  out.push_back(']');
  return {};
}

Status AppendMessage(std::string& out, dom::element message, std::size_t index,
                     std::vector<Error>& unsupported) {
  const std::string where = fmt::format("messages[{}]", index);
  dom::object object;
  if (message.get(object)) return FailParam(where, "{} must be an object", where);
  std::string_view role;
  if (object["role"].get(role)) {
    return FailParam(where + ".role", "{}.role must be a string", where);
  }
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    return FailParam(where + ".role",
                     "{}.role is '{}'; it may be system, developer, user, assistant, tool or "
                     "function",
                     where, role);
  }
  out.append(R"({"role":)");
  AppendJsonString(out, role == "developer" ? "system" : role);
  bool has_content = false;
  bool has_calls = false;
  for (const auto [key, value] : object) {
    if (key == "role") continue;
    std::string part(",");
    AppendJsonString(part, key);
    part.push_back(':');
    if (key == "content") {
      if (has_content) return FailParam(where, "{} has two fields 'content'", where);
      has_content = !value.is_null();
      TARE_RETURN_IF_ERROR(AppendContent(part, value, where + ".content", unsupported));
    } else if (key == "tool_calls") {
      if (value.is_null()) continue;
      has_calls = true;
      TARE_RETURN_IF_ERROR(AppendToolCalls(part, value, where + ".tool_calls"));
    } else {
      part.append(simdjson::minify(value));
    }
    out.append(part);
  }
  if (!has_content && !has_calls) {
    return FailParam(where + ".content", "{}.content is missing", where);
  }
  if (!has_content && object["content"].error() != simdjson::SUCCESS) {
    out.append(R"(,"content":null)");
  }
  out.push_back('}');
  return {};
}

}  // namespace

Result<std::string> NormalizeMessages(dom::element messages, std::vector<Error>& unsupported) {
  dom::array array;
  if (messages.get(array)) return FailParam("messages", "messages must be an array");
  std::string out("[");
  std::size_t index = 0;
  for (const dom::element message : array) {
    if (index > 0) out.push_back(',');
    TARE_RETURN_IF_ERROR(AppendMessage(out, message, index, unsupported));
    ++index;
  }
  if (index == 0) return FailParam("messages", "messages must hold at least one message");
  out.push_back(']');
  return out;
}

Result<std::string> TakeAnswerPrefix(std::string& messages_json) {
  const auto refuse = [] {
    return FailParam("continue_final_message",
                     "continue_final_message needs a last message of the assistant with a text and "
                     "no tool calls, and one before it");
  };
  dom::parser parser;
  dom::array array;
  if (parser.parse(messages_json).get(array) || array.size() < 2) return refuse();
  std::string before("[");
  dom::element last;
  std::size_t index = 0;
  for (const dom::element message : array) {
    if (++index == array.size()) {
      last = message;
      break;
    }
    if (index > 1) before.push_back(',');
    before.append(simdjson::minify(message));
  }
  before.push_back(']');
  std::string_view role, content;
  const bool calls = last["tool_calls"].error() == simdjson::SUCCESS;
  if (calls || last["role"].get(role) || role != "assistant" || last["content"].get(content) ||
      content.empty()) {
    return refuse();
  }
  std::string prefix(content);
  messages_json = std::move(before);
  return prefix;
}

Result<std::string> NormalizeTools(dom::element tools) {
  dom::array array;
  if (tools.get(array)) return FailParam("tools", "tools must be an array");
  std::size_t index = 0;
  for (const dom::element tool : array) {
    const std::string where = fmt::format("tools[{}]", index++);
    dom::object object;
    std::string_view type;
    if (tool.get(object) || object["type"].get(type) || type != "function") {
      return FailParam(where, "{} must be an object of type 'function'", where);
    }
    dom::object function;
    std::string_view name;
    if (object["function"].get(function) || function["name"].get(name) || name.empty()) {
      return FailParam(where + ".function", "{}.function must be an object with a 'name'", where);
    }
  }
  if (index == 0) return std::string();
  return std::string(simdjson::minify(tools));
}

}  // namespace tare::api
