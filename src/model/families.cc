#include "model/families.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"

namespace tare::model {
namespace {

constexpr const Family* kFamilies[] = {&kLlama,      &kQwen2,      &kQwen3,  &kQwen3Moe,
                                       &kDeepseekV2, &kDeepseekV3, &kKimiK2, &kBert};

tl::unexpected<Error> Unknown(std::string_view what, std::string_view name,
                              const std::vector<std::string>& known) {
  std::string list;
  for (const std::string& each : known) list += (list.empty() ? "" : ", ") + each;
  return Fail(ErrorKind::kUnsupported, "{} '{}' is not supported; supported are {}", what, name,
              list);
}

}  // namespace

std::span<const Family* const> Families() { return kFamilies; }

Result<const Family*> FamilyOfGguf(std::string_view architecture) {
  std::vector<std::string> known;
  for (const Family* family : kFamilies) {
    if (family->gguf_architecture == nullptr) continue;
    if (family->gguf_architecture == architecture) return family;
    known.emplace_back(family->gguf_architecture);
  }
  return Unknown("GGUF architecture", architecture, known);
}

Result<const Family*> FamilyOfHuggingFace(std::string_view model_type) {
  std::vector<std::string> known;
  for (const Family* family : kFamilies) {
    for (const char* type : family->hugging_face_types) {
      if (type == model_type) return family;
      known.emplace_back(type);
    }
  }
  return Unknown("model_type", model_type, known);
}

}  // namespace tare::model
