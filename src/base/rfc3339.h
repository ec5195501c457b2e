// Wall-clock times as text: RFC 3339 in UTC with milliseconds, "2026-11-30T10:53:42.417Z".
// The text sorts as the times do.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tare {

std::string FormatRfc3339(std::chrono::system_clock::time_point time);

// Accepts any RFC 3339 date-time (fraction of any length, 'Z' or an offset).
Result<std::chrono::system_clock::time_point> ParseRfc3339(std::string_view text);

}  // namespace tare
