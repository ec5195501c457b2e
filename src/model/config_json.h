// A model's facts from a Hugging Face config.json, checked for sense.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/family.h"
#include "model/model_config.h"

namespace tare::model {

// Typed access to the members of one JSON object. Null counts as missing; a wrong type is an error
// that names source and key. The object must outlive this.
class JsonKeys {
 public:
  JsonKeys(const nlohmann::json& object, std::string source)
      : object_(&object), source_(std::move(source)) {}

  const std::string& source() const { return source_; }
  bool Has(const char* key) const;
  Result<int> Count(const char* key) const;  // an integer from 0
  Result<int> CountOr(const char* key, int missing) const;
  Result<float> FloatOr(const char* key, float missing) const;
  Result<bool> BoolOr(const char* key, bool missing) const;
  Result<std::string> StringOr(const char* key, std::string_view missing) const;
  // kNotFound when missing.
  Result<JsonKeys> Object(const char* key) const;
  const nlohmann::json& json() const { return *object_; }

 private:
  const nlohmann::json* Find(const char* key) const;
  tl::unexpected<Error> Wrong(const char* key, const char* wanted) const;

  const nlohmann::json* object_;
  std::string source_;
};

struct JsonConfig {
  ModelConfig config;
  const Family* family = nullptr;
};

Result<JsonConfig> ReadJsonConfig(const std::filesystem::path& path);
// `source` stands for the file in messages.
Result<JsonConfig> ParseJsonConfig(std::string_view text, const std::string& source);

}  // namespace tare::model
