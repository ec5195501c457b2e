// The models of this process: loading them, and replacing them while requests go on.
//
// A model is known by the SHA-256 of its files and the options it was loaded with. Renew keeps what
// did not change; what did is loaded beside the running one and must answer a real request before
// it takes over. The old one is kept until nobody uses it any more, then freed.
//
// Thread safety: Load, Renew and Reap belong to one thread; Stats may be called from any.
#pragma once

#include <cstdio>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/embedder.h"
#include "engine/local_model.h"
#include "gateway/upstream.h"

namespace tare::gateway {

// Where a model comes from: the command line (as upstream "local") or the configuration.
struct LocalSpec {
  std::string upstream_name;
  std::string served_name;
  engine::LocalModelOptions options;
  std::string identity;  // of everything but the files: equal means the same options
};

// A model that writes text has an engine, one that makes embeddings an embedder.
struct LoadedModel {
  LocalSpec spec;
  std::shared_ptr<engine::Engine> engine;
  std::shared_ptr<engine::AdapterStore> adapters;  // of an engine
  std::shared_ptr<engine::Embedder> embedder;
  std::shared_ptr<OwnUpstream> upstream;
  std::future<void> keeping;  // of its packed weights for the next start; nobody waits for it
  std::shared_future<std::string> sha256;  // of its files; empty when they could not be read

  int max_model_len() const;
  engine::StartupTimes startup() const;
  bool Drain(Nanos deadline) const;
};
using ModelSet = std::vector<std::shared_ptr<const LoadedModel>>;

class LocalModels {
 public:
  // `log` gets the lines people read about what was loaded.
  explicit LocalModels(std::FILE* log) : log_(log) {}
  // Ends engines last: nothing may use the upstreams any more.
  ~LocalModels();

  struct Renewal {
    ModelSet models;  // for each spec
    int loaded = 0;   // of them; the others were kept
  };
  // Loads what is new or changed. Nothing takes over before Adopt.
  Result<Renewal> Renew(const std::vector<LocalSpec>& specs, int io_threads);
  // The set is what serves now; others retire.
  void Adopt(ModelSet models);
  // Frees retired models nobody uses.
  void Reap();

  ModelSet Current() const;
  std::size_t retired() const { return retired_.size(); }
  // Waits for running answers of all models, old and new. False when the time was up before.
  bool Drain(Nanos deadline);

 private:
  Result<std::shared_ptr<const LoadedModel>> Load(const LocalSpec& spec, int io_threads);
  Status LoadEngine(LoadedModel& loaded, int io_threads);
  Status LoadEmbedder(LoadedModel& loaded, int io_threads);

  std::FILE* const log_;
  mutable std::mutex mutex_;  // guards current_
  ModelSet current_;
  ModelSet retired_;
};

// Loads for `model` what was loaded for `before` while it served; what does not fit is left out
// with a warning. Adapters of its options are not among it: those of the new options stand for
// them.
void TakeAdapters(const LoadedModel& before, const LoadedModel& model);

// One short answer or embedding, to see that a model works before it serves.
Status ProbeModel(Upstream& upstream, const std::string& model, bool embeds, Nanos patience);

// SHA-256 (hex) of a file, or of a folder's files and the config.json of folders in it, with their
// names.
Result<std::string> HashModelFiles(const std::filesystem::path& path);

}  // namespace tare::gateway
