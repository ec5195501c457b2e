#include "gateway/local_models.h"

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/units.h"
#include "engine/local_embedder.h"
#include "gateway/local_embeddings.h"
#include "gateway/local_upstream.h"
#include "gateway/service_log.h"

namespace tare::gateway {

namespace {

constexpr Nanos kProbePatience = std::chrono::seconds(60);
constexpr std::size_t kHashBlock = 1 << 20;

Status AddFile(Sha256Stream& hash, const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> block(kHashBlock);
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())) || in.gcount() > 0) {
    hash.Add({block.data(), static_cast<std::size_t>(in.gcount())});
  }
  if (!in.eof()) return Fail(ErrorKind::kIo, "cannot read '{}'", path.string());
  return {};
}

std::string HashOrNothing(const std::string& model) {
  const auto path = engine::ResolveModel(model);
  if (!path) return {};
  return HashModelFiles(*path).value_or("");
}

// The probe's end, for a thread that waits for it.
class ProbeSink final : public ChatSink {
 public:
  void OnChunk(api::ChatChunk chunk) override {
    tokens_ += chunk.tokens;
    answered_ = answered_ || !chunk.text.empty();  // vectors are no tokens
  }
  void OnDone(const api::Usage& usage) override { End({}, usage.completion_tokens); }
  void OnError(Error error) override { End(tl::unexpected(std::move(error)), 0); }
  Status Wait(Nanos patience) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, patience, [this] { return result_.has_value(); })) {
      return Fail(ErrorKind::kDeadlineExceeded, "it gave no answer within {}",
                  FormatDuration(patience));
    }
    return *result_;
  }

 private:
  void End(Status status, int tokens) {
    std::lock_guard lock(mutex_);
    if (status && tokens + tokens_ == 0 && !answered_)
      status = Fail(ErrorKind::kInternal, "it wrote nothing");
    result_ = std::move(status);
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Status> result_;
  int tokens_ = 0;
  bool answered_ = false;
};

}  // namespace

Result<std::string> HashModelFiles(const std::filesystem::path& path) {
  Sha256Stream hash;
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    TARE_RETURN_IF_ERROR(AddFile(hash, path));
    return ToHex(hash.Finish());
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (entry.is_regular_file(error)) files.push_back(entry.path());
    // How an embedding model's parts work ("1_Pooling/config.json"); the rest of a folder below may
    // be the same model in other formats.
    std::error_code none;
    const std::filesystem::path part = entry.path() / "config.json";
    if (std::filesystem::is_regular_file(part, none)) files.push_back(part);
  }
  if (error) return Fail(ErrorKind::kIo, "cannot list '{}': {}", path.string(), error.message());
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    const std::string name = file.lexically_relative(path).string();
    hash.Add({name.c_str(), name.size() + 1});
    TARE_RETURN_IF_ERROR(AddFile(hash, file));
  }
  return ToHex(hash.Finish());
}

Status ProbeModel(Upstream& upstream, const std::string& model, bool embeds, Nanos patience) {
  api::ChatRequest request;
  request.id = "probe";
  request.model = model;
  if (embeds) {
    request.embeddings.emplace().texts = {"Hello"};
  } else {
    request.prompt = "Hello";
  }
  request.max_tokens = 1;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  auto sink = std::make_shared<ProbeSink>();
  TARE_TRY(const auto call, upstream.Chat(std::move(request), sink));
  return sink->Wait(patience);
}

LocalModels::~LocalModels() {
  Adopt({});
  retired_.clear();
}

int LoadedModel::max_model_len() const {
  return engine != nullptr ? engine->max_model_len() : embedder->max_length();
}
engine::StartupTimes LoadedModel::startup() const {
  return engine != nullptr ? engine->Stats().startup : embedder->Stats().startup;
}
bool LoadedModel::Drain(Nanos deadline) const {
  return engine != nullptr ? engine->Drain(deadline) : embedder->Drain(deadline);
}

Result<std::shared_ptr<const LoadedModel>> LocalModels::Load(const LocalSpec& spec,
                                                             int io_threads) {
  auto loaded = std::make_shared<LoadedModel>();
  loaded->spec = spec;
  const auto path = engine::ResolveModel(spec.options.model);
  const bool embeds = path && engine::IsEmbeddingModel(*path);
  TARE_RETURN_IF_ERROR(embeds ? LoadEmbedder(*loaded, io_threads)
                              : LoadEngine(*loaded, io_threads));
  // Beside serving: nobody waits for it before the next reload.
  loaded->sha256 =
      std::async(std::launch::async, [name = spec.options.model] { return HashOrNothing(name); });
  return loaded;
}

Status LocalModels::LoadEngine(LoadedModel& loaded, int io_threads) {
  const LocalSpec& spec = loaded.spec;
  const Nanos begin = SteadyClock().Now();
  TARE_TRY(engine::LocalModel model, engine::LoadLocalModel(spec.options));
  loaded.engine = std::move(model.engine);
  loaded.keeping = std::move(model.keeping);
  const bool endless = spec.options.engine.context_policy == engine::ContextPolicy::kRing;
  loaded.adapters = model.adapters;
  loaded.upstream = std::make_shared<LocalUpstream>(
      LocalUpstreamOptions{spec.served_name, endless, model.adapters}, loaded.engine);

  const engine::EngineStats stats = loaded.engine->Stats();
  const engine::StartupTimes& startup = stats.startup;
  const model::ModelConfig& config = loaded.engine->config();
  Print(log_, "model     {} ({}, {:.1f} M parameters) as '{}'", model.name, config.family,
        static_cast<double>(config.parameters) / 1e6, spec.served_name);
  Print(log_, "weights   {} in {}", FormatBytes(model.weight_bytes),
        kernels::ToString(model.dtype));
  for (const engine::AdapterInfo& adapter : model.adapters->List()) {
    Print(log_, "adapter   '{}': {} linear layers, rank up to {}, {} in {}", adapter.name,
          adapter.modules, adapter.max_rank, FormatBytes(adapter.bytes),
          FormatDuration(adapter.loading));
  }
  Print(log_, "kv cache  up to {} in {} pages; context {} tokens, up to {} sequences a step",
        FormatBytes(model.kv_memory_bytes), stats.pages_total, loaded.engine->max_model_len(),
        spec.options.engine.max_num_seqs);
  Print(log_, "threads   {} for kernels, {} for connections", model.threads, io_threads);
  Print(log_, "start-up  {}: map {}, weights {}, text {}, kv {}, warm-up {}",
        FormatDuration(SteadyClock().Now() - begin), FormatDuration(startup.map_weights),
        FormatDuration(startup.load_weights), FormatDuration(startup.load_text),
        FormatDuration(startup.touch_pages), FormatDuration(startup.warm_kernels));
  return {};
}

Status LocalModels::LoadEmbedder(LoadedModel& loaded, int io_threads) {
  const LocalSpec& spec = loaded.spec;
  const Nanos begin = SteadyClock().Now();
  TARE_TRY(engine::LocalEmbedder local, engine::LoadLocalEmbedder(spec.options));
  loaded.embedder = std::move(local.embedder);
  loaded.upstream = std::make_shared<LocalEmbeddings>(spec.served_name, loaded.embedder);

  const model::Encoder& encoder = loaded.embedder->encoder();
  const engine::StartupTimes startup = loaded.embedder->Stats().startup;
  Print(log_, "model     {} ({}, {:.1f} M parameters) as '{}'", local.name, encoder.config().family,
        static_cast<double>(encoder.config().parameters) / 1e6, spec.served_name);
  Print(log_, "weights   {} in {}", FormatBytes(encoder.weight_bytes()),
        kernels::ToString(encoder.weight_type()));
  Print(log_, "vectors   of {} numbers, {} pooling{}; inputs of up to {} tokens",
        encoder.dimension(), model::ToString(encoder.sentence().pooling),
        encoder.sentence().normalise ? ", normalised" : "", loaded.embedder->max_length());
  Print(log_, "threads   {} for kernels, {} for connections", local.threads, io_threads);
  Print(log_, "start-up  {}: map {}, weights {}, text {}, warm-up {}",
        FormatDuration(SteadyClock().Now() - begin), FormatDuration(startup.map_weights),
        FormatDuration(startup.load_weights), FormatDuration(startup.load_text),
        FormatDuration(startup.warm_kernels));
  return {};
}

Result<LocalModels::Renewal> LocalModels::Renew(const std::vector<LocalSpec>& specs,
                                                int io_threads) {
  const ModelSet current = Current();
  const auto contextual = [&](Error error, const LocalSpec& spec) -> Error {
    if (specs.size() > 1) error.message = "upstream '" + spec.upstream_name + "': " + error.message;
    return error;
  };
  Renewal renewal;
  for (const LocalSpec& spec : specs) {
    const auto known = std::find_if(current.begin(), current.end(), [&](const auto& model) {
      return model->spec.upstream_name == spec.upstream_name;
    });
    if (known != current.end() && (*known)->spec.identity == spec.identity) {
      const std::string& before = (*known)->sha256.get();
      if (!before.empty() && before == HashOrNothing(spec.options.model)) {
        renewal.models.push_back(*known);
        continue;
      }
    }
    auto loaded = Load(spec, io_threads);
    if (!loaded) return tl::unexpected(contextual(std::move(loaded).error(), spec));
    if (!current.empty()) {
      const Status works = ProbeModel(*(*loaded)->upstream, spec.served_name,
                                      (*loaded)->embedder != nullptr, kProbePatience);
      if (!works) {
        return Context(contextual(works.error(), spec),
                       "'{}' was loaded but does not answer; the old one goes on serving",
                       spec.served_name);
      }
    }
    if (known != current.end()) TakeAdapters(**known, **loaded);
    renewal.models.push_back(std::move(*loaded));
    ++renewal.loaded;
  }
  return renewal;
}

void TakeAdapters(const LoadedModel& before, const LoadedModel& model) {
  if (before.adapters == nullptr || model.adapters == nullptr) return;  // embeddings have none
  for (const engine::AdapterInfo& adapter : before.adapters->List()) {
    const auto& given = before.spec.options.adapters;
    const std::pair flag(adapter.name, adapter.folder);
    if (std::find(given.begin(), given.end(), flag) != given.end()) continue;
    const Status taken = model.adapters->Load(adapter.name, adapter.folder, /*replace=*/true);
    if (taken) continue;
    LogWarn("the adapter '{}' does not go on with the renewed '{}': {}", adapter.name,
            model.spec.served_name, taken.error().message);
  }
}

void LocalModels::Adopt(ModelSet models) {
  std::lock_guard lock(mutex_);
  current_.swap(models);
  for (auto& old : models) {
    if (std::find(current_.begin(), current_.end(), old) == current_.end()) {
      retired_.push_back(std::move(old));
    }
  }
}

void LocalModels::Reap() {
  std::erase_if(retired_, [this](const std::shared_ptr<const LoadedModel>& model) {
    // Nobody can begin a request once this set is the only holder of the upstream.
    if (model.use_count() > 1 || model->upstream.use_count() > 1) return false;
    if (!model->upstream->Idle()) return false;
    Print(log_, "unloaded  the former '{}'", model->spec.served_name);
    return true;
  });
}

ModelSet LocalModels::Current() const {
  std::lock_guard lock(mutex_);
  return current_;
}

bool LocalModels::Drain(Nanos deadline) {
  bool whole = true;
  for (const auto& model : Current()) whole = model->Drain(deadline) && whole;
  for (const auto& model : retired_) whole = model->Drain(deadline) && whole;
  return whole;
}

}  // namespace tare::gateway
