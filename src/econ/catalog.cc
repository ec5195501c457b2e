#include "econ/catalog.h"

#include <algorithm>
#include <cctype>

#include "base/files.h"
#include "base/text.h"
#include "econ/quantity_reader.h"

namespace tare::econ {
namespace {

constexpr int kMaxCount = 1'000'000;

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

template <typename Facts>
Result<Facts> Find(const std::vector<Facts>& all, std::string_view name, const char* what) {
  const std::string wanted = Lower(name);
  std::vector<std::string> names;
  for (const Facts& facts : all) {
    if (Lower(facts.name) == wanted) return facts;
    names.push_back(facts.name);
    for (const std::string& alias : facts.aliases) {
      if (Lower(alias) == wanted) return facts;
    }
  }
  const std::string near = NearestName(wanted, names);
  return Fail(ErrorKind::kNotFound,
              "no {} '{}' in the catalogue{}; list them with 'tare econ roofline --list'", what,
              name, near.empty() ? std::string() : fmt::format(" (did you mean '{}'?)", near));
}

void ReadNames(const config::Value& value, std::string& name, std::vector<std::string>& aliases) {
  name = value["name"].String();
  for (const config::Value& alias : value["aliases"].ListOrEmpty()) {
    aliases.push_back(alias.String());
  }
}

int Count(const config::Value& value, int min = 0) {
  return static_cast<int>(value.Int(min, kMaxCount));
}
int CountOr(const config::Value& value, int fallback = 0) {
  return static_cast<int>(value.IntOr(fallback, 0, kMaxCount));
}

// {value: 80 GiB, source: ..., date: ...}, or just the quantity.
double ReadFigure(const config::Value& device, const char* key, std::string_view unit,
                  bool required, std::vector<Provenance>& provenance) {
  const config::Value figure = device[key];
  if (!figure.present() && !required) return 0;
  if (!figure.is_map()) return ReadQuantity(figure, unit);
  provenance.push_back({key, figure["source"].String(), figure["date"].String(),
                        figure["unverified"].BoolOr(false)});
  return ReadQuantity(figure["value"], unit, key == std::string_view("price") ? "USD" : "");
}

}  // namespace

ModelFacts ReadModelFacts(const config::Value& value) {
  ModelFacts facts;
  ReadNames(value, facts.name, facts.aliases);
  facts.source = value["source"].StringOr("");
  facts.date = value["date"].StringOr("");
  facts.unverified = value["unverified"].BoolOr(false);
  facts.layers = Count(value["layers"], 1);
  facts.hidden = Count(value["hidden"], 1);
  facts.heads = Count(value["heads"], 1);
  facts.head_dim = Count(value["head_dim"], 1);
  facts.intermediate = Count(value["intermediate"], 1);
  facts.vocabulary = Count(value["vocabulary"], 1);
  facts.context_tokens = static_cast<int>(value["context_tokens"].Int(1, 100'000'000));
  facts.tied_embeddings = value["tied_embeddings"].BoolOr(false);
  facts.qkv_bias = value["qkv_bias"].BoolOr(false);
  facts.query_key_norm = value["query_key_norm"].BoolOr(false);
  facts.kv_rank = CountOr(value["kv_rank"]);
  facts.query_rank = CountOr(value["query_rank"]);
  facts.rope_dim = CountOr(value["rope_dim"]);
  facts.value_dim = CountOr(value["value_dim"]);
  facts.kv_heads = facts.mla() ? CountOr(value["kv_heads"]) : Count(value["kv_heads"], 1);
  facts.experts = CountOr(value["experts"]);
  facts.experts_per_token = CountOr(value["experts_per_token"]);
  facts.shared_experts = CountOr(value["shared_experts"]);
  facts.expert_intermediate = CountOr(value["expert_intermediate"]);
  facts.dense_layers = CountOr(value["dense_layers"]);
  if (facts.sparse() && (facts.experts_per_token < 1 || facts.experts_per_token > facts.experts ||
                         facts.expert_intermediate < 1 || facts.dense_layers > facts.layers)) {
    value.AddError(
        "a sparse model needs experts_per_token between 1 and experts, expert_intermediate and "
        "dense_layers up to layers");
  }
  return facts;
}

DeviceFacts ReadDeviceFacts(const config::Value& value) {
  DeviceFacts facts;
  ReadNames(value, facts.name, facts.aliases);
  facts.cpu = value["cpu"].BoolOr(false);
  auto figure = [&](const char* key, std::string_view unit, bool required) {
    return ReadFigure(value, key, unit, required, facts.provenance);
  };
  facts.memory_bytes = figure("memory", "B", true);
  facts.bandwidth_bytes_per_second = figure("bandwidth", "B/s", true);
  facts.fp32_flop_per_second = figure("fp32", "FLOP/s", false);
  facts.bf16_flop_per_second = figure("bf16", "FLOP/s", true);
  facts.fp8_flop_per_second = figure("fp8", "FLOP/s", false);
  facts.int8_op_per_second = figure("int8", "FLOP/s", false);
  facts.fp4_flop_per_second = figure("fp4", "FLOP/s", false);
  facts.link_bytes_per_second = figure("link", "B/s", false);
  facts.pcie_bytes_per_second = figure("pcie", "B/s", false);
  facts.idle_watts = figure("idle_power", "W", false);
  facts.load_watts = figure("load_power", "W", false);
  facts.price_usd_per_hour = figure("price", "MONEY/h", false);
  if (facts.memory_bytes <= 0 || facts.bandwidth_bytes_per_second <= 0 ||
      facts.bf16_flop_per_second <= 0) {
    value.AddError("memory, bandwidth and bf16 must be above zero");
  }
  return facts;
}

Status Catalog::AddModel(std::string_view text, const std::string& source) {
  TARE_TRY(config::Document document, config::Document::Parse(text, source));
  ModelFacts facts = ReadModelFacts(document.root());
  TARE_RETURN_IF_ERROR(document.Finish());
  models_.push_back(std::move(facts));
  return {};
}

Status Catalog::AddDevice(std::string_view text, const std::string& source) {
  TARE_TRY(config::Document document, config::Document::Parse(text, source));
  DeviceFacts facts = ReadDeviceFacts(document.root());
  TARE_RETURN_IF_ERROR(document.Finish());
  devices_.push_back(std::move(facts));
  return {};
}

Result<Catalog> Catalog::BuiltIn() {
  Catalog catalog;
  for (const EmbeddedFile& file : EmbeddedCatalog()) {
    const std::string source = "catalog/" + std::string(file.path);
    TARE_RETURN_IF_ERROR(file.path.substr(0, 7) == "models/"
                             ? catalog.AddModel(file.text, source)
                             : catalog.AddDevice(file.text, source));
  }
  return catalog;
}

Result<Catalog> Catalog::Load(const std::filesystem::path& folder) {
  Catalog catalog;
  for (const char* kind : {"models", "hardware"}) {
    std::error_code code;
    std::vector<std::filesystem::path> paths;
    std::filesystem::directory_iterator entries(folder / kind, code);
    if (code) {
      return Fail(ErrorKind::kIo, "cannot list '{}': {}; a catalogue has models/ and hardware/",
                  (folder / kind).string(), code.message());
    }
    for (const auto& entry : entries) {
      if (entry.path().extension() == ".yaml") paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    for (const auto& path : paths) {
      TARE_TRY(std::string text, ReadFile(path, config::kMaxBytes));
      TARE_RETURN_IF_ERROR(kind[0] == 'm' ? catalog.AddModel(text, path.string())
                                          : catalog.AddDevice(text, path.string()));
    }
  }
  return catalog;
}

Result<ModelFacts> Catalog::FindModel(std::string_view name) const {
  return Find(models_, name, "model");
}
Result<DeviceFacts> Catalog::FindDevice(std::string_view name) const {
  return Find(devices_, name, "device");
}

}  // namespace tare::econ
