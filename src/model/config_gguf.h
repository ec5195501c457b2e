// A model's facts from GGUF metadata (keys "ARCH.block_count" and so on), checked for sense.
#pragma once

#include "base/result.h"
#include "model/family.h"
#include "model/gguf.h"
#include "model/model_config.h"

namespace tare::model {

struct GgufConfig {
  ModelConfig config;
  const Family* family = nullptr;
};

Result<GgufConfig> ReadGgufConfig(const GgufFile& file);

}  // namespace tare::model
