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
  void OnChunk(api::ChatChunk chunk) override { tokens_ += chunk.tokens; }
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
    if (status && tokens + tokens_ == 0) status = Fail(ErrorKind::kInternal, "it wrote nothing");
    result_ = std::move(status);
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Status> result_;
  int tokens_ = 0;
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
  }
  if (error) return Fail(ErrorKind::kIo, "cannot list '{}': {}", path.string(), error.message());
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    const std::string name = file.filename().string();
    hash.Add({name.c_str(), name.size() + 1});
    TARE_RETURN_IF_ERROR(AddFile(hash, file));
  }
  return ToHex(hash.Finish());
}

Status ProbeModel(Upstream& upstream, const std::string& model, Nanos patience) {
  api::ChatRequest request;
  request.id = "probe";
  request.model = model;
  request.prompt = "Hello";
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

Result<std::shared_ptr<const LoadedModel>> LocalModels::Load(const LocalSpec& spec,
                                                             int io_threads) {
  const Nanos begin = SteadyClock().Now();
  TARE_TRY(engine::LocalModel model, engine::LoadLocalModel(spec.options));
  auto loaded = std::make_shared<LoadedModel>();
  loaded->spec = spec;
  loaded->engine = std::move(model.engine);
  loaded->keeping = std::move(model.keeping);
  loaded->adapters = model.adapters;
  const bool endless = spec.options.engine.context_policy == engine::ContextPolicy::kRing;
  loaded->upstream = std::make_shared<LocalUpstream>(
      LocalUpstreamOptions{spec.served_name, endless, model.adapters}, loaded->engine);
  // Beside serving: nobody waits for it before the next reload.
  loaded->sha256 =
      std::async(std::launch::async, [name = spec.options.model] { return HashOrNothing(name); });

  const engine::EngineStats stats = loaded->engine->Stats();
  const engine::StartupTimes& startup = stats.startup;
  const model::ModelConfig& config = loaded->engine->config();
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
        FormatBytes(model.kv_memory_bytes), stats.pages_total, loaded->engine->max_model_len(),
        spec.options.engine.max_num_seqs);
  Print(log_, "threads   {} for kernels, {} for connections", model.threads, io_threads);
  Print(log_, "start-up  {}: map {}, weights {}, text {}, kv {}, warm-up {}",
        FormatDuration(SteadyClock().Now() - begin), FormatDuration(startup.map_weights),
        FormatDuration(startup.load_weights), FormatDuration(startup.load_text),
        FormatDuration(startup.touch_pages), FormatDuration(startup.warm_kernels));
  return loaded;
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
      const Status works = ProbeModel(*(*loaded)->upstream, spec.served_name, kProbePatience);
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

void LocalModels::TakeAdapters(const LoadedModel& before, const LoadedModel& model) {
  for (const engine::AdapterInfo& adapter : before.adapters->List()) {
    if (model.adapters->Find(adapter.name) != nullptr) continue;
    const Status taken = model.adapters->Load(adapter.name, adapter.folder, /*replace=*/false);
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
  for (const auto& model : Current()) whole = model->engine->Drain(deadline) && whole;
  for (const auto& model : retired_) whole = model->engine->Drain(deadline) && whole;
  return whole;
}

}  // namespace tare::gateway
