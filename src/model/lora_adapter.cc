#include "model/lora_adapter.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "base/files.h"
#include "base/thread_pool.h"
#include "model/lora_config.h"
#include "model/safetensors.h"

namespace tare::model {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = 1 << 20;
// Up to this rank B in F32 takes no more memory than BF16 cells, which are 32 deep.
constexpr std::int64_t kSmallRank = 16;

// A linear layer adapters may add to, by the end of its name in a Hugging Face checkpoint.
struct Module {
  std::string_view name;
  LoraSite site;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  std::int64_t column = 0;
};

// Those of a layer of `base`, in the order of their columns.
std::vector<Module> ModulesOf(const ModelConfig& base, int layer) {
  if (base.latent) return {};
  const std::int64_t q = std::int64_t{base.heads} * base.head_dim;
  const std::int64_t k = std::int64_t{base.kv_heads} * base.head_dim;
  std::vector<Module> modules = {
      {"self_attn.q_proj", LoraSite::kAttentionInput, q, base.hidden, 0},
      {"self_attn.k_proj", LoraSite::kAttentionInput, k, base.hidden, q},
      {"self_attn.v_proj", LoraSite::kAttentionInput, k, base.hidden, q + k},
      {"self_attn.o_proj", LoraSite::kAttentionOutput, base.hidden, q, 0}};
  if (base.experts && layer >= base.experts->leading_dense_layers) return modules;
  const std::int64_t wide = base.intermediate;
  modules.push_back({"mlp.gate_proj", LoraSite::kMlpInput, wide, base.hidden, 0});
  modules.push_back({"mlp.up_proj", LoraSite::kMlpInput, wide, base.hidden, wide});
  modules.push_back({"mlp.down_proj", LoraSite::kMlpOutput, base.hidden, wide, 0});
  return modules;
}

// The two tensors of a module.
struct Pair {
  std::string module;  // TensorName::module
  std::string a_name, b_name;
  const SafetensorsTensor* a = nullptr;
  const SafetensorsTensor* b = nullptr;
};

struct TensorName {
  std::string module;  // "model.layers.3.self_attn.q_proj"
  int layer = 0;
  std::string_view in_layer;  // "self_attn.q_proj"; of the name parsed
  bool is_a = false;
};

// "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight"; a base without its head lacks
// one of the "model."s.
std::optional<TensorName> ParseName(std::string_view name) {
  constexpr std::string_view kPrefix = "base_model.model.";
  constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";
  if (!name.starts_with(kPrefix)) return {};
  name.remove_prefix(kPrefix.size());
  TensorName parsed;
  parsed.is_a = name.ends_with(kA);
  if (!parsed.is_a && !name.ends_with(kB)) return {};
  name.remove_suffix(kA.size());
  parsed.module = name;
  if (name.starts_with("model.")) name.remove_prefix(6);
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return {};
  name.remove_prefix(kLayers.size());
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), parsed.layer);
  const auto digits = static_cast<std::size_t>(end - name.data());
  if (error != std::errc{} || parsed.layer < 0 || digits >= name.size() || name[digits] != '.') {
    return {};
  }
  parsed.in_layer = name.substr(digits + 1);
  return parsed;
}

std::string ShapeText(const SafetensorsTensor& tensor) {
  std::string text;
  for (const std::int64_t d : tensor.shape) text += (text.empty() ? "" : ", ") + std::to_string(d);
  return "[" + text + "]";
}

std::uint64_t NextId() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1);
}

}  // namespace

LoraAdapter::LoraAdapter() : id_(NextId()) {}

// Reads the files of one adapter.
class LoraLoader {
 public:
  LoraLoader(const fs::path& folder, const ModelConfig& base, kernels::WeightType base_type)
      : folder_(folder),
        base_(base),
        type_(base_type == kernels::WeightType::kF32 ? base_type : kernels::WeightType::kBf16) {}

  Result<std::unique_ptr<const LoraAdapter>> Load() {
    TARE_RETURN_IF_ERROR(CheckFolder());
    const fs::path config_path = folder_ / "adapter_config.json";
    TARE_TRY(const std::string text, ReadFile(config_path, kMaxConfigBytes));
    TARE_TRY(config_, ParseLoraConfig(text, config_path.string()));
    TARE_TRY(const SafetensorsFile file,
             SafetensorsFile::Open(folder_ / "adapter_model.safetensors"));
    source_ = file.name();
    TARE_RETURN_IF_ERROR(Collect(file));
    TARE_RETURN_IF_ERROR(CheckTargets());
    std::unique_ptr<LoraAdapter> adapter(new LoraAdapter());
    adapter->layers_.resize(static_cast<std::size_t>(base_.layers));
    for (int layer = 0; layer < base_.layers; ++layer) {
      for (std::size_t site = 0; site < kLoraSites; ++site) {
        TARE_RETURN_IF_ERROR(PackSite(layer, static_cast<LoraSite>(site), *adapter));
      }
    }
    return std::unique_ptr<const LoraAdapter>(std::move(adapter));
  }

 private:
  using Key = std::pair<int, std::string_view>;  // layer and Module::name

  Status CheckFolder() const {
    std::error_code code;
    if (fs::exists(folder_ / "adapter_model.safetensors", code) &&
        fs::exists(folder_ / "adapter_config.json", code)) {
      return {};
    }
    if (fs::exists(folder_ / "adapter_model.bin", code)) {
      return Fail(
          ErrorKind::kUnsupported,
          "the adapter in '{}' is a pickle file, which is not read as it may run code: save "
          "it with safe_serialization=True",
          folder_.string());
    }
    return Fail(ErrorKind::kNotFound,
                "there is no adapter in '{}': a folder with adapter_config.json and "
                "adapter_model.safetensors is needed",
                folder_.string());
  }

  template <typename... Args>
  tl::unexpected<Error> Misfit(fmt::format_string<Args...> format, Args&&... args) const {
    return Fail(ErrorKind::kUnsupported, "{}: {}", source_,
                fmt::format(format, std::forward<Args>(args)...));
  }

  // Finds every tensor's module and checks its shape against the base's.
  Status Collect(const SafetensorsFile& file) {
    for (const auto& [name, tensor] : file.tensors()) {
      const auto parsed = ParseName(name);
      if (!parsed) {
        return Misfit(
            "tensor '{}' is no low-rank matrix of a layer's linear part; only plain LoRA adapters "
            "of such parts can be loaded",
            name);
      }
      if (parsed->layer >= base_.layers) {
        return Misfit(
            "tensor '{}' is for layer {}, the base '{}' has {}: load the adapter beside "
            "the model it was trained for",
            name, parsed->layer, base_.name, base_.layers);
      }
      TARE_TRY(const Module module, FindModule(name, *parsed));
      TARE_RETURN_IF_ERROR(CheckTensor(name, tensor, *parsed, module));
      // One module may be named in several ways: with and without "model.", "layers.01".
      Pair& pair = pairs_[{parsed->layer, module.name}];
      const SafetensorsTensor*& place = parsed->is_a ? pair.a : pair.b;
      if (place != nullptr) {
        return Misfit("tensor '{}' is there twice, once as '{}'", name,
                      parsed->is_a ? pair.a_name : pair.b_name);
      }
      if (!pair.module.empty() && pair.module != parsed->module) {
        return Misfit("tensor '{}' is of '{}', its counterpart of '{}': one name is needed", name,
                      parsed->module, pair.module);
      }
      (parsed->is_a ? pair.a_name : pair.b_name) = name;
      place = &tensor;
      pair.module = parsed->module;
    }
    if (pairs_.empty()) return Misfit("it holds no tensors");
    for (const auto& [key, pair] : pairs_) {
      if (pair.a != nullptr && pair.b != nullptr) continue;
      return Misfit("tensor '{}' has no counterpart {} (the file is incomplete; fetch it again)",
                    pair.a != nullptr ? pair.a_name : pair.b_name,
                    pair.a != nullptr ? "lora_B" : "lora_A");
    }
    return {};
  }

  Result<Module> FindModule(const std::string& name, const TensorName& parsed) const {
    std::string known;
    for (const Module& module : ModulesOf(base_, parsed.layer)) {
      if (parsed.in_layer == module.name) return module;
      known += (known.empty() ? "" : ", ") + std::string(module.name);
    }
    if (known.empty()) {
      return Misfit("tensor '{}': adapters for models of the family {} cannot be loaded", name,
                    base_.family);
    }
    return Misfit(
        "tensor '{}' is for '{}', which this base has not or not as a plain linear "
        "layer; in layer {} there are {}",
        name, parsed.in_layer, parsed.layer, known);
  }

  Status CheckTensor(const std::string& name, const SafetensorsTensor& tensor,
                     const TensorName& parsed, const Module& module) const {
    if (!tensor.stored) {
      return Misfit("tensor '{}' is of type {}; F32, F16 and BF16 are read", name, tensor.type);
    }
    const std::int64_t rank = config_.RankOf(parsed.module);
    const std::vector<std::int64_t> wanted = parsed.is_a
                                                 ? std::vector<std::int64_t>{rank, module.inputs}
                                                 : std::vector<std::int64_t>{module.outputs, rank};
    if (tensor.shape == wanted) return {};
    return Misfit(
        "tensor '{}' has the shape {}, with this base and the rank {} of adapter_config.json it "
        "must have [{}, {}]: load the adapter beside the model it was trained for",
        name, ShapeText(tensor), rank, wanted[0], wanted[1]);
  }

  // Every module the configuration names must be there.
  Status CheckTargets() const {
    for (const std::string& target : config_.targets) {
      const bool found = std::ranges::any_of(
          pairs_, [&](const auto& pair) { return EndsInModule(pair.second.module, target); });
      if (!found) {
        return Misfit(
            "adapter_config.json names '{}' among target_modules, but there is no tensor "
            "for it",
            target);
      }
    }
    return {};
  }

  static void AppendRows(const SafetensorsTensor& tensor, std::vector<float>& out) {
    const kernels::TensorView view{*tensor.stored, tensor.shape[0], tensor.shape[1], tensor.data};
    const auto cols = static_cast<std::size_t>(view.cols);
    for (std::int64_t row = 0; row < view.rows; ++row) {
      out.resize(out.size() + cols);
      kernels::DequantizeRow(view, row, std::span(out).last(cols));
    }
  }

  Result<kernels::PackedMatrix> Pack(kernels::WeightType type, std::int64_t rows, std::int64_t cols,
                                     const std::vector<float>& values) {
    return kernels::PackedMatrix::Pack(
        type, {kernels::StoredType::kF32, rows, cols, std::as_bytes(std::span(values))}, pool_);
  }

  Status PackSite(int layer, LoraSite site, LoraAdapter& adapter) {
    LoraMatrices& to =
        adapter.layers_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(site)];
    std::vector<float> stack, values;
    std::int64_t ranks = 0, inputs = 0;
    for (const Module& module : ModulesOf(base_, layer)) {
      const auto found = pairs_.find({layer, module.name});
      if (module.site != site || found == pairs_.end()) continue;
      const Pair& pair = found->second;
      const std::int64_t rank = pair.a->shape[0];
      AppendRows(*pair.a, stack);
      values.clear();
      AppendRows(*pair.b, values);
      const auto scale = static_cast<float>(config_.ScaleOf(pair.module));
      for (float& value : values) value *= scale;
      LoraPart part{{}, ranks, module.column};
      const auto type = rank <= kSmallRank ? kernels::WeightType::kF32 : type_;
      TARE_TRY(part.b, Pack(type, module.outputs, rank, values));
      adapter.bytes_ += part.b.bytes();
      adapter.max_rank_ = std::max(adapter.max_rank_, static_cast<int>(rank));
      ++adapter.modules_;
      to.parts.push_back(std::move(part));
      ranks += rank;
      inputs = module.inputs;
    }
    if (to.parts.empty()) return {};
    TARE_TRY(to.a, Pack(type_, ranks, inputs, stack));
    adapter.bytes_ += to.a.bytes();
    return {};
  }

  const fs::path& folder_;
  const ModelConfig& base_;
  const kernels::WeightType type_;
  std::string source_;
  LoraConfig config_;
  std::map<Key, Pair> pairs_;
  ThreadPool pool_{1};
};

std::uint64_t LoraAdapter::MostBytes(std::uint64_t file_bytes, const ModelConfig& base,
                                     kernels::WeightType base_type) {
  // 16-bit values of small ranks and beside an F32 base become floats. Every A is packed in groups
  // of 16 rows, whatever its rank: at most 15 more a site, as wide as the site's input.
  const auto u = [](int value) { return static_cast<std::uint64_t>(value); };
  const std::uint64_t inputs =
      2 * u(base.hidden) + u(base.heads) * u(base.head_dim) + u(base.intermediate);
  const std::uint64_t value = base_type == kernels::WeightType::kF32 ? 4 : 2;
  return 2 * file_bytes + u(base.layers) * 15 * inputs * value;
}

Result<std::unique_ptr<const LoraAdapter>> LoraAdapter::Load(const fs::path& folder,
                                                             const ModelConfig& base,
                                                             kernels::WeightType base_type) {
  return LoraLoader(folder, base, base_type).Load();
}

}  // namespace tare::model
