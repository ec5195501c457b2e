// A model on disk, whatever its format: its facts, and its tensors under one set of names.
//
// The names are those of GGUF ("token_embd.weight", "blk.3.attn_q.weight", "output_norm.weight");
// a Hugging Face folder answers to them by translation, and messages show its own names.
// Ownership: tensor bytes are views into storage(), which a loaded model shares.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/matmul.h"
#include "kernels/tensor_view.h"
#include "model/family.h"
#include "model/model_config.h"

namespace tare::model {

struct StoredTensor {
  std::string name;                 // as the file has it
  std::vector<std::int64_t> shape;  // slowest first: [rows, cols] for a matrix
  std::uint64_t bytes = 0;
  const char* type = "";  // "Q4_1"

  std::string ShapeText() const;
};

// What a tensor's values will be, known without reading them.
struct TensorForm {
  kernels::StoredType type = kernels::StoredType::kF32;
  // What it is computed with unless --dtype says otherwise.
  kernels::WeightType natural = kernels::WeightType::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

// A tensor's values: in the file, or decoded into memory of their own.
struct TensorValues {
  kernels::TensorView view;
  std::shared_ptr<const void> decoded;  // keeps the bytes of `view`; null: storage() does
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  virtual const std::string& name() const = 0;
  virtual const ModelConfig& config() const = 0;
  virtual const Family& family() const = 0;
  // How the rows of q and k are ordered for rotation.
  virtual RotaryPairs rotary_pairs() const = 0;

  // All tensors by their common name; those without one under the name the file has.
  virtual std::vector<std::string> TensorNames() const = 0;
  virtual std::optional<StoredTensor> Find(std::string_view common_name) const = 0;
  // The tensor must exist. Refuses types we cannot read, by name.
  virtual Result<TensorForm> Form(std::string_view common_name) const = 0;
  // The values in that form; the tensor must exist. Those of quantised folders are decoded with
  // `pool`, as often as asked for.
  virtual Result<TensorValues> Values(std::string_view common_name, ThreadPool& pool) const = 0;
  // The file's own name for a tensor that need not exist.
  virtual std::string FileName(std::string_view common_name) const = 0;

  virtual std::shared_ptr<const void> storage() const = 0;
};

}  // namespace tare::model
