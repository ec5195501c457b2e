// Where tests find the real model: TARE_MODEL, else the user's cache directory, where
// scripts/fetch_model.sh leaves it. Tests skip with kTestModelMissing when there is none. The same
// of the embedding model: TARE_EMBEDDING_MODEL and scripts/fetch_embedding_model.sh.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/files.h"

namespace tare {

inline constexpr const char* kTestModelFile = "smollm2-135m-instruct-q4_1.gguf";
inline constexpr const char* kTestModelMissing =
    "no model: run ./run setup, or set TARE_MODEL=/path/file.gguf";

inline std::optional<std::filesystem::path> FindTestModel() {
  std::error_code code;
  if (const char* path = std::getenv("TARE_MODEL"); path != nullptr && *path != '\0') {
    if (std::filesystem::exists(path, code)) return path;
  }
  if (auto dir = UserCacheDir()) {
    if (std::filesystem::exists(*dir / kTestModelFile, code)) return *dir / kTestModelFile;
  }
  return std::nullopt;
}

inline constexpr const char* kTestEmbeddingModelFolder = "all-minilm-l6-v2";
inline constexpr const char* kTestEmbeddingModelMissing =
    "no embedding model: run scripts/fetch_embedding_model.sh, or set "
    "TARE_EMBEDDING_MODEL=/path/folder";

inline std::optional<std::filesystem::path> FindTestEmbeddingModel() {
  std::error_code code;
  if (const char* path = std::getenv("TARE_EMBEDDING_MODEL"); path != nullptr && *path != '\0') {
    if (std::filesystem::exists(path, code)) return path;
  }
  if (auto dir = UserCacheDir()) {
    const std::filesystem::path folder = *dir / kTestEmbeddingModelFolder;
    if (std::filesystem::exists(folder / "model.safetensors", code)) return folder;
  }
  return std::nullopt;
}

}  // namespace tare
