// The skeleton every family here shares: embed, then layers of attention and feed-forward with a
// norm before each and a residual around each, a last norm, and the output head.
#pragma once

#include <memory>

#include "base/result.h"
#include "model/checkpoint.h"
#include "model/language_model.h"
#include "model/load.h"

namespace tare::model {

Result<std::unique_ptr<LanguageModel>> LoadDecoder(const Checkpoint& checkpoint,
                                                   const LoadOptions& options);

}  // namespace tare::model
