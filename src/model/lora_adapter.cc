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

constexpr std::string_view kKeyValueUp = "self_attn.kv_b_proj";

void AddMlp(std::string_view gate, std::string_view up, std::string_view down, std::int64_t hidden,
            std::int64_t wide, std::vector<Module>& modules) {
  modules.push_back({gate, LoraSite::kMlpInput, wide, hidden, 0});
  modules.push_back({up, LoraSite::kMlpInput, wide, hidden, wide});
  modules.push_back({down, LoraSite::kMlpOutput, hidden, wide, 0});
}

std::vector<Module> AttentionModules(const ModelConfig& base) {
  const std::int64_t q = std::int64_t{base.heads} * base.head_dim;
  if (!base.latent) {
    const std::int64_t k = std::int64_t{base.kv_heads} * base.head_dim;
    return {{"self_attn.q_proj", LoraSite::kAttentionInput, q, base.hidden, 0},
            {"self_attn.k_proj", LoraSite::kAttentionInput, k, base.hidden, q},
            {"self_attn.v_proj", LoraSite::kAttentionInput, k, base.hidden, q + k},
            {"self_attn.o_proj", LoraSite::kAttentionOutput, base.hidden, q, 0}};
  }
  const LatentAttentionConfig& latent = *base.latent;
  const std::int64_t heads = base.heads;
  const bool direct = latent.q_rank == 0;
  std::vector<Module> modules = {
      {"self_attn.kv_a_proj_with_mqa", LoraSite::kAttentionInput, latent.kv_rank + latent.rope_dim,
       base.hidden, direct ? q : latent.q_rank},
      {kKeyValueUp, LoraSite::kKeyUp, heads * (latent.nope_dim + latent.value_dim), latent.kv_rank,
       0},
      {"self_attn.o_proj", LoraSite::kAttentionOutput, base.hidden, heads * latent.value_dim, 0}};
  if (direct) {
    modules.push_back({"self_attn.q_proj", LoraSite::kAttentionInput, q, base.hidden, 0});
  } else {
    modules.push_back(
        {"self_attn.q_a_proj", LoraSite::kAttentionInput, latent.q_rank, base.hidden, 0});
    modules.push_back({"self_attn.q_b_proj", LoraSite::kQueryUp, q, latent.q_rank, 0});
  }
  return modules;
}

// Those of a layer of `base`. Experts that are chosen among are none of them.
std::vector<Module> ModulesOf(const ModelConfig& base, int layer) {
  std::vector<Module> modules = AttentionModules(base);
  if (!base.experts || layer < base.experts->leading_dense_layers) {
    AddMlp("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", base.hidden, base.intermediate,
           modules);
  } else if (base.experts->shared_intermediate > 0) {
    AddMlp("mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj",
           "mlp.shared_experts.down_proj", base.hidden, base.experts->shared_intermediate, modules);
  }
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
    adapter->modules_ = static_cast<int>(pairs_.size());
    for (int layer = 0; layer < base_.layers; ++layer) {
      for (std::size_t site = 0; site < kLoraSites; ++site) {
        TARE_RETURN_IF_ERROR(PackSite(layer, static_cast<LoraSite>(site), *adapter));
      }
      TARE_RETURN_IF_ERROR(PackHeads(layer, *adapter));
    }
    return std::unique_ptr<const LoraAdapter>(std::move(adapter));
  }

 private:
  using Key = std::pair<int, std::string_view>;  // layer and Module::name
  using Packed = std::shared_ptr<const kernels::PackedMatrix>;

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
    if (parsed.in_layer.starts_with("mlp.experts")) {
      return Misfit(
          "tensor '{}' is of an expert that is chosen among; adapters of those cannot be loaded, "
          "in layer {} those of {} can",
          name, parsed.layer, known);
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

  Result<Packed> Pack(kernels::WeightType type, std::int64_t rows, std::int64_t cols,
                      const std::vector<float>& values, LoraAdapter& adapter) {
    TARE_TRY(kernels::PackedMatrix packed,
             kernels::PackedMatrix::Pack(
                 type, {kernels::StoredType::kF32, rows, cols, std::as_bytes(std::span(values))},
                 pool_));
    adapter.bytes_ += packed.bytes();
    return std::make_shared<const kernels::PackedMatrix>(std::move(packed));
  }

  // The wide matrix of a product's two, [outputs, rank].
  Result<Packed> PackB(std::int64_t rows, std::int64_t rank, const std::vector<float>& values,
                       LoraAdapter& adapter) {
    adapter.max_rank_ = std::max(adapter.max_rank_, static_cast<int>(rank));
    return Pack(rank <= kSmallRank ? kernels::WeightType::kF32 : type_, rows, rank, values,
                adapter);
  }

  static std::vector<LoraMatrices>& Site(LoraAdapter& adapter, int layer, LoraSite site) {
    return adapter.layers_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(site)];
  }

  std::vector<float> ScaledB(const Pair& pair) const {
    std::vector<float> values;
    AppendRows(*pair.b, values);
    const auto scale = static_cast<float>(config_.ScaleOf(pair.module));
    for (float& value : values) value *= scale;
    return values;
  }

  Status PackSite(int layer, LoraSite site, LoraAdapter& adapter) {
    LoraMatrices to;
    std::vector<float> stack;
    std::int64_t ranks = 0, inputs = 0;
    for (const Module& module : ModulesOf(base_, layer)) {
      const auto found = pairs_.find({layer, module.name});
      if (module.site != site || module.name == kKeyValueUp || found == pairs_.end()) continue;
      const Pair& pair = found->second;
      const std::int64_t rank = pair.a->shape[0];
      AppendRows(*pair.a, stack);
      LoraPart part{nullptr, ranks, module.column};
      TARE_TRY(part.b, PackB(module.outputs, rank, ScaledB(pair), adapter));
      to.parts.push_back(std::move(part));
      ranks += rank;
      inputs = module.inputs;
    }
    if (to.parts.empty()) return {};
    TARE_TRY(to.a, Pack(type_, ranks, inputs, stack, adapter));
    Site(adapter, layer, site).push_back(std::move(to));
    return {};
  }

  // kv_b of latent attention, as the absorbed form uses it.
  Status PackHeads(int layer, LoraAdapter& adapter) {
    const auto found = pairs_.find({layer, kKeyValueUp});
    if (found == pairs_.end()) return {};
    const LatentAttentionConfig& latent = *base_.latent;
    const std::int64_t ranks = found->second.a->shape[0];
    const auto rank = static_cast<std::size_t>(ranks);
    const auto wide = static_cast<std::size_t>(latent.kv_rank);
    const auto nope = static_cast<std::size_t>(latent.nope_dim);
    const auto value = static_cast<std::size_t>(latent.value_dim);
    std::vector<float> a;
    AppendRows(*found->second.a, a);
    const std::vector<float> b = ScaledB(found->second);  // [heads, nope + value, rank]

    std::vector<float> back(a.size());  // A transposed
    for (std::size_t r = 0; r < rank; ++r) {
      for (std::size_t c = 0; c < wide; ++c) back[c * rank + r] = a[r * wide + c];
    }
    TARE_TRY(const Packed shared_back, PackB(latent.kv_rank, ranks, back, adapter));
    TARE_TRY(const Packed shared_a, Pack(type_, ranks, latent.kv_rank, a, adapter));
    for (int head = 0; head < base_.heads; ++head) {
      const auto from = b.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(head) *
                                                                (nope + value) * rank);
      std::vector<float> keys(rank * nope);  // this head's part of B, transposed
      for (std::size_t i = 0; i < nope; ++i) {
        for (std::size_t r = 0; r < rank; ++r) {
          keys[r * nope + i] = from[static_cast<std::ptrdiff_t>(i * rank + r)];
        }
      }
      LoraMatrices key_up;
      TARE_TRY(key_up.a, Pack(type_, ranks, latent.nope_dim, keys, adapter));
      key_up.input = std::int64_t{head} * (latent.nope_dim + latent.rope_dim);
      key_up.parts.push_back(
          {shared_back, 0, std::int64_t{head} * (latent.kv_rank + latent.rope_dim)});
      Site(adapter, layer, LoraSite::kKeyUp).push_back(std::move(key_up));

      const auto values_from = from + static_cast<std::ptrdiff_t>(nope * rank);
      const std::vector<float> values(values_from,
                                      values_from + static_cast<std::ptrdiff_t>(value * rank));
      LoraMatrices value_up{shared_a, std::int64_t{head} * latent.kv_rank, {}};
      LoraPart part{nullptr, 0, std::int64_t{head} * latent.value_dim};
      TARE_TRY(part.b, PackB(latent.value_dim, ranks, values, adapter));
      value_up.parts.push_back(std::move(part));
      Site(adapter, layer, LoraSite::kValueUp).push_back(std::move(value_up));
    }
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
  std::uint64_t inputs =
      2 * u(base.hidden) + u(base.heads) * u(base.head_dim) + u(base.intermediate);
  std::uint64_t copies = 2;
  if (base.latent) {  // of kv_b, A is kept twice, and B has a small matrix for each head
    inputs += u(base.latent->q_rank) + u(base.latent->kv_rank) +
              u(base.heads) * (u(base.latent->nope_dim) + u(base.latent->value_dim));
    copies = 4;
  }
  const std::uint64_t value = base_type == kernels::WeightType::kF32 ? 4 : 2;
  return copies * file_bytes + u(base.layers) * 15 * inputs * value;
}

Result<std::unique_ptr<const LoraAdapter>> LoraAdapter::Load(const fs::path& folder,
                                                             const ModelConfig& base,
                                                             kernels::WeightType base_type) {
  return LoraLoader(folder, base, base_type).Load();
}

}  // namespace tare::model
