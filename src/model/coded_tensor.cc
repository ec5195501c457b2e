#include "model/coded_tensor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "base/check.h"
#include "kernels/half.h"
#include "kernels/stored_blocks.h"

namespace tare::model {
namespace {

using kernels::StoredType;
using kernels::WeightType;

constexpr int kWordBits = 32;
// Rows decoded at a time: their codes stay in the second-level cache.
constexpr std::int64_t kStrip = 64;
// Where a word of AWQ's "gemm" packing keeps column c of its eight, in nibbles.
constexpr std::array<int, 8> kAwqNibble = {0, 4, 1, 5, 2, 6, 3, 7};
constexpr float kLargestHalf = 65504.0f;

std::uint32_t Word(const SafetensorsTensor& tensor, std::int64_t index) {
  std::uint32_t word;
  std::memcpy(&word, tensor.data.data() + index * std::int64_t{sizeof word}, sizeof word);
  return word;
}

std::int8_t SignedByte(const SafetensorsTensor& tensor, std::int64_t index) {
  return static_cast<std::int8_t>(tensor.data[static_cast<std::size_t>(index)]);
}

// Code `index` of words that hold them low bits first.
int Code(const SafetensorsTensor& tensor, std::int64_t first_word, std::int64_t index, int bits) {
  const int per_word = kWordBits / bits;
  const std::uint32_t word = Word(tensor, first_word + index / per_word);
  return static_cast<int>(word >> (index % per_word * bits) & ((1u << bits) - 1));
}

std::int64_t CeilDivide(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

// E4M3 without infinities: bias 7, and all ones is not a number.
std::array<float, 256> MakeFloat8Table() {
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15;
    const int fraction = code & 7;
    float value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
    if ((code & 127) == 127) value = std::nanf("");
    table[static_cast<std::size_t>(code)] = code < 128 ? value : -value;
  }
  return table;
}

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  return StoredTensor{{}, shape, 0, ""}.ShapeText();
}

}  // namespace

bool CodedTensor::HoldsCodes(const QuantConfig& config, std::string_view end,
                             const SafetensorsTensor& tensor) {
  switch (config.method) {
    case QuantMethod::kNone:
      return false;
    case QuantMethod::kAwq:
    case QuantMethod::kGptq:
      return end == "qweight";
    case QuantMethod::kCompressedTensors:
      return end == "weight_packed" ||
             (end == "weight" && (tensor.type == "I8" || tensor.type == "F8_E4M3"));
    case QuantMethod::kFp8:
      return end == "weight" && tensor.type == "F8_E4M3";
  }
  return false;
}

bool CodedTensor::IsOfNoUse(std::string_view end) {
  return end == "input_scale" || end == "input_zero_point" || end == "output_scale" ||
         end == "output_zero_point";
}

bool CodedTensor::BelongsToCodes(std::string_view end) {
  constexpr std::string_view kEnds[] = {"qzeros",
                                        "scales",
                                        "g_idx",
                                        "weight_scale",
                                        "weight_scale_inv",
                                        "weight_shape",
                                        "weight_zero_point",
                                        "weight_g_idx"};
  return std::ranges::find(kEnds, end) != std::end(kEnds) || IsOfNoUse(end);
}

tl::unexpected<Error> CodedTensor::Bad(std::string_view end, std::string_view what) const {
  return Fail(ErrorKind::kCorrupt, "{}: tensor '{}.{}' {}", source_, stem_, end, what);
}

Result<const SafetensorsTensor*> CodedTensor::Part(std::string_view end) const {
  const auto found = parts_.find(end);
  if (found == parts_.end()) {
    return Bad(end, "is missing; the weight's codes are of no use without it");
  }
  return found->second;
}

Status CodedTensor::CheckPart(std::string_view end, const SafetensorsTensor& tensor,
                              std::string_view type, const std::vector<std::int64_t>& shape) const {
  if (tensor.type != type) {
    return Bad(end, fmt::format("has dtype {}, {} is needed", tensor.type, type));
  }
  if (tensor.shape != shape) {
    return Bad(end, fmt::format("has shape {}, the others of its weight ask for {}",
                                ShapeText(tensor.shape), ShapeText(shape)));
  }
  return {};
}

Result<CodedTensor> CodedTensor::Make(const QuantConfig& config, const std::string& source,
                                      std::string stem, Parts parts) {
  CodedTensor out;
  out.source_ = source;
  out.stem_ = std::move(stem);
  out.parts_ = std::move(parts);
  switch (config.method) {
    case QuantMethod::kAwq:
      TARE_RETURN_IF_ERROR(out.MakeAwq());
      break;
    case QuantMethod::kGptq:
      TARE_RETURN_IF_ERROR(out.MakeGptq(config));
      break;
    case QuantMethod::kCompressedTensors:
      if (out.parts_.contains("weight_packed")) {
        TARE_RETURN_IF_ERROR(out.MakePackedRows());
        break;
      }
      TARE_RETURN_IF_ERROR(out.MakeBytes(config));
      break;
    case QuantMethod::kFp8:
      TARE_RETURN_IF_ERROR(out.MakeBytes(config));
      break;
    case QuantMethod::kNone:
      TARE_CHECK(false);
  }
  TARE_RETURN_IF_ERROR(out.ReadZeros(config.method == QuantMethod::kGptq && config.zeros_less_one));
  out.ChooseForm();
  return out;
}

// Scales [G, N] give N and the number of groups; the codes give K.
Status CodedTensor::MakeAwq() {
  layout_ = Layout::kAwq;
  type_name_ = "AWQ 4 bit";
  bits_ = 4;
  TARE_TRY(codes_, Part("qweight"));
  TARE_TRY(scales_, Part("scales"));
  if (scales_->shape.size() != 2) {
    return Bad("scales",
               fmt::format("has shape {}, [groups, outputs] is needed", ShapeText(scales_->shape)));
  }
  groups_ = scales_->shape[0];
  rows_ = scales_->shape[1];
  if (codes_->shape.size() != 2 || rows_ % 8 != 0) {
    return Bad("qweight", fmt::format("has shape {}, [inputs, {} / 8] is needed",
                                      ShapeText(codes_->shape), rows_));
  }
  cols_ = codes_->shape[0];
  TARE_RETURN_IF_ERROR(CheckPart("qweight", *codes_, "I32", {cols_, rows_ / 8}));
  if (cols_ % groups_ != 0) {
    return Bad("scales",
               fmt::format("has {} groups, which do not divide {} inputs", groups_, cols_));
  }
  group_ = cols_ / groups_;
  scale_row_stride_ = 1;
  scale_group_stride_ = rows_;
  return SetZeroLayout(ZeroLayout::kAwq, "qzeros", {groups_, rows_ / 8});
}

Status CodedTensor::MakeGptq(const QuantConfig& config) {
  layout_ = Layout::kGptq;
  TARE_TRY(codes_, Part("qweight"));
  TARE_TRY(scales_, Part("scales"));
  TARE_TRY(const SafetensorsTensor* zeros, Part("qzeros"));
  if (scales_->shape.size() != 2) {
    return Bad("scales",
               fmt::format("has shape {}, [groups, outputs] is needed", ShapeText(scales_->shape)));
  }
  groups_ = scales_->shape[0];
  rows_ = scales_->shape[1];
  const bool four = zeros->shape == std::vector<std::int64_t>{groups_, rows_ / 8};
  const bool eight = zeros->shape == std::vector<std::int64_t>{groups_, rows_ / 4};
  if (!(four && rows_ % 8 == 0) && !(eight && rows_ % 4 == 0)) {
    return Bad("qzeros", fmt::format("has shape {}, the scales ask for [{}, {} / 8] (4 bits) or "
                                     "[{}, {} / 4] (8 bits)",
                                     ShapeText(zeros->shape), groups_, rows_, groups_, rows_));
  }
  bits_ = four ? 4 : 8;
  type_name_ = four ? "GPTQ 4 bit" : "GPTQ 8 bit";
  const int per_word = kWordBits / bits_;
  if (codes_->shape.size() != 2 || codes_->shape[0] > INT64_MAX / per_word) {
    return Bad("qweight", fmt::format("has shape {}, [inputs / {}, {}] is needed",
                                      ShapeText(codes_->shape), per_word, rows_));
  }
  cols_ = codes_->shape[0] * per_word;
  TARE_RETURN_IF_ERROR(CheckPart("qweight", *codes_, "I32", {cols_ / per_word, rows_}));
  group_ = cols_ % groups_ == 0 ? cols_ / groups_ : config.group;
  if (group_ <= 0 || CeilDivide(cols_, group_) != groups_) {
    return Bad("scales",
               fmt::format("has {} groups, which do not divide {} inputs", groups_, cols_));
  }
  scale_row_stride_ = 1;
  scale_group_stride_ = rows_;
  TARE_RETURN_IF_ERROR(ReadGroupOf("g_idx"));
  return SetZeroLayout(ZeroLayout::kGptq, "qzeros", zeros->shape);
}

Status CodedTensor::MakePackedRows() {
  layout_ = Layout::kPackedRows;
  TARE_TRY(codes_, Part("weight_packed"));
  TARE_TRY(const SafetensorsTensor* shape, Part("weight_shape"));
  const bool wide = shape->type == "I64";
  if ((!wide && shape->type != "I32") || shape->shape != std::vector<std::int64_t>{2}) {
    return Bad("weight_shape", fmt::format("is {} {}, two whole numbers are needed", shape->type,
                                           ShapeText(shape->shape)));
  }
  const auto size = [&](std::int64_t index) -> std::int64_t {
    if (!wide) return static_cast<std::int32_t>(Word(*shape, index));
    std::int64_t value;
    std::memcpy(&value, shape->data.data() + index * 8, sizeof value);
    return value;
  };
  rows_ = size(0);
  cols_ = size(1);
  constexpr std::int64_t kLargest = std::int64_t{1} << 28;
  if (rows_ <= 0 || cols_ <= 0 || rows_ > kLargest || cols_ > kLargest) {
    return Bad("weight_shape", fmt::format("holds {} and {}, which are no sizes", rows_, cols_));
  }
  const bool four = codes_->shape == std::vector<std::int64_t>{rows_, CeilDivide(cols_, 8)};
  const bool eight = codes_->shape == std::vector<std::int64_t>{rows_, CeilDivide(cols_, 4)};
  if (!four && !eight) {
    return Bad("weight_packed",
               fmt::format("has shape {}, a weight of {} x {} asks for [{}, {}] (4 bits) or [{}, "
                           "{}] (8 bits)",
                           ShapeText(codes_->shape), rows_, cols_, rows_, CeilDivide(cols_, 8),
                           rows_, CeilDivide(cols_, 4)));
  }
  bits_ = four ? 4 : 8;
  type_name_ = four ? "packed 4 bit" : "packed 8 bit";
  TARE_RETURN_IF_ERROR(CheckPart("weight_packed", *codes_, "I32", codes_->shape));
  TARE_RETURN_IF_ERROR(ReadScaleShape({}, "weight_scale"));
  TARE_RETURN_IF_ERROR(ReadGroupOf("weight_g_idx"));
  const auto zeros = parts_.find("weight_zero_point");
  if (zeros == parts_.end()) return {};
  if (zeros->second->type == "I8") {
    return SetZeroLayout(ZeroLayout::kBytes, "weight_zero_point", scales_->shape);
  }
  return SetZeroLayout(ZeroLayout::kPackedColumns, "weight_zero_point",
                       {CeilDivide(rows_, kWordBits / bits_), groups_});
}

Status CodedTensor::MakeBytes(const QuantConfig& config) {
  TARE_TRY(codes_, Part("weight"));
  if (codes_->shape.size() != 2) {
    return Bad("weight", fmt::format("has shape {}, a matrix is needed", ShapeText(codes_->shape)));
  }
  rows_ = codes_->shape[0];
  cols_ = codes_->shape[1];
  bits_ = 8;
  layout_ = codes_->type == "I8" ? Layout::kBytes : Layout::kFloat8;
  type_name_ = layout_ == Layout::kBytes ? "8 bit" : "FP8";
  const bool inverse = parts_.contains("weight_scale_inv");
  TARE_RETURN_IF_ERROR(ReadScaleShape(config, inverse ? "weight_scale_inv" : "weight_scale"));
  if (!parts_.contains("weight_zero_point") || layout_ == Layout::kFloat8) return {};
  return SetZeroLayout(ZeroLayout::kBytes, "weight_zero_point", scales_->shape);
}

// Scales that lie beside rows: one for all, one for each row, or a matrix of row blocks and groups.
Status CodedTensor::ReadScaleShape(const QuantConfig& config, const char* end) {
  TARE_TRY(scales_, Part(end));
  scale_end_ = end;
  const std::vector<std::int64_t>& shape = scales_->shape;
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  const auto fail = [&] {
    return Bad(end, fmt::format("has shape {}, which does not fit a weight of {} x {}",
                                ShapeText(shape), rows_, cols_));
  };
  if (shape.size() > 2) return fail();
  const std::int64_t scale_rows = shape.empty() ? 1 : shape[0];
  groups_ = shape.size() == 2 ? shape[1] : 1;
  if (scale_rows == rows_) {
    row_block_ = 1;
  } else if (scale_rows == 1) {
    row_block_ = rows_;
  } else {
    row_block_ = config.block_rows;
  }
  if (row_block_ <= 0 || CeilDivide(rows_, row_block_) != scale_rows) return fail();
  group_ = cols_ % groups_ == 0 ? cols_ / groups_ : config.block_cols;
  // Blocks need not divide the columns: 576 are four and a half of 128.
  if (layout_ == Layout::kFloat8 && config.block_cols > 0 &&
      CeilDivide(cols_, config.block_cols) == groups_) {
    group_ = config.block_cols;
  }
  if (group_ <= 0 || CeilDivide(cols_, group_) != groups_) return fail();
  scale_row_stride_ = groups_;
  scale_group_stride_ = 1;
  return {};
}

Status CodedTensor::ReadGroupOf(const char* end) {
  const auto found = parts_.find(end);
  if (found == parts_.end()) return {};
  TARE_RETURN_IF_ERROR(CheckPart(end, *found->second, "I32", {cols_}));
  bool in_order = true;
  group_of_.resize(static_cast<std::size_t>(cols_));
  for (std::int64_t k = 0; k < cols_; ++k) {
    const auto group = static_cast<std::int32_t>(Word(*found->second, k));
    if (group < 0 || group >= groups_) {
      return Bad(end, fmt::format("puts input {} into group {}, there are {}", k, group, groups_));
    }
    in_order = in_order && group == k / group_;
    group_of_[static_cast<std::size_t>(k)] = group;
  }
  if (in_order) group_of_.clear();
  return {};
}

Status CodedTensor::SetZeroLayout(ZeroLayout layout, const char* end,
                                  std::vector<std::int64_t> shape) {
  TARE_TRY(zeros_, Part(end));
  zero_layout_ = layout;
  return CheckPart(end, *zeros_, layout == ZeroLayout::kBytes ? "I8" : "I32", shape);
}

Status CodedTensor::ReadZeros(bool less_one) {
  if (zero_layout_ == ZeroLayout::kNone) return {};
  const int middle = 1 << (bits_ - 1);
  const std::int64_t scale_rows = CeilDivide(rows_, row_block_);
  zero_points_.resize(static_cast<std::size_t>(scale_rows * groups_));
  for (std::int64_t g = 0; g < groups_; ++g) {
    for (std::int64_t n = 0; n < scale_rows; ++n) {
      int zero = 0;
      switch (zero_layout_) {
        case ZeroLayout::kAwq: {
          const std::uint32_t word = Word(*zeros_, (g * rows_ + n) / 8);
          zero = static_cast<int>(word >> (4 * kAwqNibble[static_cast<std::size_t>(n % 8)]) & 15);
          break;
        }
        case ZeroLayout::kGptq:
          zero = Code(*zeros_, g * (rows_ * bits_ / kWordBits), n, bits_);
          zeros_wrap_ = zeros_wrap_ || (less_one && zero == 2 * middle - 1);
          zero += less_one ? 1 : 0;
          break;
        case ZeroLayout::kPackedColumns: {
          const int per_word = kWordBits / bits_;
          const std::uint32_t word = Word(*zeros_, n / per_word * groups_ + g);
          zero = static_cast<int>(word >> (n % per_word * bits_) & ((1u << bits_) - 1));
          break;
        }
        case ZeroLayout::kBytes:
          zero = SignedByte(*zeros_, n * groups_ + g) + middle;
          break;
        case ZeroLayout::kNone:
          break;
      }
      zero_points_[static_cast<std::size_t>(n * scale_row_stride_ + g * scale_group_stride_)] =
          static_cast<std::int16_t>(zero);
    }
  }
  const bool all_middle =
      std::ranges::all_of(zero_points_, [middle](std::int16_t zero) { return zero == middle; });
  if (all_middle) zero_points_.clear();
  return {};
}

void CodedTensor::ChooseForm() {
  form_ = {StoredType::kF32, WeightType::kBf16, rows_, cols_};
  const bool in_blocks = group_of_.empty() && cols_ % kernels::kStoredGroup == 0 &&
                         group_ % kernels::kStoredGroup == 0;
  if (!in_blocks || layout_ == Layout::kFloat8) return;
  if (bits_ == 4) {
    const bool fits = std::ranges::all_of(
        zero_points_, [](std::int16_t zero) { return zero >= 0 && zero <= 16; });
    if (!fits) return;
    form_.type = zero_points_.empty() ? StoredType::kCodes4 : StoredType::kCodes4Zero;
    form_.natural = WeightType::kInt4;
  } else if (zero_points_.empty()) {
    form_.type = StoredType::kCodes8;
    form_.natural = WeightType::kInt8;
  }
}

std::uint64_t CodedTensor::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [end, tensor] : parts_) sum += tensor->data.size();
  return sum;
}

Result<std::vector<float>> CodedTensor::ReadScales() const {
  if (!scales_->stored) {
    return Bad(scale_end_, fmt::format("has dtype {}; F32, F16 or BF16 is needed", scales_->type));
  }
  std::int64_t count = 1;
  for (const std::int64_t size : scales_->shape) count *= size;
  std::vector<float> values(static_cast<std::size_t>(count));
  kernels::DequantizeRow({*scales_->stored, 1, count, scales_->data}, 0, values);
  for (const float value : values) {
    if (std::isfinite(value) && std::fabs(value) <= kLargestHalf) continue;
    return Bad(scale_end_, fmt::format("holds {}, which is no scale of weights", value));
  }
  return values;
}

// codes: [count, cols].
void CodedTensor::GatherCodes(std::int64_t first_row, std::int64_t count,
                              std::uint8_t* codes) const {
  const std::int64_t k_end = cols_;
  switch (layout_) {
    case Layout::kAwq:
      for (std::int64_t k = 0; k < k_end; ++k) {
        for (std::int64_t n = 0; n < count; n += 8) {
          const std::uint32_t word = Word(*codes_, (k * rows_ + first_row + n) / 8);
          for (std::int64_t c = 0; c < 8; ++c) {
            codes[(n + c) * k_end + k] = static_cast<std::uint8_t>(
                word >> (4 * kAwqNibble[static_cast<std::size_t>(c)]) & 15);
          }
        }
      }
      return;
    case Layout::kGptq: {
      const int per_word = kWordBits / bits_;
      const std::uint32_t mask = (1u << bits_) - 1;
      for (std::int64_t k = 0; k < k_end; k += per_word) {
        for (std::int64_t n = 0; n < count; ++n) {
          const std::uint32_t word = Word(*codes_, k / per_word * rows_ + first_row + n);
          for (int i = 0; i < per_word; ++i) {
            codes[n * k_end + k + i] = static_cast<std::uint8_t>(word >> (i * bits_) & mask);
          }
        }
      }
      return;
    }
    case Layout::kPackedRows: {
      const std::int64_t words = CeilDivide(k_end, kWordBits / bits_);
      for (std::int64_t n = 0; n < count; ++n) {
        for (std::int64_t k = 0; k < k_end; ++k) {
          codes[n * k_end + k] =
              static_cast<std::uint8_t>(Code(*codes_, (first_row + n) * words, k, bits_));
        }
      }
      return;
    }
    case Layout::kBytes:
    case Layout::kFloat8: {
      const std::byte* from = codes_->data.data() + first_row * k_end;
      const int offset = layout_ == Layout::kBytes ? 128 : 0;  // signed bytes become 0..255
      for (std::int64_t i = 0; i < count * k_end; ++i) {
        codes[i] = static_cast<std::uint8_t>(static_cast<int>(from[i]) + offset);
      }
      return;
    }
  }
}

void CodedTensor::EncodeRow(std::int64_t n, const std::uint8_t* codes,
                            const std::vector<float>& scales, std::byte* out) const {
  static const std::array<float, 256> kFloat8 = MakeFloat8Table();
  const int middle = 1 << (bits_ - 1);
  const auto zero_at = [&](std::size_t at) {
    return zero_points_.empty() ? middle : int{zero_points_[at]};
  };
  if (form_.type == StoredType::kF32) {
    for (std::int64_t k = 0; k < cols_; ++k) {
      const std::size_t at = ScaleAt(n, GroupOf(k));
      const float code = layout_ == Layout::kFloat8 ? kFloat8[codes[k]]
                                                    : static_cast<float>(codes[k] - zero_at(at));
      const float value = scales[at] * code;
      std::memcpy(out + k * std::int64_t{sizeof value}, &value, sizeof value);
    }
    return;
  }
  const int block_bytes = kernels::BlockBytes(form_.type);
  for (std::int64_t k = 0; k < cols_; k += kernels::kStoredGroup, out += block_bytes) {
    const std::size_t at = ScaleAt(n, k / group_);
    if (form_.type == StoredType::kCodes4) {
      kernels::BlockCodes4 block{scales[at], {}};
      kernels::WriteNibbles(codes + k, block);
      std::memcpy(out, &block, sizeof block);
    } else if (form_.type == StoredType::kCodes4Zero) {
      kernels::BlockCodes4Zero block{scales[at], zero_at(at), {}};
      kernels::WriteNibbles(codes + k, block);
      std::memcpy(out, &block, sizeof block);
    } else {
      kernels::BlockCodes8 block{scales[at], {}};
      for (int i = 0; i < kernels::kStoredGroup; ++i) {
        block.codes[i] = static_cast<std::int8_t>(codes[k + i] - middle);
      }
      std::memcpy(out, &block, sizeof block);
    }
  }
}

Result<TensorValues> CodedTensor::Decode(ThreadPool& pool) const {
  TARE_TRY(const std::vector<float> scales, ReadScales());
  const std::size_t row_bytes = kernels::RowSize(form_.type, cols_);
  const auto total = static_cast<std::size_t>(rows_) * row_bytes;
  std::shared_ptr<std::vector<std::byte>> memory;
  try {
    memory = std::make_shared<std::vector<std::byte>>(total);
  } catch (const std::bad_alloc&) {
    return Fail(ErrorKind::kResourceExhausted, "{}: no memory for {} MiB to decode tensor '{}' in",
                source_, total >> 20, name());
  }
  const std::int64_t strips = CeilDivide(rows_, kStrip);
  pool.ParallelFor(static_cast<std::size_t>(strips), 1, [&](std::size_t begin, std::size_t end) {
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(kStrip * cols_));
    for (auto strip = static_cast<std::int64_t>(begin); strip < static_cast<std::int64_t>(end);
         ++strip) {
      const std::int64_t first = strip * kStrip;
      const std::int64_t count = std::min(kStrip, rows_ - first);
      GatherCodes(first, count, codes.data());
      for (std::int64_t i = 0; i < count; ++i) {
        EncodeRow(first + i, codes.data() + i * cols_, scales,
                  memory->data() + static_cast<std::size_t>(first + i) * row_bytes);
      }
    }
  });
  return TensorValues{{form_.type, rows_, cols_, *memory}, memory};
}

}  // namespace tare::model
