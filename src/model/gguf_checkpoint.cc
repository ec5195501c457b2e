#include "model/gguf_checkpoint.h"

#include "base/check.h"
#include "model/config_gguf.h"

namespace tare::model {
namespace {

class GgufCheckpoint : public Checkpoint {
 public:
  GgufCheckpoint(std::shared_ptr<const GgufFile> file, GgufConfig config)
      : file_(std::move(file)), config_(std::move(config)) {}

  const std::string& name() const override { return file_->name(); }
  const ModelConfig& config() const override { return config_.config; }
  const Family& family() const override { return *config_.family; }
  RotaryPairs rotary_pairs() const override { return config_.family->gguf_pairs; }

  std::vector<std::string> TensorNames() const override {
    std::vector<std::string> names;
    for (const GgufTensor& tensor : file_->tensors()) names.emplace_back(tensor.name);
    return names;
  }

  std::optional<StoredTensor> Find(std::string_view name) const override {
    const GgufTensor* tensor = file_->Find(name);
    if (tensor == nullptr) return {};
    StoredTensor stored{std::string(tensor->name), {}, tensor->data.size(), tensor->type->name};
    for (int i = tensor->rank - 1; i >= 0; --i) {
      stored.shape.push_back(tensor->dims[static_cast<std::size_t>(i)]);
    }
    return stored;
  }

  Result<TensorForm> Form(std::string_view name) const override {
    TARE_TRY(const kernels::TensorView view, View(name));
    return TensorForm{view.type, kernels::NaturalType(view.type), view.rows, view.cols};
  }

  Result<TensorValues> Values(std::string_view name, ThreadPool&) const override {
    TARE_TRY(const kernels::TensorView view, View(name));
    return TensorValues{view, nullptr};
  }

  std::string FileName(std::string_view name) const override { return std::string(name); }
  std::shared_ptr<const void> storage() const override { return file_->mapping(); }

 private:
  Result<kernels::TensorView> View(std::string_view name) const {
    const GgufTensor* tensor = file_->Find(name);
    TARE_CHECK(tensor != nullptr);
    return file_->View(*tensor);
  }

  std::shared_ptr<const GgufFile> file_;
  GgufConfig config_;
};

}  // namespace

std::string StoredTensor::ShapeText() const {
  std::string text = "[";
  for (const std::int64_t size : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

Result<std::unique_ptr<Checkpoint>> MakeGgufCheckpoint(std::shared_ptr<const GgufFile> file) {
  TARE_TRY(GgufConfig config, ReadGgufConfig(*file));
  return std::make_unique<GgufCheckpoint>(std::move(file), std::move(config));
}

}  // namespace tare::model
