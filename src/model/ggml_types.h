// The tensor types a GGUF file may name: id, name, block size. Types we cannot compute with are
// known too, so that they are refused by name and a file's sizes can be told without them.
//
// Source: ggml's type ids and block layouts (GGUF specification, ggml.h, ggml-common.h).
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/tensor_view.h"

namespace tare::model {

struct GgmlType {
  std::uint32_t id = 0;
  const char* name = "";
  std::uint32_t block_elements = 0;  // 0: removed from ggml, its size is no longer defined
  std::uint32_t block_bytes = 0;
  std::optional<kernels::StoredType> stored;  // empty: we cannot read its values
};

// Null for an id that ggml never assigned (or assigned after this table was written).
const GgmlType* FindGgmlType(std::uint32_t id);

}  // namespace tare::model
