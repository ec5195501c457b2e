// tare inspect: what a model needs, before anything is loaded.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/tare/commands.h"
#include "base/text.h"
#include "model/checkpoint.h"
#include "model/config_json.h"
#include "model/inspect.h"
#include "model/load.h"
#include "model/sentence_config.h"

namespace tare::app {
namespace {

using nlohmann::json;

struct Options {
  std::string model;
  bool config_only = false;
  bool as_json = false;
};

struct Subject {
  model::ModelConfig config;
  std::optional<model::SentenceConfig> sentence;      // of a folder whose model makes embeddings
  std::map<std::string, std::uint64_t> stored_bytes;  // by type, of a checkpoint
};

Result<Subject> Open(const Options& options) {
  Subject subject;
  if (options.config_only) {
    TARE_TRY(auto read, model::ReadJsonConfig(options.model));
    subject.config = std::move(read.config);
    return subject;
  }
  TARE_TRY(const auto checkpoint, model::OpenCheckpoint(options.model));
  subject.config = checkpoint->config();
  if (subject.config.encoder) {
    TARE_TRY(subject.sentence, model::ReadSentenceConfig(options.model, subject.config));
  }
  for (const std::string& name : checkpoint->TensorNames()) {
    const auto tensor = checkpoint->Find(name);
    subject.stored_bytes[tensor->type] += tensor->bytes;
  }
  return subject;
}

std::string Precision(kernels::WeightType type) {
  std::string name = kernels::ToString(type);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

json ToJson(const Subject& subject, const model::Inspection& found, std::uint64_t available) {
  const model::ModelConfig& c = subject.config;
  json out = {{"family", c.family},
              {"name", c.name},
              {"layers", c.layers},
              {"hidden", c.hidden},
              {"vocab", c.vocab},
              {"context_length", c.context_length},
              {"parameters",
               {{"total", found.parameters.total()},
                {"active", found.parameters.active()},
                {"active_with_embedding", found.parameters.active_with_embedding()}}},
              {"kv_bytes_per_token", found.kv_bytes_per_token}};
  for (std::size_t i = 0; i < model::kPrecisions.size(); ++i) {
    out["weights_bytes"][Precision(model::kPrecisions[i])] = found.weight_bytes[i];
  }
  for (const model::PartSize& part : found.parts) {
    json& entry = out["parts"][part.name];
    entry["parameters"] = part.weights;
    for (std::size_t i = 0; i < model::kPrecisions.size(); ++i) {
      entry["bytes"][Precision(model::kPrecisions[i])] = part.bytes[i];
    }
  }
  if (c.encoder) {
    json& embedding = out["embedding"];
    embedding["dimension"] = c.hidden;
    if (subject.sentence) {
      embedding["max_length"] = subject.sentence->max_length;
      embedding["pooling"] = model::ToString(subject.sentence->pooling);
      embedding["normalised"] = subject.sentence->normalise;
    }
  }
  if (!subject.stored_bytes.empty()) out["stored_bytes"] = subject.stored_bytes;
  out["machine"]["available_bytes"] = available;
  for (const model::Capacity& capacity : found.capacities) {
    out["machine"]["fits"].push_back({{"dtype", Precision(capacity.dtype)},
                                      {"length", capacity.length},
                                      {"sequences", capacity.sequences}});
  }
  return out;
}

std::string Billions(std::uint64_t count) {
  return count >= 1'000'000'000 ? fmt::format("{:.3f} B", static_cast<double>(count) / 1e9)
                                : fmt::format("{:.1f} M", static_cast<double>(count) / 1e6);
}

void PrintEmbedding(const Subject& subject) {
  const model::ModelConfig& c = subject.config;
  fmt::print("{} (family {}): {} layers, hidden {}, {} heads, vocabulary {}, {} positions\n",
             c.name, c.family, c.layers, c.hidden, c.heads, c.vocab, c.context_length);
  fmt::print("embeddings  of {} numbers", c.hidden);
  if (subject.sentence) {
    fmt::print(", {} pooling{}; inputs of up to {} tokens",
               model::ToString(subject.sentence->pooling),
               subject.sentence->normalise ? ", normalised" : "", subject.sentence->max_length);
  }
  fmt::print("\n");
}

void Print(const Subject& subject, const model::Inspection& found, std::uint64_t available) {
  const model::ModelConfig& c = subject.config;
  if (c.encoder) {
    PrintEmbedding(subject);
  } else {
    fmt::print(
        "{} (family {}): {} layers, hidden {}, {} heads, {} KV heads, vocabulary {}, context {}\n",
        c.name, c.family, c.layers, c.hidden, c.heads, c.kv_heads, c.vocab, c.context_length);
  }
  fmt::print("parameters  {} in all, {} read per token ({} counting the embedding table)\n",
             Billions(found.parameters.total()), Billions(found.parameters.active()),
             Billions(found.parameters.active_with_embedding()));
  if (!subject.stored_bytes.empty()) {
    fmt::print("on disk    ");
    for (const auto& [type, bytes] : subject.stored_bytes) {
      fmt::print(" {} {}", type, FormatBytes(bytes));
    }
    fmt::print("\n");
  }
  fmt::print("\n{:<16}{:>12}", "loaded as", "parameters");
  for (const auto type : model::kPrecisions) fmt::print("{:>12}", Precision(type));
  fmt::print("\n");
  for (const model::PartSize& part : found.parts) {
    fmt::print("{:<16}{:>12}", part.name, Billions(part.weights));
    for (const std::uint64_t bytes : part.bytes) fmt::print("{:>12}", FormatBytes(bytes));
    fmt::print("\n");
  }
  fmt::print("{:<28}", "all");
  for (const std::uint64_t bytes : found.weight_bytes) fmt::print("{:>12}", FormatBytes(bytes));
  fmt::print("\n");
  if (c.encoder) return;
  fmt::print("\nKV cache    {} per token at 16 bits\n", FormatBytes(found.kv_bytes_per_token));
  fmt::print("this machine has {} available: sequences that fit, by length\n",
             FormatBytes(available));
  for (const auto type : model::kPrecisions) {
    fmt::print("  {:<6}", Precision(type));
    for (const model::Capacity& capacity : found.capacities) {
      if (capacity.dtype != type) continue;
      fmt::print("  {} x {}", capacity.sequences, capacity.length);
    }
    fmt::print("\n");
  }
}

int Run(const Options& options) {
  const auto subject = Open(options);
  if (!subject) return Report(subject.error());
  const auto available = model::AvailableMemory();
  if (!available) return Report(available.error());
  const model::Inspection found = model::Inspect(subject->config, *available);
  if (options.as_json) {
    fmt::print("{}\n", ToJson(*subject, found, *available).dump(2));
  } else {
    Print(*subject, found, *available);
  }
  return kSuccess;
}

}  // namespace

void AddInspect(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("inspect", "Tell what a model needs, without loading it");
  command
      ->add_option("model", options->model,
                   "A .gguf file, a Hugging Face folder, or with --config a config.json")
      ->required();
  command->add_flag("--config", options->config_only, "MODEL is a bare config.json");
  command->add_flag("--json", options->as_json, "Print one JSON document");
  command->footer("Example: tare inspect --config config.json --json");
  command->callback(
      [&invocation, options] { invocation.run = [options] { return Run(*options); }; });
}

}  // namespace tare::app
