#include "model/weight_loader.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "kernels/stored_blocks.h"
#include "model/packed_cache.h"

namespace tare::model {
namespace {

using kernels::StoredType;
using kernels::TensorView;
using kernels::WeightType;

constexpr std::size_t kLeftOversShown = 5;

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

bool IsCodes4(StoredType type) {
  return type == StoredType::kCodes4 || type == StoredType::kCodes4Zero;
}

// The form of the assembled rows, without their bytes. Parts of one type keep it, 4-bit codes with
// and without zero points become those with; anything else meets in F32.
TensorView Outline(std::span<const TensorForm> forms) {
  TensorView outline;
  outline.type = forms.front().type;
  outline.cols = forms.front().cols;
  for (const TensorForm& form : forms) {
    outline.rows += form.rows;
    if (form.type == outline.type) continue;
    outline.type =
        IsCodes4(form.type) && IsCodes4(outline.type) ? StoredType::kCodes4Zero : StoredType::kF32;
  }
  return outline;
}

void AddZeroPoints(const TensorView& view, std::int64_t row, std::byte* to) {
  const std::byte* from = kernels::RowBytes(view, row);
  for (std::int64_t b = 0; b < view.cols / kernels::kStoredGroup; ++b) {
    kernels::BlockCodes4 without;
    std::memcpy(&without, from + b * std::int64_t{sizeof without}, sizeof without);
    kernels::BlockCodes4Zero with{without.scale, 8, {}};
    std::copy(std::begin(without.codes), std::end(without.codes), with.codes);
    std::memcpy(to + b * std::int64_t{sizeof with}, &with, sizeof with);
  }
}

struct RowsOf {
  TensorView view;
  std::optional<RotatedHeads> rotated;
};

Assembled Assemble(const TensorView& outline, std::span<const RowsOf> parts) {
  Assembled out;
  out.view = outline;
  const std::size_t row_bytes = kernels::RowSize(out.view.type, out.view.cols);
  out.bytes.resize(static_cast<std::size_t>(out.view.rows) * row_bytes);
  std::byte* to = out.bytes.data();
  std::vector<float> row_values(static_cast<std::size_t>(out.view.cols));
  for (const auto& [view, rotated] : parts) {
    for (std::int64_t row = 0; row < view.rows; ++row, to += row_bytes) {
      const std::int64_t source = SourceRow(row, rotated);
      if (view.type != out.view.type && out.view.type == StoredType::kCodes4Zero) {
        AddZeroPoints(view, source, to);
      } else if (view.type == out.view.type) {
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
                      std::span<const WeightType> natural) {
  if (role == MatrixRole::kRouter) return WeightType::kF32;
  if (dtype) {
    const bool keeps_more = role == MatrixRole::kHead || role == MatrixRole::kLatent;
    return *dtype == WeightType::kInt4 && keeps_more ? WeightType::kInt8 : *dtype;
  }
  // WeightType goes from wide to narrow; stacked parts share the widest any of them needs.
  WeightType widest = WeightType::kInt4;
  for (const WeightType type : natural) widest = std::min(widest, type);
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

Result<TensorForm> WeightLoader::Take(std::string_view name, std::int64_t rows, std::int64_t cols) {
  const auto stored = checkpoint_.Find(name);
  if (!stored) {
    return Fail(ErrorKind::kCorrupt,
                "{}: tensor '{}' is missing; the checkpoint is incomplete, or not of family {}",
                checkpoint_.name(), checkpoint_.FileName(name), checkpoint_.config().family);
  }
  TARE_TRY(const TensorForm form, checkpoint_.Form(name));
  const bool vector = rows == 1 && stored->shape.size() == 1;
  if (form.rows != rows || form.cols != cols || (stored->shape.size() != 2 && !vector)) {
    const std::string wanted = rows == 1 && stored->shape.size() <= 1
                                   ? fmt::format("[{}]", cols)
                                   : fmt::format("[{}, {}]", rows, cols);
    return Fail(ErrorKind::kCorrupt,
                "{}: tensor '{}' has shape {} (rows first), the model's facts ask for {}",
                checkpoint_.name(), stored->name, stored->ShapeText(), wanted);
  }
  Took(name, stored->bytes);
  return form;
}

Result<TensorForm> WeightLoader::TakeSet(std::string_view name, int count, std::int64_t rows,
                                         std::int64_t cols) {
  const auto stored = checkpoint_.Find(name);
  TARE_CHECK(stored.has_value());
  TARE_TRY(TensorForm form, checkpoint_.Form(name));
  if (stored->shape != std::vector<std::int64_t>{count, rows, cols}) {
    return Fail(ErrorKind::kCorrupt,
                "{}: tensor '{}' has shape {}, the model's facts ask for [{}, {}, {}]",
                checkpoint_.name(), stored->name, stored->ShapeText(), count, rows, cols);
  }
  Took(name, stored->bytes);
  form.rows = rows;
  return form;
}

void WeightLoader::Took(std::string_view name, std::uint64_t bytes) {
  Report(name);
  done_bytes_ += bytes;
  taken_.insert(std::string(name));
}

Result<std::vector<float>> WeightLoader::Vector(std::string_view name, std::int64_t size,
                                                std::optional<RotatedHeads> rotated) {
  TARE_TRY(const LoadedTensor tensor, Tensor(name, 1, size));
  std::vector<float> stored(static_cast<std::size_t>(size));
  kernels::DequantizeRow(tensor.values.view, 0, stored);
  if (!rotated || checkpoint_.rotary_pairs() == RotaryPairs::kHalves) return stored;
  std::vector<float> ordered(stored.size());
  for (std::int64_t i = 0; i < size; ++i) {
    ordered[static_cast<std::size_t>(i)] = stored[static_cast<std::size_t>(SourceRow(i, rotated))];
  }
  return ordered;
}

Result<LoadedTensor> WeightLoader::Tensor(std::string_view name, std::int64_t rows,
                                          std::int64_t cols) {
  TARE_TRY(const TensorForm form, Take(name, rows, cols));
  TARE_TRY(TensorValues values, checkpoint_.Values(name, *options_.pool));
  return LoadedTensor{form, std::move(values)};
}

Result<TensorView> WeightLoader::Rows(std::string_view name, std::int64_t rows, std::int64_t cols) {
  TARE_TRY(const LoadedTensor tensor, Tensor(name, rows, cols));
  if (tensor.values.decoded != nullptr) {
    return Fail(ErrorKind::kUnsupported,
                "{}: tensor '{}' is quantised; a table that rows are taken from must be stored as "
                "numbers",
                checkpoint_.name(), checkpoint_.FileName(name));
  }
  return tensor.values.view;
}

Result<kernels::PackedMatrix> WeightLoader::Matrix(std::string_view name, std::int64_t rows,
                                                   std::int64_t cols, MatrixRole role) {
  const MatrixPart part{std::string(name), rows, {}};
  return Stacked({&part, 1}, cols, role);
}

Result<kernels::PackedMatrix> WeightLoader::Stacked(std::span<const MatrixPart> parts,
                                                    std::int64_t cols, MatrixRole role) {
  const bool reorder = checkpoint_.rotary_pairs() == RotaryPairs::kNeighbours;
  std::vector<Piece> pieces;
  std::vector<WeightType> types;
  std::string name;
  for (const MatrixPart& part : parts) {
    TARE_TRY(const TensorForm form, Take(part.name, part.rows, cols));
    pieces.push_back({.tensor = part.name, .form = form});
    if (reorder) pieces.back().rotated = part.rotated;
    types.push_back(form.natural);
    name += (name.empty() ? "" : "+") + part.name;
  }
  return PackRows(name, ChooseType(options_.dtype, role, types), pieces, role);
}

Result<std::vector<kernels::PackedMatrix>> WeightLoader::Set(std::span<const MatrixSetPart> parts,
                                                             int count, std::int64_t cols,
                                                             MatrixRole role) {
  std::vector<std::vector<Piece>> pieces(static_cast<std::size_t>(count));
  std::vector<WeightType> types;
  std::string name;
  for (const MatrixSetPart& part : parts) {
    name += (name.empty() ? "" : "+") + part.stacked;
    if (Has(part.stacked) || part.apart == nullptr) {
      if (!Has(part.stacked)) TARE_RETURN_IF_ERROR(Take(part.stacked, part.rows, cols));
      TARE_TRY(const TensorForm form, TakeSet(part.stacked, count, part.rows, cols));
      for (int i = 0; i < count; ++i) {
        pieces[static_cast<std::size_t>(i)].push_back(
            {.tensor = part.stacked, .form = form, .slice = i});
      }
      types.push_back(form.natural);
      continue;
    }
    for (int i = 0; i < count; ++i) {
      std::string tensor = part.apart(i);
      TARE_TRY(const TensorForm form, Take(tensor, part.rows, cols));
      pieces[static_cast<std::size_t>(i)].push_back({.tensor = std::move(tensor), .form = form});
      types.push_back(form.natural);
    }
  }
  const WeightType type = ChooseType(options_.dtype, role, types);
  std::vector<kernels::PackedMatrix> packed;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    TARE_TRY(kernels::PackedMatrix matrix,
             PackRows(fmt::format("{}[{}]", name, i), type, pieces[i], role));
    packed.push_back(std::move(matrix));
  }
  stacked_.clear();
  return packed;
}

Result<kernels::PackedMatrix> WeightLoader::Derived(const std::string& name, WeightType type,
                                                    const TensorView& view) {
  const Piece piece{.form = {view.type, type, view.rows, view.cols}, .given = view};
  return PackRows(name, type, {&piece, 1}, MatrixRole::kLatent);
}

Result<TensorValues> WeightLoader::ValuesOf(const Piece& piece) {
  if (piece.tensor.empty()) return TensorValues{piece.given, nullptr};
  if (piece.slice < 0) return checkpoint_.Values(piece.tensor, *options_.pool);
  auto whole = stacked_.find(piece.tensor);
  if (whole == stacked_.end()) {  // decoded once for all slices
    TARE_TRY(TensorValues values, checkpoint_.Values(piece.tensor, *options_.pool));
    whole = stacked_.emplace(piece.tensor, std::move(values)).first;
  }
  TensorValues values = whole->second;
  TensorView& view = values.view;
  const std::size_t bytes =
      static_cast<std::size_t>(piece.form.rows) * kernels::RowSize(view.type, view.cols);
  view.rows = piece.form.rows;
  view.data = view.data.subspan(static_cast<std::size_t>(piece.slice) * bytes, bytes);
  return values;
}

Result<kernels::PackedMatrix> WeightLoader::PackRows(const std::string& name, WeightType type,
                                                     std::span<const Piece> pieces,
                                                     MatrixRole role) {
  const bool reorder =
      std::ranges::any_of(pieces, [](const Piece& piece) { return piece.rotated.has_value(); });
  std::vector<TensorForm> forms;
  for (const Piece& piece : pieces) forms.push_back(piece.form);
  const TensorView outline = Outline(forms);
  if (options_.packed != nullptr) {
    const auto form = kernels::PackedMatrix::FormOf(type, outline);
    if (auto found = options_.packed->Find(name, form)) {
      if (role == MatrixRole::kLayer) layer_bytes_[type] += found->bytes();
      Observe(name, *found);
      return *std::move(found);
    }
  }
  std::vector<TensorValues> values;
  std::vector<RowsOf> rows;
  for (const Piece& piece : pieces) {
    TARE_TRY(TensorValues one, ValuesOf(piece));
    rows.push_back({one.view, piece.rotated});
    values.push_back(std::move(one));
  }
  auto packed = [&] {
    if (rows.size() == 1 && !reorder) {
      return kernels::PackedMatrix::Pack(type, rows.front().view, *options_.pool);
    }
    const Assembled assembled = Assemble(outline, rows);
    return kernels::PackedMatrix::Pack(type, assembled.view, *options_.pool);
  }();
  if (!packed) {
    return Context(std::move(packed).error(), "{}: tensor '{}'", checkpoint_.name(),
                   checkpoint_.FileName(name.substr(0, name.find_first_of("+["))));
  }
  if (role == MatrixRole::kLayer) layer_bytes_[type] += packed->bytes();
  Keep(name, *packed);
  Observe(name, *packed);
  return packed;
}

void WeightLoader::Observe(const std::string& name, kernels::PackedMatrix& packed) const {
  if (!options_.observe) return;
  packed.Observe([see = options_.observe, name, cols = packed.cols()](std::span<const float> x) {
    see(name, x, cols);
  });
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
