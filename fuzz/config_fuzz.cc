// Any bytes as a configuration file: no crash, no hang, no sanitizer report.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using tare::config::Document;
  using tare::config::Value;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto document = Document::Parse(text, "fuzz.yaml");
  if (!document) return 0;
  const Value root = document->root();
  (void)root["a"].DurationOr(tare::Nanos(0));
  (void)root["b"].FractionOr(0);
  (void)root["c"].NumberOr(0, 0, 1);
  for (const Value& item : root["d"].ListOrEmpty()) (void)item["e"].ByteSizeOr(0);
  for (const auto& [key, value] : root["f"].EntriesOrEmpty()) (void)value.StringOr("");
  (void)root["g"].Json();
  (void)document->Finish();
  return 0;
}
