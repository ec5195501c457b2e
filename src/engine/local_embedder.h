// From what a user names on the command line to a running embedder.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/embedder.h"
#include "engine/local_model.h"

namespace tare::engine {

struct LocalEmbedder {
  std::string name;  // as the checkpoint calls itself, or the folder's
  std::filesystem::path path;
  int threads = 0;
  std::unique_ptr<Embedder> embedder;
};

// Whether the folder's config.json is that of a model that makes embeddings. False for anything
// that cannot be read: loading says what is wrong with it.
bool IsEmbeddingModel(const std::filesystem::path& path);

// As LoadLocalModel; of the engine's options those on steps, lengths and queues have a meaning.
Result<LocalEmbedder> LoadLocalEmbedder(const LocalModelOptions& options);

}  // namespace tare::engine
