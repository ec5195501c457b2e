// Outside text (names come from plans and servers) made safe for the formats reports are written
// in.
#pragma once

#include <string>
#include <string_view>

namespace tare::advise {

// For running text and table cells: no character keeps a meaning, no line break survives.
std::string EscapeMarkdown(std::string_view text);

// A double-quoted YAML scalar.
std::string QuoteYaml(std::string_view text);

// One word of a POSIX shell command line, quoted when it needs it.
std::string QuoteShell(std::string_view text);

}  // namespace tare::advise
