#include "eval/quantized_files.h"

#include "eval/quantized_folder.h"
#include "eval/quantized_gguf.h"

namespace tare::eval {

Status CheckOutput(const std::filesystem::path& source, const std::filesystem::path& out,
                   const model::Checkpoint& checkpoint, const RoundingRule& rule) {
  std::error_code code;
  if (std::filesystem::exists(out, code)) {
    return FailParam("out", "'{}' exists already; remove it or name another place", out.string());
  }
  if (!std::filesystem::is_directory(source, code)) return {};
  for (const std::string& name : checkpoint.TensorNames()) {
    const auto stored = checkpoint.Find(name);
    if (!name.starts_with("blk.") || stored->shape.size() != 2) continue;
    if (stored->shape[1] % rule.group != 0) {
      return FailParam("group",
                       "tensor '{}' has {} inputs, no multiple of {}, and a folder's formats have "
                       "no partial groups; --group 32 is always possible",
                       stored->name, stored->shape[1], rule.group);
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
