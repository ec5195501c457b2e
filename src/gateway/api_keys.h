// The file of --api-key-file: keys clients may use.
//
// One key a line, plain ("sk-...") or hashed ("sha256:<64 hex digits>"); blank lines and lines that
// begin with '#' are skipped. Thread safety: pure functions.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gateway/access.h"

namespace tare::gateway {

// An empty file is an error: it would lock everybody out.
Result<std::vector<KeyHash>> LoadApiKeys(const std::filesystem::path& path);
Result<std::vector<KeyHash>> ParseApiKeys(std::string_view text);

// Warns when everybody on this machine can read a file that holds secrets.
void WarnIfReadable(const std::filesystem::path& path);

}  // namespace tare::gateway
