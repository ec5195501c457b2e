#include "model/json_file.h"

#include "base/files.h"

namespace tare::model {

using Json = nlohmann::json;

Result<Json> ReadJsonFile(const std::filesystem::path& path, std::size_t limit) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return Json();
  TARE_TRY(const std::string text, ReadFile(path, limit));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Fail(ErrorKind::kCorrupt, "'{}' is not JSON", path.string());
  return json;
}

std::string TokenName(const Json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  if (found == object.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object() && found->contains("content") && (*found)["content"].is_string()) {
    return (*found)["content"].get<std::string>();
  }
  return {};
}

std::optional<bool> JsonFlag(const Json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  if (found == object.end() || !found->is_boolean()) return {};
  return found->get<bool>();
}

}  // namespace tare::model
