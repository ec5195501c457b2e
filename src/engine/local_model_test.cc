#include "engine/local_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "model/lora_test_folder.h"
#include "model/tiny_checkpoint.h"

namespace tare::engine {
namespace {

TEST(LocalModelTest, RefusesWhatIsNotAModel) {
  LocalModelOptions options;
  options.model = "/nonexistent/model.gguf";
  const auto missing = LoadLocalModel(options);
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().kind, ErrorKind::kNotFound);
  EXPECT_NE(missing.error().message.find("/nonexistent/model.gguf"), std::string::npos);

  options.dtype = "int3";
  EXPECT_EQ(LoadLocalModel(options).error().param, "dtype");
  options.dtype = "auto";

  const std::string path = ::testing::TempDir() + "not_a_model.gguf";
  std::ofstream(path) << "this is text, not a checkpoint";
  options.model = path;
  EXPECT_FALSE(LoadLocalModel(options).has_value());
  options.model = ::testing::TempDir();  // a folder without config.json
  EXPECT_FALSE(LoadLocalModel(options).has_value());
}

// Before the weights are read, and by the sum.
TEST(LocalModelTest, AdaptersThatCannotFitAreRefusedFirst) {
  const model::AdapterFolder folder(model::ReadTinyAdapters().at(0));
  std::filesystem::resize_file(folder.path() / "adapter_model.safetensors", 1ull << 42);  // a hole
  const std::string path = ::testing::TempDir() + "tiny_for_adapters.gguf";
  std::ofstream(path, std::ios::binary) << model::TinyGguf(model::ReadTinyModels().at(0));
  LocalModelOptions options;
  options.model = path;
  options.adapters = {{"huge", folder.path()}};
  const auto refused = LoadLocalModel(options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind, ErrorKind::kResourceExhausted);
  EXPECT_NE(refused.error().message.find("+ adapters 8.00 TiB"), std::string::npos)
      << refused.error().message;
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tare::engine
