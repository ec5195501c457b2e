// The parts of a chat request that chat templates consume: messages and tools. Internal to the
// room's readers, hence the simdjson types.
#pragma once

#include <simdjson.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace tare::api {

// Checks a "messages" array and writes it the way chat templates expect it: content parts joined to
// one string, role "developer" as "system", the arguments of tool calls as objects. Parts that are
// not text are left out and added to `unsupported`.
Result<std::string> NormalizeMessages(simdjson::dom::element messages,
                                      std::vector<Error>& unsupported);

// Takes the last message, which must be the assistant's and plain text, out of a normalized array,
// and gives its text.
Result<std::string> TakeAnswerPrefix(std::string& messages_json);

// Checks a "tools" array (functions with a name) and writes it unchanged.
Result<std::string> NormalizeTools(simdjson::dom::element tools);

}  // namespace tare::api
