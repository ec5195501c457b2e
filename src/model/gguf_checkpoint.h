// A GGUF file as a Checkpoint. Its tensor names are the common ones.
#pragma once

#include <memory>

#include "base/result.h"
#include "model/checkpoint.h"
#include "model/gguf.h"

namespace tare::model {

// The checkpoint shares the file.
Result<std::unique_ptr<Checkpoint>> MakeGgufCheckpoint(std::shared_ptr<const GgufFile> file);

}  // namespace tare::model
