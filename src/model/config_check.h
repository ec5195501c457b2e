// Guards between a file's claims and the code that computes with them.
#pragma once

#include <string_view>

#include "base/result.h"
#include "model/model_config.h"

namespace tare::model {

// Refuses facts that no model has and that would make sizes overflow or divide by zero; the
// message starts with `source`.
Status CheckConfig(const ModelConfig& config, std::string_view source);

}  // namespace tare::model
