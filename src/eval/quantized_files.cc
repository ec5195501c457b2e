#include "eval/quantized_files.h"

#include <numeric>
#include <set>

#include "eval/quantized_folder.h"
#include "eval/quantized_gguf.h"

namespace tare::eval {
namespace {

// The largest usual group that all of these matrices can be cut into.
std::int64_t LargestGroup(const model::Checkpoint& checkpoint, const std::set<std::string>& names) {
  std::int64_t group = 128;
  for (const std::string& name : names) {
    group = std::gcd(group, checkpoint.Find(name)->shape.back());
  }
  return group;
}

// Tensors that are not rounded are copied, as numbers.
Status CheckKept(kernels::StoredType type, const std::string& name) {
  using kernels::StoredType;
  if (type == StoredType::kF32 || type == StoredType::kF16 || type == StoredType::kBf16) return {};
  return Fail(ErrorKind::kUnsupported,
              "tensor '{}' is quantised already; quantise the model's 16-bit files", name);
}

}  // namespace

Status CheckOutput(const std::filesystem::path& source, const std::filesystem::path& out,
                   const model::Checkpoint& checkpoint, const RoundingRule& rule) {
  std::error_code code;
  if (std::filesystem::exists(out, code)) {
    return FailParam("out", "'{}' exists already; remove it or name another place", out.string());
  }
  if (!std::filesystem::is_directory(source, code)) return {};
  std::set<std::string> rounded;
  for (int layer = 0; layer < checkpoint.config().layers; ++layer) {
    for (std::string& name : RoundedMatrices(checkpoint, layer)) rounded.insert(std::move(name));
  }
  for (const std::string& name : checkpoint.TensorNames()) {
    const auto stored = checkpoint.Find(name);
    if (!rounded.contains(name)) {
      TARE_TRY(const model::TensorForm form, checkpoint.Form(name));
      TARE_RETURN_IF_ERROR(CheckKept(form.type, stored->name));
      continue;
    }
    if (stored->shape[1] % rule.group != 0) {
      return FailParam("group",
                       "tensor '{}' has {} inputs, no multiple of {}, and a folder's formats have "
                       "no partial groups; --group {} is possible for this model",
                       stored->name, stored->shape[1], rule.group,
                       LargestGroup(checkpoint, rounded));
    }
    if (stored->shape[0] % 8 != 0) {
      return Fail(ErrorKind::kUnsupported, "tensor '{}' has {} outputs, no multiple of 8",
                  stored->name, stored->shape[0]);
    }
  }
  return {};
}

Result<std::uint64_t> WriteQuantized(const std::filesystem::path& source,
                                     const std::filesystem::path& out,
                                     const model::Checkpoint& checkpoint,
                                     const QuantizedTensors& tensors, const RoundingRule& rule,
                                     bool as_awq, ThreadPool& pool) {
  std::error_code code;
  if (std::filesystem::is_directory(source, code)) {
    const bool awq = as_awq && rule.bits == 4 && rule.zero_point;
    TARE_RETURN_IF_ERROR(WriteQuantizedFolder(source, out, checkpoint, tensors, rule, awq, pool));
    return std::filesystem::file_size(out / "model.safetensors", code);
  }
  TARE_RETURN_IF_ERROR(WriteQuantizedGguf(source, out, tensors, rule));
  return std::filesystem::file_size(out, code);
}

}  // namespace tare::eval
