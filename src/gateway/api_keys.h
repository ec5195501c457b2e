// The keys clients may use, kept as SHA-256 hashes only.
//
// File: one key a line, plain ("sk-...") or hashed ("sha256:<64 hex digits>"); blank lines and
// lines that begin with '#' are skipped. Thread safety: immutable.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tare::gateway {

class ApiKeys {
 public:
  // An empty file is an error: it would lock everybody out.
  static Result<ApiKeys> Load(const std::filesystem::path& path);
  static Result<ApiKeys> Parse(std::string_view text);

  // Takes the same time for every key of a length, right or wrong.
  bool Accepts(std::string_view key) const;
  std::size_t size() const { return hashes_.size(); }

 private:
  using Hash = std::array<std::uint8_t, 32>;
  std::vector<Hash> hashes_;
};

}  // namespace tare::gateway
