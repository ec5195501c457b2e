// Test helper: LoRA adapters whose weights come from their tensors' names, as in
// tests/golden/lora_logits.py, with the logits the PEFT library computed with them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files.h"
#include "model/safetensors_writer.h"
#include "model/tiny_checkpoint.h"

namespace tare::model {

struct TinyAdapter {
  std::string name;
  std::string base;       // of ReadTinyModels
  nlohmann::json config;  // as adapter_config.json
  std::map<std::string, std::vector<std::int64_t>> tensors;
  std::vector<TinyCase> cases;
};

inline std::vector<TinyAdapter> ReadTinyAdapters() {
  const auto text = ReadFile(TARE_SOURCE_DIR "/tests/golden/lora.json");
  if (!text) return {};
  const auto document = nlohmann::json::parse(*text);
  std::vector<TinyAdapter> adapters;
  for (const auto& a : document["adapters"]) {
    TinyAdapter adapter{a["name"], a["base"], a["config"], a["tensors"], {}};
    for (const auto& c : a["cases"]) {
      TinyCase one{{}, c["positions"], c["logits"]};
      for (const int id : c["tokens"]) one.tokens.push_back(TokenId{id});
      adapter.cases.push_back(std::move(one));
    }
    adapters.push_back(std::move(adapter));
  }
  return adapters;
}

// A folder of its own, removed at the end, holding `adapter`. Two of different `flavour` have
// different weights.
class AdapterFolder {
 public:
  explicit AdapterFolder(const TinyAdapter& adapter, const std::string& flavour = "") {
    std::string name = (std::filesystem::temp_directory_path() / "tare-lora-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
    Write(adapter, flavour);
  }
  ~AdapterFolder() {
    std::error_code code;
    std::filesystem::remove_all(path_, code);
  }
  AdapterFolder(const AdapterFolder&) = delete;
  AdapterFolder& operator=(const AdapterFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  void Write(const TinyAdapter& adapter, const std::string& flavour = "") const {
    EXPECT_TRUE(WriteFileAtomic(path_ / "adapter_config.json", adapter.config.dump()));
    std::vector<SafetensorsEntry> entries;
    for (const auto& [name, shape] : adapter.tensors) entries.push_back({name, "F32", shape});
    auto writer = SafetensorsWriter::Create(path_ / "adapter_model.safetensors", entries);
    ASSERT_TRUE(writer) << writer.error().message;
    for (const auto& [name, shape] : adapter.tensors) {
      const std::vector<float> values = TinyWeights(name + flavour, shape);
      ASSERT_TRUE(writer->Add(std::as_bytes(std::span(values))));
    }
    ASSERT_TRUE(writer->Commit());
  }

 private:
  std::filesystem::path path_;
};

}  // namespace tare::model
