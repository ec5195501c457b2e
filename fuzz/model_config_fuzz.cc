// Feeds arbitrary bytes to the reader of config.json and counts what it describes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/config_json.h"
#include "model/inspect.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto read =
      tare::model::ParseJsonConfig({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!read) return 0;
  volatile std::uint64_t sink = 0;
  const auto found = tare::model::Inspect(read->config, std::uint64_t{1} << 34);
  sink = sink + found.parameters.total() + found.capacities.size();
  return 0;
}
