// What the engine refuses before it queues a request. Errors name the parameter as the OpenAI API
// calls it.
#pragma once

#include "base/result.h"
#include "engine/generate.h"

namespace tare::engine {

struct RequestLimits {
  int vocab = 0;
  int max_model_len = 0;
  bool has_text = true;  // stop strings and end-of-text tokens are known
  ContextPolicy policy = ContextPolicy::kStop;
};

Status CheckRequest(const GenerateRequest& request, const RequestLimits& limits);

}  // namespace tare::engine
