#include "model/weight_loader.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "model/packed_cache.h"

namespace tare::model {
namespace {

using kernels::StoredType;
using kernels::TensorView;
using kernels::WeightType;

constexpr std::size_t kLeftOversShown = 5;

std::size_t RowBytes(const TensorView& view) {
  return static_cast<std::size_t>(view.cols / kernels::BlockElements(view.type)) *
         static_cast<std::size_t>(kernels::BlockBytes(view.type));
}

// The stored row that belongs at `row` when neighbouring pairs become halves.
std::int64_t SourceRow(std::int64_t row, const std::optional<RotatedHeads>& rotated) {
  if (!rotated) return row;
  const std::int64_t in_head = row % rotated->head_dim;
  if (in_head >= rotated->dims) return row;
  const std::int64_t half = rotated->dims / 2;
  const std::int64_t source = in_head < half ? 2 * in_head : 2 * (in_head - half) + 1;
  return row - in_head + source;
}

// Rows of all parts one after the other, in memory of its own.
struct Assembled {
  std::vector<std::byte> bytes;
  TensorView view;
};

// The form of the assembled rows, without their bytes.
TensorView Outline(std::span<const TensorView> views) {
  const bool same = std::ranges::all_of(
      views, [&](const TensorView& view) { return view.type == views.front().type; });
  TensorView outline;
  outline.type = same ? views.front().type : StoredType::kF32;
  outline.cols = views.front().cols;
  for (const TensorView& view : views) outline.rows += view.rows;
  return outline;
}

Assembled Assemble(std::span<const TensorView> views, std::span<const MatrixPart> parts,
                   bool reorder) {
  Assembled out;
  out.view = Outline(views);
  const std::size_t row_bytes = RowBytes(out.view);
  out.bytes.resize(static_cast<std::size_t>(out.view.rows) * row_bytes);
  std::byte* to = out.bytes.data();
  std::vector<float> row_values(static_cast<std::size_t>(out.view.cols));
  for (std::size_t p = 0; p < views.size(); ++p) {
    const TensorView& view = views[p];
    for (std::int64_t row = 0; row < view.rows; ++row, to += row_bytes) {
      const std::int64_t source = reorder ? SourceRow(row, parts[p].rotated) : row;
      if (view.type == out.view.type) {
        std::memcpy(to, view.data.data() + static_cast<std::size_t>(source) * row_bytes, row_bytes);
      } else {
        kernels::DequantizeRow(view, source, row_values);
        std::memcpy(to, row_values.data(), row_bytes);
      }
    }
  }
  out.view.data = out.bytes;
  return out;
}

}  // namespace

WeightType ChooseType(std::optional<WeightType> dtype, MatrixRole role,
                      std::span<const StoredType> stored) {
  if (dtype) {
    return *dtype == WeightType::kInt4 && role == MatrixRole::kHead ? WeightType::kInt8 : *dtype;
  }
  // WeightType goes from wide to narrow; stacked parts share the widest any of them needs.
  WeightType widest = WeightType::kInt4;
  for (const StoredType type : stored) widest = std::min(widest, kernels::NaturalType(type));
  return widest;
}

WeightLoader::WeightLoader(const Checkpoint& checkpoint, const LoadOptions& options)
    : checkpoint_(checkpoint), options_(options) {
  for (const std::string& name : checkpoint.TensorNames()) {
    total_bytes_ += checkpoint.Find(name)->bytes;
  }
}

void WeightLoader::Report(std::string_view what) {
  if (!options_.progress || total_bytes_ == 0) return;
  options_.progress(
      std::min(1.0, static_cast<double>(done_bytes_) / static_cast<double>(total_bytes_)), what);
}

Result<TensorView> WeightLoader::Take(std::string_view name, std::int64_t rows, std::int64_t cols) {
  const auto stored = checkpoint_.Find(name);
  if (!stored) {
    return Fail(ErrorKind::kCorrupt,
                "{}: tensor '{}' is missing; the checkpoint is incomplete, or not of family {}",
                checkpoint_.name(), checkpoint_.FileName(name), checkpoint_.config().family);
  }
  TARE_TRY(const TensorView view, checkpoint_.View(name));
  const bool vector = rows == 1 && stored->shape.size() == 1;
  if (view.rows != rows || view.cols != cols || (stored->shape.size() != 2 && !vector)) {
    const std::string wanted = rows == 1 && stored->shape.size() <= 1
                                   ? fmt::format("[{}]", cols)
                                   : fmt::format("[{}, {}]", rows, cols);
    return Fail(ErrorKind::kCorrupt,
                "{}: tensor '{}' has shape {} (rows first), the model's facts ask for {}",
                checkpoint_.name(), stored->name, stored->ShapeText(), wanted);
  }
  Report(name);
  done_bytes_ += stored->bytes;
  taken_.insert(std::string(name));
  return view;
}

Result<std::vector<float>> WeightLoader::Vector(std::string_view name, std::int64_t size,
                                                std::optional<RotatedHeads> rotated) {
  TARE_TRY(const TensorView view, Take(name, 1, size));
  std::vector<float> stored(static_cast<std::size_t>(size));
  kernels::DequantizeRow(view, 0, stored);
  if (!rotated || checkpoint_.rotary_pairs() == RotaryPairs::kHalves) return stored;
  std::vector<float> ordered(stored.size());
  for (std::int64_t i = 0; i < size; ++i) {
    ordered[static_cast<std::size_t>(i)] = stored[static_cast<std::size_t>(SourceRow(i, rotated))];
  }
  return ordered;
}

Result<TensorView> WeightLoader::Rows(std::string_view name, std::int64_t rows, std::int64_t cols) {
  return Take(name, rows, cols);
}

Result<kernels::PackedMatrix> WeightLoader::Matrix(std::string_view name, std::int64_t rows,
                                                   std::int64_t cols, MatrixRole role) {
  const MatrixPart part{std::string(name), rows, {}};
  return Stacked({&part, 1}, cols, role);
}

Result<kernels::PackedMatrix> WeightLoader::Stacked(std::span<const MatrixPart> parts,
                                                    std::int64_t cols, MatrixRole role) {
  std::vector<TensorView> views;
  std::vector<StoredType> types;
  bool reorder = false;
  for (const MatrixPart& part : parts) {
    TARE_TRY(const TensorView view, Take(part.name, part.rows, cols));
    views.push_back(view);
    types.push_back(view.type);
    reorder |= part.rotated.has_value();
  }
  reorder = reorder && checkpoint_.rotary_pairs() == RotaryPairs::kNeighbours;
  const WeightType type = ChooseType(options_.dtype, role, types);
  std::string name;
  for (const MatrixPart& part : parts) name += (name.empty() ? "" : "+") + part.name;
  if (options_.packed != nullptr) {
    const auto form = kernels::PackedMatrix::FormOf(type, Outline(views));
    if (auto found = options_.packed->Find(name, form)) {
      if (role == MatrixRole::kLayer) layer_bytes_[type] += found->bytes();
      return *std::move(found);
    }
  }
  auto packed = [&] {
    if (views.size() == 1 && !reorder) {
      return kernels::PackedMatrix::Pack(type, views.front(), *options_.pool);
    }
    const Assembled assembled = Assemble(views, parts, reorder);
    return kernels::PackedMatrix::Pack(type, assembled.view, *options_.pool);
  }();
  if (!packed) {
    return Context(std::move(packed).error(), "{}: tensor '{}'", checkpoint_.name(),
                   checkpoint_.FileName(parts.front().name));
  }
  if (role == MatrixRole::kLayer) layer_bytes_[type] += packed->bytes();
  Keep(name, *packed);
  return packed;
}

void WeightLoader::Keep(const std::string& name, const kernels::PackedMatrix& packed) {
  if (options_.keep == nullptr || !keeps_) return;
  if (Status kept = options_.keep->Add(name, packed); !kept) {
    keeps_ = false;
    LogWarn("packed weights are not kept for the next start: {}", kept.error().message);
  }
}

WeightType WeightLoader::layer_type() const {
  WeightType most = WeightType::kF32;
  std::size_t bytes = 0;
  for (const auto& [type, size] : layer_bytes_) {
    if (size > bytes) {
      most = type;
      bytes = size;
    }
  }
  return most;
}

Status WeightLoader::Finish() const {
  std::string left_over;
  std::size_t count = 0;
  for (const std::string& name : checkpoint_.TensorNames()) {
    if (taken_.contains(name)) continue;
    if (++count <= kLeftOversShown) {
      left_over += (left_over.empty() ? "'" : ", '") + checkpoint_.FileName(name) + "'";
    }
  }
  if (count == 0) return {};
  if (count > kLeftOversShown) left_over += fmt::format(" and {} more", count - kLeftOversShown);
  return Fail(ErrorKind::kUnsupported,
              "{}: family {} has no use for tensor {}; this is another architecture, and computing "
              "without it would give wrong answers",
              checkpoint_.name(), checkpoint_.config().family, left_over);
}

}  // namespace tare::model
