#include "engine/local_model.h"

#include <gtest/gtest.h>

#include <fstream>

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

}  // namespace
}  // namespace tare::engine
