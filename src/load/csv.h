// Comma-separated values as RFC 4180 has them: fields in double quotes may hold commas, line breaks
// and doubled quotes; lines end in LF or CRLF. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tare::load {

// Rows of fields; empty lines are left out. A quote that is not closed, or text after a closing
// one, fails with its line.
Result<std::vector<std::vector<std::string>>> ParseCsv(std::string_view text);

}  // namespace tare::load
