// Outside text made safe for HTML. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace tare {

// For element text and quoted attributes. Control characters other than line breaks and tabs become
// U+FFFD, which HTML could not carry.
std::string EscapeHtml(std::string_view text);

}  // namespace tare
