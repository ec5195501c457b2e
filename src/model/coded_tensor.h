// One weight matrix of a quantised Hugging Face folder: codes, scales and zero points in tensors
// of their own, told apart by the ends of their names.
//
//   method              codes                                    scales      zero points
//   AWQ (gemm)          qweight I32 [K, N/8], columns shuffled   [K/g, N]    qzeros as qweight
//   GPTQ                qweight I32 [K/8, N]                     [K/g, N]    qzeros I32 [K/g, N/8]
//   compressed-tensors  weight_packed I32 [N, K/8]               [N, K/g]    I32 [N/8, K/g], I8
//                       weight I8 [N, K] or F8_E4M3 [N, K]       [N, K/g]    I8
//   FP8                 weight F8_E4M3 [N, K]                    [N/128, K/128], [N] or one
//
// N outputs, K inputs, g inputs that share a scale; 8 codes to a word at 4 bits, 4 at 8 bits; low
// bits first. The value of a code is scale * (code - zero), exactly, as floats. Codes in order are
// given as blocks that keep them; a matrix whose scales do not lie in runs of 32 inputs (GPTQ with
// activation order) or whose codes are FP8 is given as floats, and computed with in BF16.
//
// Ownership: views into the tensors it was made of. Thread safety: immutable after Make.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "model/checkpoint.h"
#include "model/quant_config.h"
#include "model/safetensors.h"

namespace tare::model {

class CodedTensor {
 public:
  // Tensors by the end of their name: "qweight", "weight_scale".
  using Parts = std::map<std::string, const SafetensorsTensor*, std::less<>>;

  // Whether a tensor of this end and type holds the codes of a weight.
  static bool HoldsCodes(const QuantConfig& config, std::string_view end,
                         const SafetensorsTensor& tensor);
  // Whether `end` belongs to a weight but is of no use: scales of activations are found anew.
  static bool IsOfNoUse(std::string_view end);
  // Whether `end` is one of the others that belong to the codes.
  static bool BelongsToCodes(std::string_view end);

  // Checks all shapes against each other. `source` is the folder and `stem` what the parts' names
  // have in common, for messages.
  static Result<CodedTensor> Make(const QuantConfig& config, const std::string& source,
                                  std::string stem, Parts parts);

  const TensorForm& form() const { return form_; }
  std::uint64_t bytes() const;                          // of all parts
  const char* type_name() const { return type_name_; }  // "AWQ 4 bit"
  std::string name() const { return stem_ + ".weight"; }

  // Whether a GPTQ zero point, stored less one, is the largest code: read as one past it here, as
  // AutoGPTQ does, but as 0 by some programs.
  bool zeros_wrap() const { return zeros_wrap_; }

  Result<TensorValues> Decode(ThreadPool& pool) const;

 private:
  enum class Layout { kAwq, kGptq, kPackedRows, kBytes, kFloat8 };
  enum class ZeroLayout { kNone, kAwq, kGptq, kPackedColumns, kBytes };

  Status MakeAwq();
  Status MakeGptq(const QuantConfig& config);
  Status MakePackedRows();
  Status MakeBytes(const QuantConfig& config);
  Status ReadScaleShape(const QuantConfig& config, const char* end);
  Status ReadGroupOf(const char* end);
  Status ReadZeros(bool less_one);
  Status SetZeroLayout(ZeroLayout layout, const char* end, std::vector<std::int64_t> shape);
  void ChooseForm();

  Result<const SafetensorsTensor*> Part(std::string_view end) const;
  Status CheckPart(std::string_view end, const SafetensorsTensor& tensor, std::string_view type,
                   const std::vector<std::int64_t>& shape) const;
  tl::unexpected<Error> Bad(std::string_view end, std::string_view what) const;

  std::int64_t GroupOf(std::int64_t k) const {
    return group_of_.empty() ? k / group_ : group_of_[static_cast<std::size_t>(k)];
  }
  // Where the scale of row n and group g lies.
  std::size_t ScaleAt(std::int64_t n, std::int64_t g) const {
    return static_cast<std::size_t>(n / row_block_ * scale_row_stride_ + g * scale_group_stride_);
  }
  Result<std::vector<float>> ReadScales() const;
  void GatherCodes(std::int64_t first_row, std::int64_t count, std::uint8_t* codes) const;
  void EncodeRow(std::int64_t n, const std::uint8_t* codes, const std::vector<float>& scales,
                 std::byte* out) const;

  std::string source_;
  std::string stem_;
  Parts parts_;
  const char* type_name_ = "";
  TensorForm form_;
  Layout layout_ = Layout::kBytes;
  const SafetensorsTensor* codes_ = nullptr;
  const SafetensorsTensor* scales_ = nullptr;
  const char* scale_end_ = "scales";
  std::int64_t rows_ = 0;  // N
  std::int64_t cols_ = 0;  // K
  int bits_ = 0;
  std::int64_t groups_ = 1;
  std::int64_t group_ = 1;      // inputs of a group
  std::int64_t row_block_ = 1;  // rows that share their scales
  std::int64_t scale_row_stride_ = 0;
  std::int64_t scale_group_stride_ = 0;
  std::vector<std::int32_t> group_of_;  // of each input; empty: in order
  ZeroLayout zero_layout_ = ZeroLayout::kNone;
  const SafetensorsTensor* zeros_ = nullptr;
  bool zeros_wrap_ = false;
  std::vector<std::int16_t> zero_points_;  // as scales lie; empty: the middle code
};

}  // namespace tare::model
