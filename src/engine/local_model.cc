#include "engine/local_model.h"

#include <algorithm>
#include <cstdlib>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "kernels/isa.h"
#include "model/checkpoint.h"
#include "model/load.h"
#include "model/packed_cache.h"

namespace tare::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDefaultModelName = "smollm2";
constexpr const char* kDefaultModelFile = "smollm2-135m-instruct-q4_1.gguf";

// Of the memory left beside the weights, the part KV pages may grow into; the rest is for the
// operating system's file cache, which holds the mapped embeddings, and for other programs.
constexpr double kKvShare = 0.8;

Result<fs::path> DefaultModel() {
  std::error_code code;
  if (const char* own = std::getenv("TARE_MODEL"); own != nullptr && *own != '\0') {
    if (fs::exists(own, code)) return fs::path(own);
    return Fail(ErrorKind::kNotFound,
                "TARE_MODEL is '{}', which does not exist: correct the path or unset it", own);
  }
  TARE_TRY(const fs::path cache, UserCacheDir());
  const fs::path path = cache / kDefaultModelFile;
  if (fs::exists(path, code)) return path;
  return Fail(ErrorKind::kNotFound,
              "the default model is not at '{}': run ./run setup, or name a model file",
              path.string());
}

// What the packed weights of this start come from and go to.
struct PackedWeights {
  std::optional<model::PackedCacheReader> reader;
  std::optional<model::PackedCacheWriter> writer;
};

PackedWeights OpenPackedWeights(const fs::path& folder, const fs::path& checkpoint,
                                const std::string& dtype, std::uint64_t bytes) {
  PackedWeights packed;
  if (folder.empty()) return packed;
  const auto key = model::PackedCacheKey(checkpoint, dtype);
  if (!key) {
    LogWarn("packed weights are not kept: {}", key.error().message);
    return packed;
  }
  const fs::path path = model::PackedCachePath(folder, *key);
  auto reader = model::PackedCacheReader::Open(path, *key);
  if (reader) {
    packed.reader = *std::move(reader);
    return packed;
  }
  if (reader.error().kind != ErrorKind::kNotFound) {
    LogWarn("{}; packing anew", reader.error().message);
  }
  auto writer = model::PackedCacheWriter::Create(path, *key, bytes);
  if (writer) {
    packed.writer.emplace(*std::move(writer));
  } else {
    LogWarn("packed weights are not kept for the next start: {}", writer.error().message);
  }
  return packed;
}

}  // namespace

Result<fs::path> ResolveModel(std::string_view name) {
  if (name.empty() || name == kDefaultModelName) return DefaultModel();
  std::error_code code;
  fs::path path(name);
  if (fs::exists(path, code)) return path;
  return Fail(ErrorKind::kNotFound,
              "there is no model at '{}': give the path of a .gguf file, or '{}' for the default "
              "model",
              name, kDefaultModelName);
}

Result<LocalModel> LoadLocalModel(LocalModelOptions options) {
  if (!options.isa.empty()) TARE_RETURN_IF_ERROR(kernels::SelectIsa(options.isa));
  const SteadyClock clock;
  const Nanos begin = clock.Now();
  EngineOptions& engine = options.engine;
  LocalModel local;
  TARE_TRY(const std::optional<kernels::WeightType> dtype, model::ParseDtype(options.dtype));
  TARE_TRY(local.path, ResolveModel(options.model));

  TARE_TRY(const std::unique_ptr<model::Checkpoint> checkpoint, model::OpenCheckpoint(local.path));
  const model::ModelConfig& facts = checkpoint->config();
  local.name = facts.name.empty() ? local.path.stem().string() : facts.name;
  engine.startup.map_weights = clock.Now() - begin;

  // KV memory: one sequence of full length is the least that works.
  const int context = facts.context_length;
  const auto length = static_cast<std::uint64_t>(
      engine.max_model_len > 0 ? std::min(engine.max_model_len, context) : context);
  local.kv_bytes_per_token = model::KvBytesPerToken(facts, engine.kv_type);
  // A page more, since pages are whole.
  const std::uint64_t one = (length + kernels::kTokensPerPage) * local.kv_bytes_per_token;
  TARE_TRY(const model::MemoryNeed bare,
           model::EstimateMemory(*checkpoint, dtype, 0, engine.kv_type));
  TARE_TRY(const std::uint64_t available, model::AvailableMemory());
  model::MemoryNeed need = bare;
  for (const auto& [name, folder] : options.adapters) {
    // Beside floats they take the most; what the weights will be, the checkpoint decides.
    need.adapters += MostAdapterBytes(folder, facts, dtype.value_or(kernels::WeightType::kF32));
  }
  if (engine.kv_memory_bytes == 0) {
    const std::uint64_t left = available > need.total() ? available - need.total() : 0;
    const auto share = static_cast<std::uint64_t>(kKvShare * static_cast<double>(left));
    const auto sequences = static_cast<std::uint64_t>(std::max(engine.max_num_seqs, 1));
    engine.kv_memory_bytes = std::max(one, std::min(one * sequences, share));
  }
  need.kv = engine.kv_memory_bytes;
  TARE_RETURN_IF_ERROR(model::CheckFits(need, available, local.name));

  Nanos stage = clock.Now();
  auto pool = std::make_shared<ThreadPool>(options.threads);
  model::LoadOptions loading;
  loading.dtype = dtype;
  loading.pool = pool.get();
  loading.progress = options.progress;
  PackedWeights packed =
      OpenPackedWeights(options.packed_cache, local.path, options.dtype, bare.weights);
  if (packed.reader) loading.packed = &*packed.reader;
  if (packed.writer) loading.keep = &*packed.writer;
  TARE_TRY(std::unique_ptr<model::LanguageModel> language_model,
           model::LoadModel(*checkpoint, loading));
  engine.startup.load_weights = clock.Now() - stage;
  local.weights_from_cache = packed.reader.has_value();
  engine.startup.weights_from_cache = local.weights_from_cache;
  if (packed.writer) {
    // Waiting for the disk must not keep the first request waiting.
    local.keeping = std::async(std::launch::async, [writer = *std::move(packed.writer)]() mutable {
      if (Status kept = writer.Commit(); !kept) {
        LogWarn("packed weights are not kept for the next start: {}", kept.error().message);
      }
    });
  }

  stage = clock.Now();
  TARE_TRY(local.text, model::LoadText(local.path));
  engine.startup.load_text = clock.Now() - stage;
  engine.startup.total = clock.Now() - begin;

  local.dtype = language_model->weight_type();
  local.weight_bytes = language_model->weight_bytes();
  local.kv_memory_bytes = engine.kv_memory_bytes;
  need.adapters = 0;
  local.adapters = std::make_shared<AdapterStore>(language_model->config(), local.dtype,
                                                  AdapterRoom{need, available});
  for (const auto& [name, folder] : options.adapters) {
    const Status added = local.adapters->Load(name, folder, /*replace=*/false);
    if (!added) return Context(added.error(), "adapter '{}'", name);
  }
  local.threads = pool->size();
  engine.pool = std::move(pool);
  TARE_TRY(local.engine, Engine::Start(std::move(engine), std::move(language_model), local.text));
  const StartupTimes startup = local.engine->Stats().startup;
  LogInfo(
      "model '{}' ready in {}: map {}, load {}{}, text {}, pages {}, warm-up {}; {} weights take "
      "{}, "
      "{} threads",
      local.name, FormatDuration(startup.total), FormatDuration(startup.map_weights),
      FormatDuration(startup.load_weights),
      local.weights_from_cache ? " (packed by an earlier start)" : "",
      FormatDuration(startup.load_text), FormatDuration(startup.touch_pages),
      FormatDuration(startup.warm_kernels), kernels::ToString(local.dtype),
      FormatBytes(local.weight_bytes), local.threads);
  return local;
}

}  // namespace tare::engine
