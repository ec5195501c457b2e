// Writing JSON as text, for documents too large to build as a tree first.
#pragma once

#include <string>
#include <string_view>

namespace tare::model {

// Appends `text` as a JSON string, quotes included. Ill-formed UTF-8 becomes U+FFFD.
void AppendJsonString(std::string_view text, std::string& out);

}  // namespace tare::model
