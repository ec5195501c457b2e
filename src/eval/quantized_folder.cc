#include "eval/quantized_folder.h"

#include <array>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "kernels/half.h"
#include "model/safetensors_writer.h"

namespace tare::eval {
namespace {

using kernels::StoredType;
using model::Checkpoint;
using model::SafetensorsEntry;
using nlohmann::json;

// Nibble of a word that holds column c of its eight, in AutoAWQ's "gemm" packing.
constexpr std::array<int, 8> kAwqNibble = {0, 4, 1, 5, 2, 6, 3, 7};

template <typename Value>
std::string Bytes(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

std::size_t Size(std::int64_t value) { return static_cast<std::size_t>(value); }

// Words of 32 bits, [rows, cols * bits / 32]; code(row, col) is put where `place` says.
template <typename CodeAt, typename Place>
std::string Pack(std::int64_t rows, std::int64_t cols, int bits, CodeAt code, Place place) {
  const int per_word = 32 / bits;
  const std::int64_t words = (cols + per_word - 1) / per_word;
  std::vector<std::uint32_t> out(Size(rows * words), 0);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) {
      out[Size(row * words + col / per_word)] |=
          static_cast<std::uint32_t>(code(row, col))
          << (bits * place(static_cast<int>(col % per_word)));
    }
  }
  return Bytes(out);
}

int InOrder(int i) { return i; }
int AwqOrder(int i) { return kAwqNibble[static_cast<std::size_t>(i)]; }

struct Part {
  SafetensorsEntry entry;
  std::string bytes;  // empty while only the directory is made
};

// Inputs down, outputs across.
std::vector<Part> AwqParts(const std::string& stem, const CodedMatrix& m, bool values) {
  const std::int64_t groups = m.groups();
  std::vector<Part> parts = {{{stem + ".qweight", "I32", {m.cols, m.rows / 8}}, {}},
                             {{stem + ".qzeros", "I32", {groups, m.rows / 8}}, {}},
                             {{stem + ".scales", "F16", {groups, m.rows}}, {}}};
  if (!values) return parts;
  parts[0].bytes = Pack(
      m.cols, m.rows, 4, [&](auto k, auto n) { return m.codes[Size(n * m.cols + k)]; }, AwqOrder);
  parts[1].bytes = Pack(
      groups, m.rows, 4, [&](auto g, auto n) { return m.zeros[Size(n * groups + g)]; }, AwqOrder);
  std::vector<std::uint16_t> scales;
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t n = 0; n < m.rows; ++n) {
      scales.push_back(kernels::FloatToF16(m.scales[Size(n * groups + g)]));
    }
  }
  parts[2].bytes = Bytes(scales);
  return parts;
}

std::vector<Part> PackedParts(const std::string& stem, const CodedMatrix& m, bool values) {
  const std::int64_t groups = m.groups();
  const int per_word = 32 / m.rule.bits;
  std::vector<Part> parts = {{{stem + ".weight_packed", "I32", {m.rows, m.cols / per_word}}, {}},
                             {{stem + ".weight_scale", "F16", {m.rows, groups}}, {}},
                             {{stem + ".weight_shape", "I64", {2}}, {}}};
  if (m.rule.zero_point) {
    parts.push_back({{stem + ".weight_zero_point", "I32", {m.rows / per_word, groups}}, {}});
  }
  if (!values) return parts;
  parts[0].bytes = Pack(
      m.rows, m.cols, m.rule.bits, [&](auto n, auto k) { return m.codes[Size(n * m.cols + k)]; },
      InOrder);
  std::vector<std::uint16_t> scales;
  for (const float scale : m.scales) scales.push_back(kernels::FloatToF16(scale));
  parts[1].bytes = Bytes(scales);
  parts[2].bytes = Bytes(std::vector<std::int64_t>{m.rows, m.cols});
  if (m.rule.zero_point) {  // packed along the outputs
    std::vector<std::uint32_t> words(Size(m.rows / per_word * groups), 0);
    for (std::int64_t n = 0; n < m.rows; ++n) {
      for (std::int64_t g = 0; g < groups; ++g) {
        words[Size(n / per_word * groups + g)] |=
            static_cast<std::uint32_t>(m.zeros[Size(n * groups + g)])
            << (m.rule.bits * static_cast<int>(n % per_word));
      }
    }
    parts[3].bytes = Bytes(words);
  }
  return parts;
}

// Ends of the names of linear layers that keep their numbers, as programs that read the config want
// them: "lm_head", "mlp.gate", "self_attn.kv_b_proj".
std::vector<std::string> KeptModules(const Checkpoint& checkpoint) {
  std::vector<std::string> ends = {"lm_head"};
  for (const char* part : {"ffn_gate_inp", "attn_kv_b"}) {
    const int last = checkpoint.config().layers - 1;
    const std::string name = fmt::format("blk.{}.{}.weight", last, part);
    if (!checkpoint.Find(name)) continue;
    const std::string full = checkpoint.FileName(name);
    const std::string before = fmt::format("model.layers.{}.", last);
    if (!full.starts_with(before)) continue;
    ends.push_back(full.substr(before.size(), full.rfind('.') - before.size()));
  }
  return ends;
}

json QuantizationConfig(const RoundingRule& rule, bool awq, const std::vector<std::string>& kept) {
  if (awq) {
    json config = {{"quant_method", "awq"},    {"bits", 4},
                   {"group_size", rule.group}, {"zero_point", true},
                   {"version", "gemm"},        {"modules_to_not_convert", nullptr}};
    if (kept.size() > 1) config["modules_to_not_convert"] = kept;
    return config;
  }
  json ignore = json::array();
  for (const std::string& end : kept) {
    std::string pattern = "re:.*";  // matched from the beginning of a module's full name
    for (const char c : end) pattern += c == '.' ? "[.]" : std::string(1, c);
    ignore.push_back(end == "lm_head" ? end : pattern + "$");
  }
  const json weights = {{"num_bits", rule.bits},         {"type", "int"},
                        {"symmetric", !rule.zero_point}, {"strategy", "group"},
                        {"group_size", rule.group},      {"dynamic", false}};
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"quantization_status", "compressed"},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", weights},
              {"input_activations", nullptr},
              {"output_activations", nullptr}}}}},
          {"ignore", std::move(ignore)}};
}

// Tokenizer, templates and the like; never weights.
Status CopySmallFiles(const std::filesystem::path& source, const std::filesystem::path& out) {
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(source, code)) {
    const std::string name = entry.path().filename().string();
    const std::string end = entry.path().extension().string();
    const bool small = end == ".json" || end == ".txt" || end == ".jinja" || end == ".model";
    if (!entry.is_regular_file(code) || !small || name == "config.json" ||
        name.ends_with(".index.json")) {
      continue;
    }
    std::filesystem::copy_file(entry.path(), out / name, code);
    if (code) {
      return Fail(ErrorKind::kIo, "cannot copy '{}' to '{}': {}", entry.path().string(),
                  out.string(), code.message());
    }
  }
  if (code) return Fail(ErrorKind::kIo, "cannot list '{}': {}", source.string(), code.message());
  return {};
}

Result<const char*> PlainType(StoredType type, const std::string& name) {
  switch (type) {
    case StoredType::kF32:
      return "F32";
    case StoredType::kF16:
      return "F16";
    case StoredType::kBf16:
      return "BF16";
    default:
      return Fail(ErrorKind::kUnsupported,
                  "tensor '{}' is quantised already; quantise the model's 16-bit files", name);
  }
}

}  // namespace

Status WriteQuantizedFolder(const std::filesystem::path& source, const std::filesystem::path& out,
                            const Checkpoint& checkpoint, const QuantizedTensors& tensors,
                            const RoundingRule& rule, bool awq, ThreadPool& pool) {
  // Calls use(parts) for every tensor of the source, in one order; values only when asked for.
  const auto visit = [&](bool values, auto use) -> Status {
    for (const std::string& name : checkpoint.TensorNames()) {
      const auto stored = checkpoint.Find(name);
      if (const auto found = tensors.matrices.find(name); found != tensors.matrices.end()) {
        const std::string stem = stored->name.substr(0, stored->name.rfind('.'));
        TARE_RETURN_IF_ERROR(use(awq ? AwqParts(stem, found->second, values)
                                     : PackedParts(stem, found->second, values)));
      } else if (const auto scaled = tensors.scaled.find(name); scaled != tensors.scaled.end()) {
        std::vector<Part> parts = {{{stored->name, "F32", stored->shape}, {}}};
        if (values) parts[0].bytes = Bytes(scaled->second);
        TARE_RETURN_IF_ERROR(use(std::move(parts)));
      } else {
        TARE_TRY(const auto kept, checkpoint.Values(name, pool));
        TARE_TRY(const char* type, PlainType(kept.view.type, stored->name));
        std::vector<Part> parts = {{{stored->name, type, stored->shape}, {}}};
        if (values) {
          parts[0].bytes.assign(reinterpret_cast<const char*>(kept.view.data.data()),
                                kept.view.data.size());
        }
        TARE_RETURN_IF_ERROR(use(std::move(parts)));
      }
    }
    return {};
  };
  std::vector<SafetensorsEntry> entries;
  TARE_RETURN_IF_ERROR(visit(false, [&](const std::vector<Part>& parts) -> Status {
    for (const Part& part : parts) entries.push_back(part.entry);
    return {};
  }));
  TARE_TRY(const std::string text, ReadFile(source / "config.json"));
  json config = json::parse(text, nullptr, false);
  config["quantization_config"] = QuantizationConfig(rule, awq, KeptModules(checkpoint));
  if (awq) config["torch_dtype"] = "float16";  // what AutoAWQ's kernels compute in

  std::error_code code;
  std::filesystem::create_directories(out, code);
  if (code) {
    return Fail(ErrorKind::kIo, "cannot make folder '{}': {}", out.string(), code.message());
  }
  TARE_TRY(auto writer, model::SafetensorsWriter::Create(out / "model.safetensors",
                                                         std::move(entries), {{"format", "pt"}}));
  const auto write = [&](const std::vector<Part>& parts) -> Status {
    for (const Part& part : parts) {
      TARE_RETURN_IF_ERROR(writer.Add(std::as_bytes(std::span(part.bytes))));
    }
    return {};
  };
  TARE_RETURN_IF_ERROR(visit(true, write));
  TARE_RETURN_IF_ERROR(writer.Commit());
  TARE_RETURN_IF_ERROR(CopySmallFiles(source, out));
  return WriteFileAtomic(out / "config.json", config.dump(2) + "\n");
}

}  // namespace tare::eval
