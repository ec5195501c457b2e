// A model's facts from GGUF metadata (keys "ARCH.block_count" and so on), checked for sense.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/family.h"
#include "model/gguf.h"
#include "model/model_config.h"

namespace tare::model {

struct GgufConfig {
  ModelConfig config;
  const Family* family = nullptr;
};

// Typed access to one architecture's keys ("ARCH." is put before them); errors name file and key.
class GgufKeys {
 public:
  GgufKeys(const GgufFile& file, std::string_view architecture);

  const std::string& source() const { return file_.name(); }
  bool Has(std::string_view key) const;
  Result<int> Count(std::string_view key) const;
  Result<int> CountOr(std::string_view key, std::int64_t missing) const;
  Result<float> FloatOr(std::string_view key, float missing) const;
  Result<bool> BoolOr(std::string_view key, bool missing) const;
  Result<std::string_view> StringOr(std::string_view key, std::string_view missing) const;

 private:
  std::string Full(std::string_view key) const { return prefix_ + std::string(key); }
  Result<int> Narrow(std::string_view key, Result<std::int64_t> value) const;

  const GgufFile& file_;
  std::string prefix_;
};

Result<GgufConfig> ReadGgufConfig(const GgufFile& file);

}  // namespace tare::model
