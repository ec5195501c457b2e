#include "eval/quantized_checkpoint.h"

namespace tare::eval {
namespace {

using kernels::StoredType;
using model::StoredTensor;
using model::TensorForm;
using model::TensorValues;

TensorValues Keep(StoredType type, std::int64_t rows, std::int64_t cols,
                  std::vector<std::byte> bytes) {
  auto kept = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return {{type, rows, cols, *kept}, kept};
}

class QuantizedCheckpoint : public model::Checkpoint {
 public:
  QuantizedCheckpoint(const model::Checkpoint& base, const QuantizedTensors& tensors)
      : base_(base), tensors_(tensors) {}

  const std::string& name() const override { return base_.name(); }
  const model::ModelConfig& config() const override { return base_.config(); }
  const model::Family& family() const override { return base_.family(); }
  model::RotaryPairs rotary_pairs() const override { return base_.rotary_pairs(); }
  std::vector<std::string> TensorNames() const override { return base_.TensorNames(); }
  std::string FileName(std::string_view name) const override { return base_.FileName(name); }
  std::shared_ptr<const void> storage() const override { return base_.storage(); }

  std::optional<StoredTensor> Find(std::string_view name) const override {
    auto stored = base_.Find(name);
    if (const auto found = tensors_.matrices.find(name); found != tensors_.matrices.end()) {
      const CodedMatrix& matrix = found->second;
      const StoredType type = matrix.stored_type();
      stored->bytes =
          static_cast<std::uint64_t>(matrix.rows * matrix.cols / kernels::BlockElements(type)) *
          static_cast<std::uint64_t>(kernels::BlockBytes(type));
      stored->type = kernels::ToString(type);
    }
    return stored;
  }

  Result<TensorForm> Form(std::string_view name) const override {
    if (const auto found = tensors_.matrices.find(name); found != tensors_.matrices.end()) {
      const StoredType type = found->second.stored_type();
      return TensorForm{type, kernels::NaturalType(type), found->second.rows, found->second.cols};
    }
    TARE_TRY(TensorForm form, base_.Form(name));
    if (tensors_.scaled.contains(name)) {
      form.type = StoredType::kF32;
      form.natural = kernels::WeightType::kF32;
    }
    return form;
  }

  Result<TensorValues> Values(std::string_view name, ThreadPool& pool) const override {
    if (const auto found = tensors_.matrices.find(name); found != tensors_.matrices.end()) {
      const CodedMatrix& matrix = found->second;
      return Keep(matrix.stored_type(), matrix.rows, matrix.cols, matrix.Blocks());
    }
    if (const auto found = tensors_.scaled.find(name); found != tensors_.scaled.end()) {
      TARE_TRY(const TensorForm form, base_.Form(name));
      const auto bytes = std::as_bytes(std::span(found->second));
      return TensorValues{{StoredType::kF32, form.rows, form.cols, bytes}, nullptr};
    }
    return base_.Values(name, pool);
  }

 private:
  const model::Checkpoint& base_;
  const QuantizedTensors& tensors_;
};

}  // namespace

std::unique_ptr<model::Checkpoint> MakeQuantizedCheckpoint(const model::Checkpoint& base,
                                                           const QuantizedTensors& tensors) {
  return std::make_unique<QuantizedCheckpoint>(base, tensors);
}

}  // namespace tare::eval
