#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "base/check.h"
#include "kernels/half.h"
#include "kernels/matmul_impl.h"
#include "kernels/stored_blocks.h"

namespace tare::kernels {
namespace {

// 32 weights as an integer cell holds them.
struct Group {
  std::uint16_t scale = 0;
  std::uint16_t minimum = 0;
  std::int8_t codes[kGroup] = {};  // signed for INT8, 0..15 for INT4
};

// Largest magnitude to 127; the scale is rounded first so that codes fit the stored scale.
Group QuantizeInt8(const float* values) {
  float largest = 0.0f;
  for (int i = 0; i < kGroup; ++i) largest = std::max(largest, std::fabs(values[i]));
  Group group;
  group.scale = FloatToF16(largest / 127.0f);
  const float scale = F16ToFloat(group.scale);
  if (!(scale > 0.0f)) return group;
  for (int i = 0; i < kGroup; ++i) {
    const float code = std::nearbyint(values[i] / scale);
    group.codes[i] = static_cast<std::int8_t>(std::clamp(code, -127.0f, 127.0f));
  }
  return group;
}

// Codes for a given scale and minimum, and the squared error they leave.
float FitInt4(const float* values, Group& group) {
  const float scale = F16ToFloat(group.scale);
  const float minimum = F16ToFloat(group.minimum);
  float error = 0.0f;
  for (int i = 0; i < kGroup; ++i) {
    const float code = scale > 0.0f ? std::nearbyint((values[i] - minimum) / scale) : 0.0f;
    group.codes[i] = static_cast<std::int8_t>(std::clamp(code, 0.0f, 15.0f));
    const float miss = scale * static_cast<float>(group.codes[i]) + minimum - values[i];
    error += miss * miss;
  }
  return error;
}

// Scale and minimum of least squared error: starts from the range, then repeats the least-squares
// line through (code, value) for ranges a little narrower, which trade the extremes for the middle.
Group QuantizeInt4(const float* values) {
  const auto [low, high] = std::minmax_element(values, values + kGroup);
  Group best;
  float best_error = std::numeric_limits<float>::max();
  constexpr int kTrials = 6;
  for (int trial = 0; trial < kTrials; ++trial) {
    const float cut = (*high - *low) * 0.02f * static_cast<float>(trial);
    Group group;
    group.scale = FloatToF16((*high - *low - 2.0f * cut) / 15.0f);
    group.minimum = FloatToF16(*low + cut);
    for (int pass = 0; pass < 2; ++pass) {
      const float error = FitInt4(values, group);
      if (error < best_error) {
        best_error = error;
        best = group;
      }
      float sum_c = 0, sum_v = 0, sum_cc = 0, sum_cv = 0;
      for (int i = 0; i < kGroup; ++i) {
        const auto code = static_cast<float>(group.codes[i]);
        sum_c += code;
        sum_v += values[i];
        sum_cc += code * code;
        sum_cv += code * values[i];
      }
      const float spread = sum_cc * kGroup - sum_c * sum_c;
      if (!(spread > 0.0f)) break;
      const float scale = (sum_cv * kGroup - sum_c * sum_v) / spread;
      if (!(scale > 0.0f)) break;
      group.scale = FloatToF16(scale);
      group.minimum = FloatToF16((sum_v - scale * sum_c) / kGroup);
    }
  }
  return best;
}

std::int32_t ReadZero(const std::byte* bytes) {
  BlockCodes4Zero block;
  std::memcpy(&block, bytes, sizeof block);
  return block.zero;
}

// Group `index` of a row whose stored blocks can be taken over as they are.
Group TakeOver(WeightType type, const TensorView& source, std::int64_t row, std::int64_t index) {
  const std::byte* bytes = RowBytes(source, row) + index * BlockBytes(source.type);
  Group group;
  const bool codes4 = source.type == StoredType::kCodes4 || source.type == StoredType::kCodes4Zero;
  if (codes4 && type == WeightType::kInt4) {
    // The scale is a half in nearly every checkpoint; the zero point becomes a minimum, which as a
    // half errs by 2^-12 of itself. Without minimum the kernels take 8 off the code, as here.
    const int zero = source.type == StoredType::kCodes4 ? 8 : ReadZero(bytes);
    const CodeGroup codes = ReadCodes(source.type, RowBytes(source, row), index);
    group.scale = FloatToF16(codes.scale[0]);
    group.minimum = FloatToF16(-F16ToFloat(group.scale) * static_cast<float>(zero));
    for (int i = 0; i < kGroup; ++i) {
      group.codes[i] = static_cast<std::int8_t>(codes.codes[i] + zero);
    }
    return group;
  }
  if (source.type == StoredType::kQ5_0 || source.type == StoredType::kIq4Nl ||
      source.type == StoredType::kMxfp4 || source.type == StoredType::kCodes8 ||
      source.type == StoredType::kQ4_K || codes4) {
    // Q4_K's scales are products of a half and six bits: rounded to a half they err by 2^-12.
    const CodeGroup codes = ReadCodes(source.type, RowBytes(source, row), index);
    group.scale = FloatToF16(codes.scale[0]);
    group.minimum = FloatToF16(codes.minimum);
    std::copy(std::begin(codes.codes), std::end(codes.codes), group.codes);
    return group;
  }
  if (source.type == StoredType::kQ8_0) {
    BlockQ8_0 block;
    std::memcpy(&block, bytes, sizeof block);
    group.scale = block.scale;
    std::copy(std::begin(block.codes), std::end(block.codes), group.codes);
  } else if (source.type == StoredType::kQ4_0) {
    BlockQ4_0 block;
    std::memcpy(&block, bytes, sizeof block);
    group.scale = block.scale;
    for (int i = 0; i < kGroup; ++i)
      group.codes[i] = static_cast<std::int8_t>(Nibble(block.codes, i));
  } else {
    BlockQ4_1 block;
    std::memcpy(&block, bytes, sizeof block);
    group.scale = block.scale;
    group.minimum = block.minimum;
    for (int i = 0; i < kGroup; ++i)
      group.codes[i] = static_cast<std::int8_t>(Nibble(block.codes, i));
  }
  return group;
}

bool TakesOver(WeightType type, StoredType stored) {
  switch (stored) {
    case StoredType::kQ8_0:
    case StoredType::kQ5_0:
    case StoredType::kIq4Nl:
    case StoredType::kMxfp4:
    case StoredType::kCodes8:
      return type == WeightType::kInt8;
    case StoredType::kQ4_0:
    case StoredType::kQ4_1:
    case StoredType::kQ4_K:
      return type == WeightType::kInt4;
    case StoredType::kCodes4:
    case StoredType::kCodes4Zero:
      return type == WeightType::kInt4 || type == WeightType::kInt8;
    default:
      return false;
  }
}

// Writes group `index` of feature `column` of a panel.
void PlaceGroup(const WeightCells& cells, std::uint8_t* panel, int column, std::int64_t index,
                const Group& group) {
  std::uint8_t* cell = panel + index / 2 * cells.cell_bytes;
  const int half = static_cast<int>(index % 2);
  const bool is_int8 = cells.type == WeightType::kInt8;
  for (int i = 0; i < kGroup; ++i) {
    const int byte = i / 4 * kLineBytes + column * 4 + i % 4;
    if (is_int8) {
      cell[half * kInt8Codes / 2 + byte] = static_cast<std::uint8_t>(group.codes[i]);
    } else {
      cell[byte] = static_cast<std::uint8_t>(cell[byte] | group.codes[i] << (4 * half));
    }
  }
  std::uint8_t* scales = cell + (is_int8 ? kInt8Codes : kInt4Codes);
  const int at = (half * kPanelCols + column) * 2;
  std::memcpy(scales + at, &group.scale, 2);
  if (cells.with_minimum) std::memcpy(scales + kLineBytes + at, &group.minimum, 2);
}

// The units of a packed panel of integers (packed_layout.h), behind its cells.
void PlaceUnits(const WeightCells& cells, std::uint8_t* panel) {
  const bool is_int8 = cells.type == WeightType::kInt8;
  const auto half_at = [](const std::uint8_t* halves, int at) {
    std::uint16_t half;
    std::memcpy(&half, halves + at * 2, sizeof half);
    return F16ToFloat(half);
  };
  float units[kPanelCols];
  for (int column = 0; column < kPanelCols; ++column) {
    float unit = 0.0f;
    for (std::int64_t group = 0; group < 2 * cells.cells; ++group) {
      const std::uint8_t* scales =
          panel + group / 2 * cells.cell_bytes + (is_int8 ? kInt8Codes : kInt4Codes);
      const int at = static_cast<int>(group % 2) * kPanelCols + column;
      const float scale = half_at(scales, at);
      float least = std::fabs(scale) / kLargestFactor;
      if (cells.with_minimum) {
        const float minimum = half_at(scales + kLineBytes, at);
        const float reach = std::max(std::fabs(minimum), std::fabs(minimum + 15.0f * scale));
        least = std::max(least, reach / kLargestSum);
      }
      // Not std::max alone: what is not a number has to show.
      unit = std::isnan(scale) ? scale : std::max(unit, least);
      if (std::isnan(unit)) break;
    }
    units[column] = unit;
  }
  std::memcpy(panel + cells.cells * cells.cell_bytes, units, sizeof units);
}

void PackPanel(const TensorView& source, const WeightCells& cells, std::int64_t panel_index,
               std::uint8_t* panel, std::vector<float>& row_values) {
  std::memset(panel, 0, static_cast<std::size_t>(cells.panel_bytes));
  const std::int64_t first = panel_index * kPanelCols;
  const auto columns = static_cast<int>(std::min<std::int64_t>(kPanelCols, cells.rows - first));
  const std::int64_t groups = (cells.cols + kGroup - 1) / kGroup;
  const bool take_over = TakesOver(cells.type, source.type);
  row_values.assign(static_cast<std::size_t>(groups * kGroup), 0.0f);
  for (int column = 0; column < columns; ++column) {
    if (take_over) {
      for (std::int64_t g = 0; g < groups; ++g) {
        PlaceGroup(cells, panel, column, g, TakeOver(cells.type, source, first + column, g));
      }
      continue;
    }
    DequantizeRow(source, first + column, row_values);
    const float* values = row_values.data();
    switch (cells.type) {
      case WeightType::kF32:
        for (std::int64_t k = 0; k < cells.cols; ++k) {
          std::memcpy(panel + k * kLineBytes + column * 4, values + k, 4);
        }
        break;
      case WeightType::kBf16:
        for (std::int64_t k = 0; k < cells.cols; ++k) {
          const std::uint16_t half = FloatToBf16(values[k]);
          std::memcpy(panel + k / 2 * kLineBytes + column * 4 + k % 2 * 2, &half, 2);
        }
        break;
      case WeightType::kInt8:
      case WeightType::kInt4:
        for (std::int64_t g = 0; g < groups; ++g) {
          const float* group = values + g * kGroup;
          PlaceGroup(cells, panel, column, g,
                     cells.type == WeightType::kInt8 ? QuantizeInt8(group) : QuantizeInt4(group));
        }
        break;
    }
  }
  if (cells.type == WeightType::kInt8 || cells.type == WeightType::kInt4) PlaceUnits(cells, panel);
}

// Sizes of a packed matrix, without its data.
WeightCells Plan(const PackedForm& form) {
  WeightCells cells;
  cells.type = form.type;
  cells.with_minimum = form.with_minimum;
  cells.rows = form.rows;
  cells.cols = form.cols;
  cells.panels = (form.rows + kPanelCols - 1) / kPanelCols;
  std::int64_t depth = 1;
  switch (form.type) {
    case WeightType::kF32:
      cells.cell_bytes = kLineBytes;
      break;
    case WeightType::kBf16:
      depth = kBf16CellDepth;
      cells.cell_bytes = 16 * kLineBytes;
      break;
    case WeightType::kInt8:
      depth = kInt8CellDepth;
      cells.cell_bytes = kInt8Codes + kLineBytes;
      break;
    case WeightType::kInt4:
      depth = kInt8CellDepth;
      cells.cell_bytes = kInt4Codes + (cells.with_minimum ? 2 : 1) * kLineBytes;
      break;
  }
  cells.cells = (form.cols + depth - 1) / depth;
  const bool has_units = form.type == WeightType::kInt8 || form.type == WeightType::kInt4;
  cells.panel_bytes = cells.cells * cells.cell_bytes + (has_units ? kLineBytes : 0);
  return cells;
}

std::size_t TotalBytes(const WeightCells& cells) {
  return static_cast<std::size_t>(cells.panels * cells.panel_bytes);
}

// Keeps every product of sizes inside 64 bits; no model comes near.
Status CheckSizes(std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 28;
  if (rows > 0 && cols > 0 && rows <= kLargest && cols <= kLargest) return {};
  return Fail(ErrorKind::kUnsupported, "a weight matrix of {} x {} cannot be packed", rows, cols);
}

Status CheckSource(const TensorView& source) {
  TARE_RETURN_IF_ERROR(CheckSizes(source.rows, source.cols));
  if (source.cols % BlockElements(source.type) != 0) {
    return Fail(ErrorKind::kCorrupt,
                "a {} weight matrix has {} columns, which is no multiple of {}",
                ToString(source.type), source.cols, BlockElements(source.type));
  }
  const std::int64_t bytes =
      source.rows * (source.cols / BlockElements(source.type) * BlockBytes(source.type));
  if (source.data.size() != static_cast<std::size_t>(bytes)) {
    return Fail(ErrorKind::kCorrupt, "a {} weight matrix of {} x {} needs {} bytes but has {}",
                ToString(source.type), source.rows, source.cols, bytes, source.data.size());
  }
  return {};
}

}  // namespace

const char* ToString(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return "F32";
    case WeightType::kBf16:
      return "BF16";
    case WeightType::kInt8:
      return "INT8";
    case WeightType::kInt4:
      return "INT4";
  }
  return "?";
}

WeightType NaturalType(StoredType stored) {
  switch (stored) {
    case StoredType::kF32:
      return WeightType::kF32;
    case StoredType::kF16:
    case StoredType::kBf16:
      return WeightType::kBf16;
    case StoredType::kQ8_0:
    case StoredType::kQ5_0:
    case StoredType::kQ5_1:
    case StoredType::kQ5_K:
    case StoredType::kQ6_K:
    case StoredType::kIq4Nl:
    case StoredType::kMxfp4:
    case StoredType::kCodes8:
      return WeightType::kInt8;
    case StoredType::kQ4_0:
    case StoredType::kQ4_1:
    case StoredType::kQ4_K:
    case StoredType::kCodes4:
    case StoredType::kCodes4Zero:
      return WeightType::kInt4;
  }
  return WeightType::kF32;
}

Result<PackedMatrix> PackedMatrix::Pack(WeightType type, const TensorView& source,
                                        ThreadPool& pool) {
  TARE_RETURN_IF_ERROR(CheckSource(source));
  PackedMatrix packed;
  WeightCells& cells = packed.impl_->cells;
  cells = Plan(FormOf(type, source));
  const std::size_t bytes = TotalBytes(cells);
  try {
    packed.impl_->memory = AlignedBuffer(bytes);
  } catch (const std::bad_alloc&) {
    return Fail(ErrorKind::kResourceExhausted,
                "no memory for {} MiB of {} weights; choose a smaller --dtype or model",
                bytes >> 20, ToString(type));
  }
  auto* memory = packed.impl_->memory.as<std::uint8_t>();
  cells.data = memory;
  pool.ParallelFor(
      static_cast<std::size_t>(cells.panels), 4, [&](std::size_t begin, std::size_t end) {
        std::vector<float> row_values;
        for (auto panel = static_cast<std::int64_t>(begin); panel < static_cast<std::int64_t>(end);
             ++panel) {
          PackPanel(source, cells, panel, memory + panel * cells.panel_bytes, row_values);
        }
      });
  return packed;
}

PackedForm PackedMatrix::FormOf(WeightType type, const TensorView& source) {
  // These are symmetric; their minimum would always be -8 * scale.
  const bool symmetric = source.type == StoredType::kQ4_0 || source.type == StoredType::kCodes4;
  const bool with_minimum = type == WeightType::kInt4 && !symmetric;
  return {type, with_minimum, source.rows, source.cols};
}

Result<PackedMatrix> PackedMatrix::View(const PackedForm& form, std::span<const std::byte> data,
                                        std::shared_ptr<const void> owner) {
  TARE_RETURN_IF_ERROR(CheckSizes(form.rows, form.cols));
  PackedMatrix packed;
  WeightCells& cells = packed.impl_->cells;
  cells = Plan(form);
  if (data.size() != TotalBytes(cells)) {
    return Fail(ErrorKind::kCorrupt, "a packed {} matrix of {} x {} takes {} bytes, not {}",
                ToString(form.type), form.rows, form.cols, TotalBytes(cells), data.size());
  }
  if (reinterpret_cast<std::uintptr_t>(data.data()) % kLineBytes != 0) {
    return Fail(ErrorKind::kCorrupt, "packed weights do not begin at a multiple of {} bytes",
                kLineBytes);
  }
  cells.data = reinterpret_cast<const std::uint8_t*>(data.data());
  packed.impl_->owner = std::move(owner);
  return packed;
}

PackedMatrix::PackedMatrix() : impl_(std::make_unique<Impl>()) {}
PackedMatrix::PackedMatrix(PackedMatrix&&) noexcept = default;
PackedMatrix& PackedMatrix::operator=(PackedMatrix&&) noexcept = default;
PackedMatrix::~PackedMatrix() = default;

void PackedMatrix::Observe(std::function<void(std::span<const float> x)> see) {
  impl_->observer = std::move(see);
}

WeightType PackedMatrix::type() const { return impl_->cells.type; }
std::int64_t PackedMatrix::rows() const { return impl_->cells.rows; }
std::int64_t PackedMatrix::cols() const { return impl_->cells.cols; }
std::size_t PackedMatrix::bytes() const { return TotalBytes(impl_->cells); }
PackedForm PackedMatrix::form() const {
  const WeightCells& cells = impl_->cells;
  return {cells.type, cells.with_minimum, cells.rows, cells.cols};
}
std::span<const std::byte> PackedMatrix::data() const {
  return {reinterpret_cast<const std::byte*>(impl_->cells.data), bytes()};
}

}  // namespace tare::kernels
