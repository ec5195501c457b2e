// Takes a checkpoint's tensors by name, checks their shapes, and packs them for the kernels.
//
// It keeps account of what was taken: a tensor that is missing, misshaped, of an unreadable type,
// or left over at the end is named. Thread safety: one thread loads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/matmul.h"
#include "model/checkpoint.h"
#include "model/load.h"

namespace tare::model {

// Heads whose rows are rotated: the first `dims` rows of every head_dim.
struct RotatedHeads {
  int head_dim = 0;
  int dims = 0;
};

// One of several matrices that share their input and are packed as one, rows stacked.
struct MatrixPart {
  std::string name;
  std::int64_t rows = 0;
  std::optional<RotatedHeads> rotated;
};

// kHead and kLatent stay in INT8 where --dtype is int4; kRouter is always computed in float, since
// its rounding would choose other experts.
enum class MatrixRole { kLayer, kHead, kLatent, kRouter };

// Matrices of one shape that are chosen among or used side by side: one for each expert or head.
// The checkpoint has them as slices of `stacked` [count, rows, cols] or, of experts, each by the
// name `apart` gives it.
struct MatrixSetPart {
  std::string stacked;
  std::int64_t rows = 0;  // of one
  std::function<std::string(int index)> apart;
};

struct LoadedTensor {
  TensorForm form;
  TensorValues values;
};

class WeightLoader {
 public:
  WeightLoader(const Checkpoint& checkpoint, const LoadOptions& options);

  bool Has(std::string_view name) const { return checkpoint_.Find(name).has_value(); }

  // A vector of `size` floats (norm, bias).
  Result<std::vector<float>> Vector(std::string_view name, std::int64_t size,
                                    std::optional<RotatedHeads> rotated = {});
  // A tensor's values, decoded where the file has codes.
  Result<LoadedTensor> Tensor(std::string_view name, std::int64_t rows, std::int64_t cols);
  // A matrix to gather rows from, in the form the file has.
  Result<kernels::TensorView> Rows(std::string_view name, std::int64_t rows, std::int64_t cols);
  Result<kernels::PackedMatrix> Matrix(std::string_view name, std::int64_t rows, std::int64_t cols,
                                       MatrixRole role = MatrixRole::kLayer);
  Result<kernels::PackedMatrix> Stacked(std::span<const MatrixPart> parts, std::int64_t cols,
                                        MatrixRole role = MatrixRole::kLayer);
  // `count` matrices, alike in type, each of the parts' rows one after the other.
  Result<std::vector<kernels::PackedMatrix>> Set(std::span<const MatrixSetPart> parts, int count,
                                                 std::int64_t cols,
                                                 MatrixRole role = MatrixRole::kLayer);
  // `view` packed under `name`, which is no tensor's.
  Result<kernels::PackedMatrix> Derived(const std::string& name, kernels::WeightType type,
                                        const kernels::TensorView& view);

  std::optional<kernels::WeightType> dtype() const { return options_.dtype; }
  // For blocks that multiply without MatMul, which tells observers by itself; mostly empty.
  const LoadOptions::Observer& observer() const { return options_.observe; }
  // The type most of the layers' matrices (by bytes) were packed as.
  kernels::WeightType layer_type() const;
  // An error when tensors were left over: computing without them would be wrong.
  Status Finish() const;

 private:
  // Rows of a matrix to be packed, not read yet: the packed cache may have them.
  struct Piece {
    std::string tensor;  // empty: the rows of `given`
    TensorForm form;
    int slice = -1;  // of a tensor [count, rows, cols]
    std::optional<RotatedHeads> rotated;
    kernels::TensorView given;
  };

  // Checks a tensor against what the model's facts ask for, and counts it as used.
  Result<TensorForm> Take(std::string_view name, std::int64_t rows, std::int64_t cols);
  // The same for an existing tensor [count, rows, cols]; the form is that of one slice.
  Result<TensorForm> TakeSet(std::string_view name, int count, std::int64_t rows,
                             std::int64_t cols);
  void Took(std::string_view name, std::uint64_t bytes);
  Result<TensorValues> ValuesOf(const Piece& piece);
  // Packs the pieces' rows one after the other.
  Result<kernels::PackedMatrix> PackRows(const std::string& name, kernels::WeightType type,
                                         std::span<const Piece> pieces, MatrixRole role);
  void Report(std::string_view what);
  void Keep(const std::string& name, const kernels::PackedMatrix& packed);
  void Observe(const std::string& name, kernels::PackedMatrix& packed) const;

  const Checkpoint& checkpoint_;
  const LoadOptions& options_;
  std::set<std::string, std::less<>> taken_;
  std::map<std::string, TensorValues> stacked_;  // while Set takes slices of them
  std::map<kernels::WeightType, std::size_t> layer_bytes_;
  std::uint64_t total_bytes_ = 0;
  std::uint64_t done_bytes_ = 0;
  bool keeps_ = true;  // until writing fails
};

// What a matrix is computed with whose stacked parts are by nature `natural`, one entry each.
kernels::WeightType ChooseType(std::optional<kernels::WeightType> dtype, MatrixRole role,
                               std::span<const kernels::WeightType> natural);

}  // namespace tare::model
