#include "engine/local_embedder.h"

#include <system_error>
#include <utility>

#include "kernels/isa.h"
#include "model/checkpoint.h"
#include "model/config_json.h"
#include "model/hf_checkpoint.h"
#include "model/load.h"

namespace tare::engine {

bool IsEmbeddingModel(const std::filesystem::path& path) {
  std::error_code code;
  if (!std::filesystem::is_directory(path, code)) return false;
  const auto config = model::ReadJsonConfig(path / "config.json");
  return config && config->family->encoder;
}

Result<LocalEmbedder> LoadLocalEmbedder(const LocalModelOptions& options) {
  if (!options.adapters.empty()) {
    return FailParam("lora", "'{}' makes embeddings and takes no adapters: leave out --lora",
                     options.model);
  }
  if (!options.isa.empty()) TARE_RETURN_IF_ERROR(kernels::SelectIsa(options.isa));
  const SteadyClock clock;
  const Nanos begin = clock.Now();
  LocalEmbedder local;
  TARE_TRY(const std::optional<kernels::WeightType> dtype, model::ParseDtype(options.dtype));
  TARE_TRY(local.path, ResolveModel(options.model));
  TARE_TRY(const std::unique_ptr<model::Checkpoint> checkpoint, model::OpenCheckpoint(local.path));
  TARE_TRY(const model::SentenceConfig sentence,
           model::ReadSentenceConfig(local.path, checkpoint->config()));
  // Configs of such models name the base they were trained from.
  local.name = model::FolderName(local.path);
  EmbedderOptions embedding;
  embedding.startup.map_weights = clock.Now() - begin;

  Nanos stage = clock.Now();
  embedding.pool = std::make_shared<ThreadPool>(options.threads);
  local.threads = embedding.pool->size();
  model::LoadOptions loading;
  loading.dtype = dtype;
  loading.pool = embedding.pool.get();
  loading.progress = options.progress;
  TARE_TRY(std::unique_ptr<model::Encoder> encoder,
           model::LoadEncoder(*checkpoint, sentence, loading));
  embedding.startup.load_weights = clock.Now() - stage;

  stage = clock.Now();
  TARE_TRY(auto text, model::LoadText(local.path));
  embedding.startup.load_text = clock.Now() - stage;
  embedding.startup.total = clock.Now() - begin;
  embedding.max_step_tokens = options.engine.max_num_batched_tokens;
  embedding.max_length = options.engine.max_model_len;
  embedding.max_queued = options.engine.max_queued;
  embedding.batch_tier_ageing = options.engine.batch_tier_ageing;
  TARE_TRY(local.embedder,
           Embedder::Start(std::move(embedding), std::move(encoder), std::move(text)));
  return local;
}

}  // namespace tare::engine
