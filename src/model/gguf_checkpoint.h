// A GGUF file as a Checkpoint. Its tensor names are the common ones.
#pragma once

#include <memory>

#include "base/result.h"
#include "model/checkpoint.h"
#include "model/gguf.h"

namespace tare::model {

// `file` must outlive the checkpoint; its mapping is shared.
Result<std::unique_ptr<Checkpoint>> MakeGgufCheckpoint(const GgufFile& file);

}  // namespace tare::model
